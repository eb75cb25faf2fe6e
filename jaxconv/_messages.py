"""How error messages show what was given and list what would do."""

import reprlib
from collections.abc import Iterable
from typing import Any


def shown(value: Any) -> str:
    """A value and its type, on one short line."""
    text = " ".join(reprlib.repr(value).split())
    return text if value is None else f"{text} ({type(value).__name__})"


def either(names: Iterable[str]) -> str:
    """Alternatives, as in "a, b or c"."""
    *most, last = names
    return f"{', '.join(most)} or {last}" if most else last
