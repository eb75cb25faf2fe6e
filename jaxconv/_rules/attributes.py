"""Parse each user attribute once: its type, length, sign and spelling, or an error message.

Past these functions an attribute is an int, a tuple of ints, one of a few known strings, a pair of
precisions or an `Activation`. A parsed value may key a cache; a raw value may not, since
1 == 1.0 == True.
"""

import operator
import re
from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any, NoReturn

import jax
import numpy as np
from jax import lax
from jax.export import is_symbolic_dim

from jaxconv._base.finish import ALPHAS, FUNCTIONS, Activation
from jaxconv._base.jax_names import default_matmul_precision
from jaxconv._base.messages import Refusal, either, short, shown
from jaxconv._base.typing import Precision, Shape

AUTO_PADS = {mode: mode for mode in ("none", "valid", "same_upper", "same_lower")}
AUTO_PADS |= {"notset": "none", "explicit": "none"}

#: The largest finite float32.
MAX_ALPHA = float(np.finfo(np.float32).max)

#: oneDNN says Swish.
ACTIVATIONS = {**{name: name for name in FUNCTIONS}, "swish": "silu"}

#: The attributes with an int for each axis, and the least value of each attribute.
MIN_VALUES = {"strides": 1, "pads_begin": 0, "pads_end": 0, "dilations": 1, "output_padding": 0}

#: More than a tensor can need, and no product of two such ints exceeds 64 bits.
MAX_INT = 2**31 - 1

#: Elements of a tensor: more than any memory holds, far below the 2**63 bytes that XLA counts.
MAX_ELEMENTS = 2**48


def axis_ints(op: str, name: str, value: object, rank: int, least: int) -> tuple[int, ...]:
    """Parse an int for all spatial axes, or a sequence of an int for each; at least `least`."""
    ints = (value,) * rank if type(value) is int else _read_each_axis(op, name, value, rank)
    if min(ints) < least or max(ints) > MAX_INT:
        bound = f"at least {least}" if min(ints) < least else f"at most {MAX_INT}"
        raise ValueError(Refusal(op, name, f"must be {bound} on every axis", short(value)))
    return ints


def count(op: str, name: str, value: object) -> int:
    """Parse a single int of at least 1."""
    number = _read_int(op, name, value, "an int")
    if not 1 <= number <= MAX_INT:
        bound = "at least 1" if number < 1 else f"at most {MAX_INT}"
        raise ValueError(Refusal(op, name, f"must be {bound}", short(number)))
    return number


def shape(op: str, name: str, value: object, length: int, meaning: str) -> Shape:
    """Parse a full shape from a tuple, a list or a concrete integer array."""
    expected = f"a sequence of {length} ints, {meaning}"
    sequence = _read_sequence(op, name, value, expected)
    if sequence is None:
        raise TypeError(Refusal(op, name, f"must be {expected}", shown(value)))
    _check_length(op, name, sequence, length, expected)
    extents = tuple(v if is_symbolic_dim(v) else _read_int(op, name, v, expected) for v in sequence)
    if any(isinstance(v, int) and abs(v) > MAX_ELEMENTS for v in extents):
        raise ValueError(Refusal(op, name, "must have extents of at most 2**48", short(extents)))
    return extents


def auto_pad(op: str, value: object) -> str:
    """Parse a mode: none, valid, same_upper or same_lower."""
    if value is None:
        return "none"
    return _find_spelling(op, "auto_pad", value, AUTO_PADS, str.lower)


def letters(op: str, name: str, value: object, known: tuple[str, ...]) -> str:
    """Parse the name of a known format, in any case."""
    return _find_spelling(op, name, value, {k: k for k in known}, str.upper)


def precision(op: str, value: object) -> Precision:
    """Parse a precision for each operand; None reads JAX's default, for the derivatives too."""
    if value is None:
        value = default_matmul_precision()
        # JAX's default may be an algorithm for dots, which lax's convolutions ignore as well.
        if isinstance(value, str) and value in lax.DotAlgorithmPreset.__members__:
            value = None
    pair = value if isinstance(value, tuple | list) else (value, value)
    try:
        if any(not isinstance(p, str | lax.Precision | None) for p in pair):
            raise TypeError
        first, second = (lax.Precision(p) for p in pair)
    except Exception:  # a list may raise anything
        names = "('default', 'high' or 'highest')"
        rule = f"must be None, a jax.lax.Precision or its name {names}, or a pair of these"
        raise ValueError(Refusal(op, "precision", rule, shown(value))) from None
    return first, second


