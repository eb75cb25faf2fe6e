"""Docstrings as the site's reader of them knows them: Markdown, with sections in the plural."""

import itertools
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
        """Rewrite the docstring of a module, class, function or attribute.

        That of a field is the comment above it.
        """
        if obj.is_attribute and not obj.docstring and obj.lineno and obj.parent.is_class:
            above = obj.filepath.read_text().splitlines()[: obj.lineno - 1]
            lines = itertools.takewhile(lambda line: line[:2] == "#:", map(str.strip, above[::-1]))
            if text := " ".join(line[3:] for line in [*lines][::-1]):
                obj.docstring = griffe.Docstring(text[0].upper() + text[1:] + ".", parent=obj)
        if obj.docstring:
            for pattern, new in REWRITES.items():
                found = obj.docstring.value
                obj.docstring.value = re.sub(pattern, new, found, flags=re.MULTILINE)

    def on_package(self, *, pkg, **_):
        """The same for a package, which griffe hands out apart."""
        self.on_object(obj=pkg)
