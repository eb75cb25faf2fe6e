"""Files of the site that are elsewhere in the repository.

Pages link to them where they are, so that the links work in the repository, too.
"""

from pathlib import Path

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
ELSEWHERE = {
    "notebooks/one_form.svg": "one_form.svg",
    "benchmarks/README.md": "measure-yours.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}


def on_files(files, config):
    """Copy what is elsewhere."""
    for source, name in ELSEWHERE.items():
        text = (ROOT / source).read_text().replace("](docs/", "](")
        files.append(File.generated(config, name, content=text))


def on_page_markdown(markdown, page, config, files):
    """Let links lead to the copies."""
    for source, name in ELSEWHERE.items():
        markdown = markdown.replace(f"](../{source}", f"]({name}")
    return markdown