def activation(op: str, value: object, alpha: object) -> Activation | None:
    """Parse the name of an activation, and its parameter."""
    if value is None:
        name = None
    elif isinstance(value, str) and value.lower() == "gelu":
        default = "the approximation that jax.nn.gelu computes by default"
        rule = f"must be 'gelu_erf', the definition, or 'gelu_tanh', {default}"
        raise ValueError(Refusal(op, "activation", rule, short(value)))
    elif callable(value):
        rule, got = f"must be {either(map(repr, ACTIVATIONS))}", f"a function, {short(value)}"
        remedy = "Call a function of your own on the result"
        raise TypeError(Refusal(op, "activation", rule, got, remedy))
    else:
        name = _find_spelling(op, "activation", value, ACTIVATIONS, str.lower)
    if name not in ALPHAS:
        if alpha is not None:
            rule = f"must be None unless `activation` is {either(map(repr, ALPHAS))}"
            raise ValueError(Refusal(op, "alpha", rule, f"{short(alpha)} for {value!r}"))
        return None if name is None else Activation(name)
    alpha = ALPHAS[name] if alpha is None else alpha
    if alpha is None:
        rule = f"must be given, the slope of {name!r} below 0"
        raise TypeError(Refusal(op, "alpha", rule, "None"))
    if isinstance(alpha, bool) or not isinstance(alpha, int | float | np.integer | np.floating):
        rule = f"of {name!r} must be a Python number"
        raise TypeError(Refusal(op, "alpha", rule, shown(alpha)))
    alpha = alpha if isinstance(alpha, int) else float(alpha)
    if not 0 <= alpha <= MAX_ALPHA:  # before an int of any length becomes a float
        raise ValueError(Refusal(op, "alpha", "must be finite and at least 0", short(alpha)))
    return Activation(name, float(alpha))


def _find_spelling(
    op: str, name: str, value: object, known: dict[str, str], fold: Callable[[str], str]
) -> str:
    expected = either(map(repr, known))
    if not isinstance(value, str):
        raise TypeError(Refusal(op, name, f"must be {expected}", shown(value)))
    found = known.get(fold(value)) if value.isascii() else None  # the capital of a dotless i is I
    if found is None:
        general = re.sub("[DHW]+", "X", fold(value))  # others write NHWC and HWIO
        near = get_close_matches(general, known, n=1, cutoff=0.5) if len(value) < 40 else []
        hint = f"; did you mean {near[0]!r}?" if near else ""
        raise ValueError(Refusal(op, name, f"must be {expected}", f"{short(value)}{hint}"))
    return found


def _read_each_axis(op: str, name: str, value: object, rank: int) -> tuple[int, ...]:
    expected = f"an int or a sequence of {rank} int{'s'[: rank - 1]}, one per spatial axis"
    sequence = _read_sequence(op, name, value, expected)
    if sequence is None:
        return (_read_int(op, name, value, expected),) * rank
    if not sequence and name in ("pads_begin", "pads_end"):
        return (0,) * rank
    _check_length(op, name, sequence, rank, expected)
    return tuple(_read_int(op, name, v, expected) for v in sequence)


def _check_length(op: str, name: str, found: Sequence[Any], length: int, expected: str) -> None:
    if len(found) != length:
        got = f"{short(tuple(found))}, of length {len(found)}"
        raise ValueError(Refusal(op, name, f"must be {expected}", got))


def _read_sequence(op: str, name: str, value: object, expected: str) -> Sequence[Any] | None:
    """Read the entries of a sequence or of an integer vector; None for any other value."""
    if isinstance(value, jax.core.Tracer):
        _refuse_traced(op, name, value, expected)
    if isinstance(value, np.ndarray | jax.Array):
        try:
            array = np.asarray(value)
        except Exception as error:  # from a deleted array, say
            raise _unreadable_error(op, name, value, expected) from error
        if array.ndim > 1 or not np.issubdtype(array.dtype, np.integer):
            got = f"an array of type {array.dtype} and shape {array.shape}"
            raise TypeError(Refusal(op, name, f"must be {expected}", got))
        return array.tolist() if array.ndim else None
    if type(value) is tuple or type(value) is list:
        return value
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        try:
            return list(value)
        except Exception as error:
            raise _unreadable_error(op, name, value, expected) from error
    return None


def _read_int(op: str, name: str, value: Any, expected: str) -> int:
    """Read `value` as an int; bools and floats are not ints."""
    if type(value) is int:
        return value
    if isinstance(value, jax.core.Tracer):
        _refuse_traced(op, name, value, expected)
    if not isinstance(value, bool | np.bool_):
        try:
            return operator.index(value)
        except TypeError:
            pass
        except Exception as error:  # from a user's __index__, or a deleted array
            raise _unreadable_error(op, name, value, expected) from error
    raise TypeError(Refusal(op, name, f"must be {expected}", shown(value)))


def _unreadable_error(op: str, name: str, value: object, expected: str) -> TypeError:
    got = f"{shown(value)}, which cannot be read"
    return TypeError(Refusal(op, name, f"must be {expected}", got))


def _refuse_traced(op: str, name: str, value: object, expected: str) -> NoReturn:
    rule = f"must be {expected}, known when the function is traced"
    remedy = (
        "Shapes and attributes must be static: pass Python ints or a NumPy array, or name the "
        "argument in jax.jit's static_argnames"
    )
    got = f"a traced value of type {jax.typeof(value)}"
    raise TypeError(Refusal(op, name, rule, got, remedy))
