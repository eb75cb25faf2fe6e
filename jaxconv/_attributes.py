"""Parse each user attribute once: its type, length, sign and spelling, or an error message.

Past these functions an attribute is an int, a tuple of ints or one of a few known
strings. A parsed value may key a cache; a raw one may not, since 1 == 1.0 == True.
"""

import operator
from collections.abc import Callable, Iterable, Sequence
from difflib import get_close_matches
from typing import Any

import jax
import numpy as np
from jax import lax
from jax.export import is_symbolic_dim

from jaxconv._jax_names import default_matmul_precision

Ints = int | Sequence[int]
Shape = tuple[Any, ...]  # of ints; the batch may be a symbolic dimension
ShapeLike = Sequence[int] | np.ndarray | jax.Array
PrecisionLike = str | lax.PrecisionLike
Precision = tuple[lax.Precision, lax.Precision] | lax.DotAlgorithmPreset

AUTO_PADS = {
    "none": "none",
    "valid": "valid",
    "same_upper": "same_upper",
    "same_lower": "same_lower",
    "notset": "none",
    "explicit": "none",
}


def axis_ints(op: str, name: str, value: Any, rank: int, least: int) -> tuple[int, ...]:
    """One int per spatial axis, from an int for all of them or a sequence; at least `least`."""
    if type(value) is int:  # by far the most frequent
        ints: tuple[int, ...] = (value,) * rank
    else:
        expected = f"an int or a sequence of ints, one for each of {rank} spatial axes"
        sequence = _sequence(op, name, value, expected)
        if sequence is None:
            ints = (_int(op, name, value, expected),) * rank
        else:
            ints = tuple(_int(op, name, v, expected) for v in sequence)
            if not ints and name in ("pads_begin", "pads_end"):
                ints = (0,) * rank
            if len(ints) != rank:
                raise ValueError(f"{op}: `{name}` must be {expected}; got {len(ints)}: {value!r}")
    if min(ints) < least:
        raise ValueError(f"{op}: `{name}` must be at least {least} on every axis; got {value!r}")
    return ints


def count(op: str, name: str, value: Any) -> int:
    """A single int of at least 1."""
    number = value if type(value) is int else _int(op, name, value, "an int")
    if number < 1:
        raise ValueError(f"{op}: `{name}` must be at least 1; got {value!r}")
    return number


def shape(op: str, name: str, value: Any, length: int, meaning: str) -> Shape:
    """A full shape, read from a tuple, a list or a concrete integer array."""
    expected = f"a sequence of {length} ints, {meaning}"
    sequence = _sequence(op, name, value, expected)
    if sequence is None:
        raise TypeError(f"{op}: `{name}` must be {expected}; got {value!r}")
    extents = tuple(v if is_symbolic_dim(v) else _int(op, name, v, expected) for v in sequence)
    if len(extents) != length:
        raise ValueError(f"{op}: `{name}` must be {expected}; got {len(extents)}: {extents}")
    return extents


def auto_pad(op: str, value: Any) -> str:
    """One of none, valid, same_upper, same_lower."""
    if value is None:
        return "none"
    return _spelling(op, "auto_pad", value, AUTO_PADS, str.lower)


def letters(op: str, name: str, value: Any, known: tuple[str, ...]) -> str:
    """One of the known formats, in any case."""
    return _spelling(op, name, value, {k: k for k in known}, str.upper)


def precision(op: str, value: Any) -> Precision:
    """What lax takes; None reads JAX's default now, so that derivatives made later agree."""
    asked = default_matmul_precision() if value is None else value
    try:
        if asked is None:
            return lax.Precision.DEFAULT, lax.Precision.DEFAULT
        if isinstance(asked, lax.DotAlgorithmPreset):
            return asked
        if isinstance(asked, str) and asked in lax.DotAlgorithmPreset.__members__:
            return lax.DotAlgorithmPreset[asked]
        if isinstance(asked, tuple | list):
            first, second = (lax.Precision(p) for p in asked)
            return first, second
        return lax.Precision(asked), lax.Precision(asked)
    except (ValueError, TypeError):
        raise ValueError(
            f"{op}: `precision` must be None, a jax.lax.Precision or its name "
            f"('default', 'high', 'highest'), a pair of these, or a "
            f"jax.lax.DotAlgorithmPreset; got {value!r}"
        ) from None


def _spelling(
    op: str, name: str, value: Any, known: dict[str, str], fold: Callable[[str], str]
) -> str:
    names = [repr(k) for k in known]
    expected = f"{', '.join(names[:-1])} or {names[-1]}"
    if not isinstance(value, str):
        raise TypeError(f"{op}: `{name}` must be a string, {expected}; got {value!r}")
    found = known.get(fold(value))
    if found is None:
        near = get_close_matches(fold(value), known, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"{op}: `{name}` must be {expected}; got {value!r}{hint}")
    return found


def _sequence(op: str, name: str, value: Any, expected: str) -> Iterable[Any] | None:
    """The entries of a sequence or of an integer vector; None for anything else."""
    if isinstance(value, jax.core.Tracer):
        _refuse_traced(op, name, value, expected)
    if isinstance(value, np.ndarray | jax.Array):
        array = np.asarray(value)
        if array.ndim > 1 or not np.issubdtype(array.dtype, np.integer):
            raise TypeError(
                f"{op}: `{name}` must be {expected}; "
                f"got an array of type {array.dtype} and shape {array.shape}"
            )
        return array.tolist() if array.ndim else None
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return value
    return None


def _int(op: str, name: str, value: Any, expected: str) -> int:
    """`value` as an int; bools and floats are none."""
    if type(value) is int:
        return value
    if isinstance(value, jax.core.Tracer):
        _refuse_traced(op, name, value, expected)
    if not isinstance(value, bool | np.bool_):
        try:
            return operator.index(value)
        except TypeError:
            pass
    raise TypeError(f"{op}: `{name}` must be {expected}; got {value!r} ({type(value).__name__})")


def _refuse_traced(op: str, name: str, value: Any, expected: str) -> None:
    raise TypeError(
        f"{op}: `{name}` must be {expected}, known when the function is traced; got a traced "
        f"value of type {jax.typeof(value)}. Shapes must be static: pass Python ints or a "
        f"NumPy array, or name the argument in jax.jit's static_argnames"
    )
