"""Docstrings as the site's reader of them knows them: Markdown, with sections in the plural."""

import re

import griffe

REWRITES = {
    r"^Example:$": "Examples:",
    r"^::\n": "",
    r"::$": ":",
    r":(func|mod):`": "`",
    r"^(>>> (?:.+\n?)+)": r"```pycon\n\1\n```\n",
    r"^(\w.*)\n    (?=\S)": r"- **\1**:\n    ",  # a term and what it means
}


class Docstrings(griffe.Extension):
    """Names sections as griffe does, and replaces what is reStructuredText."""

    def on_object(self, *, obj, **_):
        """Rewrite the docstring of a module, class, function or attribute."""
        if obj.docstring:
            for pattern, new in REWRITES.items():
                found = obj.docstring.value
                obj.docstring.value = re.sub(pattern, new, found, flags=re.MULTILINE)

    def on_package(self, *, pkg, **_):
        """The same for a package, which griffe hands out apart."""
        self.on_object(obj=pkg)
