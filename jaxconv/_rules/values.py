"""Attributes of nodes, in graphs and files: checked against a table, or wrapped with a type."""

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import numpy as np
from jax import Array
from jax.core import Tracer

from jaxconv._base.messages import Refusal, either, short, shown

#: Stands for the default of an attribute without one.
NO_DEFAULT: Any = object()


@dataclass(frozen=True)
class Attribute:
    """The values that an attribute may have: a type as in a dump, a default, spellings."""

    type: str
    default: Any = NO_DEFAULT
    choices: tuple[str, ...] = ()


def unwrap(kind: str, attributes: Mapping[str, Any]) -> dict[str, Any]:
    """Replace every ``{"type": ..., "value": ...}`` by its value, which must be of that type."""
    return {
        name: _unwrap_value(kind, name, value) if isinstance(value, Mapping) else value
        for name, value in attributes.items()
    }


def _unwrap_value(kind: str, name: str, wrapped: Mapping[str, Any]) -> Any:
    if set(wrapped) != {"type", "value"}:
        rule = f"the attribute `{name}` must be a value, or a dict of its `type` and `value`"
        got = f"a dict of {', '.join(map(repr, wrapped)) or 'nothing'}"
        raise ValueError(Refusal(kind, "", rule, got))
    if wrapped["type"] not in list(_TYPES):
        rule = f"the type of the attribute `{name}` must be {either(_TYPES)}"
        raise ValueError(Refusal(kind, "", rule, short(wrapped["type"])))
    _check_type(kind, name, wrapped["type"], wrapped["value"])
    return bool(wrapped["value"]) if wrapped["type"] == "bool" else wrapped["value"]


def check_attributes(
    kind: str, given: Mapping[str, Any], known: Mapping[str, Attribute]
) -> dict[str, Any]:
    """Check that the given attributes of a kind are known and valid, and add the defaults."""
    given = unwrap(kind, given)
    for name in given:
        if name not in known:
            rule = f"the attributes are {', '.join(known) or 'none'}"
            got = f"{name!r}{suggestion(name, tuple(known))}"
            raise ValueError(Refusal(kind, "", rule, got))
    values = {name: attribute.default for name, attribute in known.items()} | given
    for name, value in values.items():
        attribute = known[name]
        if value is NO_DEFAULT:
            raise ValueError(Refusal(kind, "", f"the attribute `{name}` is required", "none"))
        if value is attribute.default:
            continue
        _check_type(kind, name, attribute.type, value)
        if attribute.type == "f32":
            values[name] = float(value)  # of an int, JAX would make another type
        if attribute.choices and value not in attribute.choices:
            rule = f"the attribute `{name}` must be {either(map(repr, attribute.choices))}"
            got = f"{short(value)}{suggestion(value, attribute.choices)}"
            raise ValueError(Refusal(kind, "", rule, got))
    return values


def suggestion(got: object, known: Sequence[str]) -> str:
    """Name the nearest known name in any case, as the end of an error message."""
    folded = {name.lower(): name for name in known}
    near = get_close_matches(str(got).lower(), folded, n=1)
    return f"; did you mean {folded[near[0]]!r}?" if near else ""


def entries(value: object) -> list[Any] | None:
    """List the entries of a list, a tuple or a vector; None for any other value."""
    if isinstance(value, np.ndarray | Array) and not isinstance(value, Tracer):
        value = np.asarray(value).tolist()
    return list(value) if isinstance(value, list | tuple) else None


def is_int(value: Any) -> bool:
    """Whether a value is an int; bools and floats are not."""
    if isinstance(value, bool | np.bool_ | str):
        return False
    try:
        operator.index(value)
    except Exception:  # a user's __index__ may raise anything
        return False
    return True


def _is_bool(value: object) -> bool:
    return isinstance(value, bool | np.bool_) or (is_int(value) and value in (0, 1))


def _is_s64(value: Any) -> bool:
    return is_int(value) and -(2**63) <= value < 2**63


def _is_float(value: Any) -> bool:
    return isinstance(value, float | np.floating) or (is_int(value) and abs(value) < 2**128)


Check = Callable[[Any], bool]


def _check_all(check: Check) -> Check:
    def check_all(value: object) -> bool:
        items = entries(value)
        return items is not None and all(map(check, items))

    return check_all


#: type as in a dump -> the type in words, and whether a value is of that type
_TYPES: dict[str, tuple[str, Check]] = {
    "string": ("a string", lambda value: isinstance(value, str)),
    "bool": ("a bool, or 0 or 1 as in dumps,", _is_bool),
    "s64": ("an int", _is_s64),
    "s64[]": ("a list of ints", _check_all(_is_s64)),
    "f32": ("a number", _is_float),
    "f32[]": ("a list of numbers", _check_all(_is_float)),
}


def _check_type(kind: str, name: str, expected: str, value: object) -> None:
    words, is_of_type = _TYPES[expected]
    if not is_of_type(value):
        rule = f"the attribute `{name}` must be {words} ({expected})"
        raise TypeError(Refusal(kind, "", rule, shown(value)))
