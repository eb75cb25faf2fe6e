"""How error messages show values and list alternatives: briefly, whatever the value."""

import reprlib
from collections.abc import Iterable

_repr = reprlib.Repr()
_repr.maxtuple = _repr.maxlist = 12  # more than the axes of any layer
_repr.maxlevel = 2  # pairs of pads, but not the numbers of an image


def short(value: object) -> str:
    """Show a value on one short line."""
    try:
        return " ".join(_repr.repr(value).split())
    except Exception:  # an int of thousands of digits, or a __repr__ that raises
        return f"a value of type {type(value).__name__} that cannot be shown"


def shown(value: object) -> str:
    """Show a value and its type on one short line."""
    return short(value) if value is None else f"{short(value)} ({type(value).__name__})"


def either(names: Iterable[str]) -> str:
    """Join alternatives, as in "a, b or c"."""
    *most, last = names
    return f"{', '.join(most)} or {last}" if most else last
