"""What the documentation shows runs, and it names every parameter."""

import doctest
import importlib
import inspect
import os
import pkgutil
import re
import sys
import xml.etree.ElementTree as ET
from pathlib import Path

import jax
import pytest

import jaxconv
from benchmarks import figures
from jaxconv._lax import from_lax, install, max_pool
from jaxconv._lowering import onednn_here
from jaxconv._rules.op import OPS
from tests.support.peers import peer

ROOT = Path(jaxconv.__file__).parents[1]
PAGES = ["README.md", *sorted(str(p.relative_to(ROOT)) for p in (ROOT / "docs").rglob("*.md"))]
MODULES = [
    "jaxconv",
    *(
        module.name
        for module in pkgutil.walk_packages(jaxconv.__path__, "jaxconv.")
        if not module.name.endswith("__main__")
    ),
]


def public_functions():
    """Every function a user may call, by its full name."""
    for module in map(importlib.import_module, MODULES):
        if any(part.startswith("_") for part in module.__name__.split(".")):
            continue
        own = [n for n, v in vars(module).items() if getattr(v, "__module__", 0) == module.__name__]
        for name in getattr(module, "__all__", own):
            value = getattr(module, name, None)
            if not name.startswith("_") and inspect.isfunction(value):
                yield f"{module.__name__}.{name}", value


PUBLIC = dict(public_functions())


def run(test, **options):
    """Run the examples of a docstring; how many there are."""
    report = []
    results = doctest.DocTestRunner(**options).run(test, out=report.append, clear_globs=False)
    assert not results.failed, "".join(report)
    return results.attempted


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_of_a_module(module):
    for test in doctest.DocTestFinder().find(importlib.import_module(module)):
        run(test)


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_function_has_an_example(name):
    [test] = doctest.DocTestFinder(recurse=False).find(PUBLIC[name], name, globs={})
    module = importlib.import_module(name.rpartition(".")[0])
    assert test.examples or (module.__doc__ and ">>> " in module.__doc__)


def parameters(function):
    """Their names; one with a leading underscore, or only that, is not for the caller."""
    return [name for name in inspect.signature(function).parameters if not name.startswith("_")]


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_docstring_has_every_parameter(name):
    """`Args:` entries are indented by two, their text by more, and one may list several names."""
    doc = inspect.getdoc(PUBLIC[name])
    assert set(parameters(PUBLIC[name])) <= set(re.findall(r"\w+", doc))
    first, blank, *_ = [*doc.splitlines(), ""]
    assert first.endswith(".")
    assert not blank
    _, found, section = doc.partition("\nArgs:\n")
    if found:
        heads = re.findall(r"^  (\w[\w,\s]*?):", re.split(r"\n\S", section)[0], re.MULTILINE)
        listed = [name for head in heads for name in re.split(r",\s*", head)]
        assert sorted(listed) == sorted(parameters(PUBLIC[name]))
    assert found or name.removeprefix("jaxconv.") not in OPS


#: What some blocks import that the package does not need.
PEERS = ("equinox", "flax", "haiku", "keras", "torch")


def blocks(text):
    """The fenced blocks of a Markdown text: line, language, text, and the section they are in."""
    section = ""
    for found in re.finditer(r"^## (.*)|^```(.*)\n((?s:.*?))^```$", text, re.MULTILINE):
        section = found[1] or section
        if not found[1]:
            yield text[: found.start(3)].count("\n"), found[2], found[3], section


@pytest.fixture
def as_a_reader(monkeypatch):
    """JAX as it comes, and as it was afterwards."""
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield
    jaxconv.uninstall()


@pytest.mark.filterwarnings("default")  # those of other libraries
@pytest.mark.parametrize("page", PAGES)
def test_the_blocks_of_a_page_run(page, as_a_reader):
    """In order, in one namespace; a section ends early that needs what is not there."""
    namespace, skipped = {"__name__": "page"}, {}
    for line, language, block, section in blocks((ROOT / page).read_text()):
        assert language in ("python", "sh", "text")  # what is not run is a command or text
        if language != "python" or section in skipped:
            continue
        try:
            exec(compile("\n" * line + block, page, "exec"), namespace)
        except ModuleNotFoundError as error:
            if error.name not in PEERS or os.environ.get("JAXCONV_REQUIRE_PEERS") == "1":
                raise
            skipped[section] = error.name
    if skipped:
        pytest.skip(f"all but sections that need {', '.join(skipped.values())}")


