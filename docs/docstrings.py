"""Docstrings as the site's reader of them knows them: Markdown, with sections in the plural."""

import re

import griffe


class Docstrings(griffe.Extension):
    """Names sections as griffe does, and removes what is reStructuredText."""

    def on_object(self, *, obj, **_):
        """Rewrite one docstring, of a module, class, function or attribute."""
        if obj.docstring:
            text = re.sub(r"^Example:$", "Examples:", obj.docstring.value, flags=re.MULTILINE)
            text = re.sub(r"^::\n", "", text, flags=re.MULTILINE)
            obj.docstring.value = text.replace("::\n", ":\n").replace(":func:`", "`")
