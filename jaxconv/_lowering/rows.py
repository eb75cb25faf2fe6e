"""The two dots that convolutions are spelled by, in the forms that XLA:CPU runs at its peak.

Data is channels-last, of one group; all its other axes are rows. What is peculiar here is measured:
a dot of 16-bit operands is fast if it gives a float32 result and the left operand
contracts its last axis, and elsewhere up to 20 times slower.
"""

import math
from typing import Any

import jax.numpy as jnp
from jax import lax

from jaxconv._attributes import Precision
from jaxconv._dtypes import DType

_BITS = {2: jnp.uint16, 4: jnp.uint32, 8: jnp.uint64}


def by_weights(rows: Any, weights: Any, precision: Precision, dtype: DType) -> Any:
    """(N, X, i) by (i, o) to (N, X, o)."""
    return lax.dot_general(
        rows,
        weights,
        (((rows.ndim - 1,), (0,)), ((), ())),
        precision=precision,
        preferred_element_type=dtype,
    )


def by_rows(fine: Any, coarse: Any, precision: Precision, dtype: DType) -> Any:
    """(N, X, i) by (N, X, o) to (i, o)."""
    swap = _swapped(fine.shape, coarse.shape)
    one, other = (coarse, fine) if swap else (fine, coarse)
    precision = precision[::-1] if swap else precision
    out = first_by_rows(_channels_first(one), other, precision, dtype)
    # Without the barrier XLA turns a transposed dot into one of swapped operands.
    return lax.optimization_barrier(out).T if swap else out


def first_by_rows(fine: Any, coarse: Any, precision: Precision, dtype: DType) -> Any:
    """(i, N, X) by (N, X, o) to (i, o)."""
    rows = range(coarse.ndim - 1)
    return lax.dot_general(
        fine,
        coarse,
        ((tuple(axis + 1 for axis in rows), tuple(rows)), ((), ())),
        precision=precision,
        preferred_element_type=dtype,
    )


def _swapped(fine: tuple[Any, ...], coarse: tuple[Any, ...]) -> bool:
    """Whether transposing the coarse tensor, and then the result, moves less than the fine one."""
    i, o = fine[-1], coarse[-1]
    if not isinstance(fine[0], int):  # a symbolic batch: many rows
        return bool(o < i)
    count = math.prod(fine[:-1])
    return bool(count * o + i * o < count * i)


def _channels_first(x: Any) -> Any:
    """Transposed as bits: XLA would fold a transposition of numbers into the dot."""
    return as_numbers(jnp.moveaxis(as_bits(x), -1, 0), x.dtype)


def movable(x: Any) -> Any:
    """What XLA moves as it is: 16 bits as integers, since as numbers they go through float32."""
    return as_bits(x) if x.dtype.itemsize == 2 else x


def as_bits(x: Any) -> Any:
    """Numbers as integers of their size."""
    return lax.bitcast_convert_type(x, _BITS[x.dtype.itemsize])


def as_numbers(x: Any, dtype: DType) -> Any:
    """The reverse, of what `movable` left as it is too."""
    return x if x.dtype == dtype else lax.bitcast_convert_type(x, dtype)