@pytest.mark.parametrize("page", PAGES)
def test_the_links_of_a_page_lead_somewhere(page):
    """To files, and to headings of pages."""
    text = re.sub(r"^```.*?^```$", "", (ROOT / page).read_text(), flags=re.MULTILINE | re.DOTALL)
    for target in re.findall(r"\]\(([^)]+)\)", text):
        name, _, anchor = target.partition("#")
        if name.startswith("https://"):
            continue
        path = (ROOT / page).parent / name if name else ROOT / page
        assert path.exists(), target
        heads = re.findall(r"^#+ (.*)", path.read_text(), re.MULTILINE) if anchor else []
        slugs = [re.sub(r"[^\w-]", "", head.lower().replace(" ", "-")) for head in heads]
        assert not anchor or anchor in slugs, target


@pytest.mark.parametrize("page", [*PAGES, "benchmarks/README.md"])
def test_the_figures_of_a_page_are_those_of_the_results(page):
    text = (ROOT / page).read_text()
    assert figures.written(text, (ROOT / page).parent) == text, "python -m benchmarks.figures PAGE"


def test_the_means_in_the_readme_are_those_of_the_tables():
    """What stands in sentences is in a table of figures, too."""
    cells = re.findall(r"(?<=\| )[\d.]+(?= \|)", (ROOT / "docs" / "benchmarks.md").read_text())
    text = (ROOT / "README.md").read_text()
    section = text.split("## How fast")[1].split("\n## ")[0].replace("JAX 0.12", "")
    means = re.findall(r"(?<![\d.])\d+\.\d\d(?![\d.])", section)
    assert len(means) == 26
    assert {"3.3", "1.4", "9.3", *means} <= {*cells}
    assert "seven Keras models 1.4 to 9.3 times, by geometric mean\n3.3 times" in text


def test_the_readme_is_short():
    assert len((ROOT / "README.md").read_text().splitlines()) <= 150


def drawn(path):
    """The words and the colours of a drawing, in their order."""
    words, fills = [], []
    for element in ET.parse(path).iter():
        if element.tag.endswith("}text"):
            words.append("".join(element.itertext()))
        elif element.tag.endswith("}path"):
            fills += re.findall(r"(?:fill|stroke|opacity): ([^;]+)", element.get("style", ""))
    return words, fills


def test_the_drawings_are_current(tmp_path, monkeypatch):
    """But for positions, which may differ with matplotlib's version."""
    peer("matplotlib").use("agg")
    folders = [ROOT / "docs", ROOT / "notebooks"]
    monkeypatch.setattr(sys, "path", [*map(str, folders), *sys.path])
    importlib.import_module("drawings").save(tmp_path)
    importlib.import_module("one_form").save(tmp_path / "one_form.svg")
    committed = {path.name: path for folder in folders for path in folder.glob("*.svg")}
    assert committed["one_form.svg"].stat().st_size < 40_000  # the first page shows it
    assert {path.name for path in tmp_path.iterdir()} == set(committed)
    for name, path in committed.items():
        assert drawn(path) == drawn(tmp_path / name), name


def test_the_api_pages_have_every_public_name():
    pages = "".join(path.read_text() for path in (ROOT / "docs" / "api").glob("*.md"))
    shown = re.findall(r"^::: (?!jaxconv\._)(\S+)$", pages, re.MULTILINE)  # records are private
    modules = (jaxconv, jaxconv.lax, jaxconv.onednn, jaxconv.onnx, jaxconv.torch)
    public = [f"{module.__name__}.{name}" for module in modules for name in module.__all__]
    assert sorted(shown) == sorted({*public, "jaxconv"})


def test_the_page_about_versions_has_the_releases_of_jaxlib():
    assert ", ".join(onednn_here.TESTED_RELEASES) in (ROOT / "docs" / "versions.md").read_text()


@pytest.mark.parametrize("page", ["docs/inside.md", "CONTRIBUTING.md"])
def test_the_files_that_a_page_names_are_there(page):
    """Below the package, the repository or the tests."""
    named = set(re.findall(r"`([\w/]+(?:/|\.(?:py|md)))`", (ROOT / page).read_text()))
    folders = [ROOT / folder for folder in ("jaxconv", "", "tests", "tests/support")]
    missing = {name for name in named if not any((at / name).exists() for at in folders)}
    assert missing <= {"_lowering/forms/NAME.py"}, missing
    assert named


def test_the_page_about_the_inside_has_every_room():
    text = (ROOT / "docs" / "inside.md").read_text()
    rooms = {path.parent.name for path in (ROOT / "jaxconv").glob("*/__init__.py")}
    assert rooms == set(re.findall(r"^\| `(\w+)/`", text, re.MULTILINE))


def test_the_page_has_each_reason_to_stay_with_lax():
    page = (ROOT / "docs" / "adopt.md").read_text()
    printed = re.findall(r"^\| ([^|]*) \|", page.split("## What stays with lax")[1], re.MULTILINE)
    modules = (from_lax, install, max_pool)
    names = [(name, x) for m in modules for name, x in vars(m).items()]
    reasons = {x for name, x in names if name.isupper() and isinstance(x, str)}
    assert len(reasons) == 13
    assert reasons <= set(printed)
