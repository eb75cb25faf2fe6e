"""One dot: kernels of one tap, and windows that tile the fine tensor.

A dot runs at the machine's peak. In 16 bits it does so only if its result is float32 and the left
operand contracts its last axis: other orientations take up to 20 times as long. Data is
channels-last. Only taps and channels are merged, which nobody shards, so a sharded batch stays
sharded. Groups are the batch of the dot.
"""

import math
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxconv._base.geometry import Geometry
from jaxconv._base.typing import DType, Shape
from jaxconv._lowering.form import Form
from jaxconv._lowering.forms import window
from jaxconv._lowering.forms.blocks import by_group, divisor
from jaxconv._lowering.problem import Numerics


@by_group()
def to_coarse(fine: Array, kernel: Array, *, geometry: Geometry, numerics: Numerics) -> Array:
    """Each window is a row of patches."""
    weights = kernel.reshape(-1, kernel.shape[-1])
    return by_weights(_patches(fine, geometry), weights, numerics)


@by_group()
def to_fine(coarse: Array, kernel: Array, *, geometry: Geometry, numerics: Numerics) -> Array:
    """Each coarse element makes a window of its own."""
    weights = kernel.reshape(-1, kernel.shape[-1])
    windows = _dot(coarse, weights, ((geometry.rank + 1,), (1,)), numerics)
    return _unpatched(windows, kernel.shape[-2], geometry)


@by_group()
def to_kernel(fine: Array, coarse: Array, *, geometry: Geometry, numerics: Numerics) -> Array:
    """One dot over the batch and all coarse pixels."""
    out = by_rows(_patches(fine, geometry), coarse, numerics)
    return out.reshape(*(a.kernel for a in geometry.axes), fine.shape[-1], coarse.shape[-1])


FORM = Form(
    "dot",
    {"coarse": to_coarse, "fine": to_fine, "kernel": to_kernel},
    cannot=lambda p: not (p.pointwise or p.tiles),
    contender=True,
)

#: Rows of a part, and most parts. XLA:CPU splits a dot over cores by its sums, not by its rows: few
#: sums stay on one core.
ROWS, PARTS = 4096, 4


def parts_to_kernel(fine: Array, coarse: Array, *, geometry: Geometry, numerics: Numerics) -> Array:
    """The sum of a few dots side by side, each over a part of the rows."""
    rows = math.prod(coarse.shape[:-1])
    parts = divisor(rows, min(max(rows // ROWS, 2), PARTS))
    operands = (x.reshape(parts, -1, x.shape[-1]) for x in (_patches(fine, geometry), coarse))
    out = jax.vmap(partial(by_rows, numerics=numerics))(*operands).sum(0)
    return out.reshape(*(1 for _ in geometry.axes), *out.shape)


IN_PARTS = Form(
    "dot in parts",
    {"kernel": parts_to_kernel},
    cannot=lambda p: not p.pointwise or not p.dense,
    gathers=True,
)


def _patches(fine: Array, geometry: Geometry) -> Array:
    """The windows, which do not overlap, as (N, coarse extents, taps * C)."""
    if all(a.kernel == 1 for a in geometry.axes):
        return window.read_tap((0,) * geometry.rank, window.pad_fine(fine, geometry), geometry)
    fine = window.pad_fine(fine, geometry)  # coarse * kernel pixels an axis, since kernel == stride
    extents = [n for a in geometry.axes for n in (a.coarse, a.kernel)]
    batch, channels = fine.shape[0], fine.shape[-1]
    split = fine.reshape(batch, *extents, channels).transpose(_outside_in(geometry))
    taps = math.prod(a.kernel for a in geometry.axes)
    return split.reshape(batch, *(a.coarse for a in geometry.axes), taps * channels)


def _unpatched(windows: Array, channels: int, geometry: Geometry) -> Array:
    """Lay the windows (N, coarse extents, taps * C) side by side, and crop."""
    batch = windows.shape[0]
    if any(a.kernel > 1 for a in geometry.axes):
        split = windows.reshape(
            batch,
            *(a.coarse for a in geometry.axes),
            *(a.kernel for a in geometry.axes),
            channels,
        )
        order = _outside_in(geometry)
        inverse = sorted(range(len(order)), key=order.__getitem__)
        windows = split.transpose(inverse)
    tiled = windows.reshape(batch, *(a.coarse * a.kernel for a in geometry.axes), channels)
    crop = [(-a.pad_low, -a.pad_high, a.stride - 1 if a.kernel == 1 else 0) for a in geometry.axes]
    return lax.pad(tiled, jnp.zeros((), tiled.dtype), [(0, 0, 0), *crop, (0, 0, 0)])


def _outside_in(geometry: Geometry) -> list[int]:
    """From (N, c1, k1, c2, k2, ..., C) to (N, c1, c2, ..., k1, k2, ..., C)."""
    rank = geometry.rank
    return [0, *range(1, 2 * rank, 2), *range(2, 2 * rank + 1, 2), 2 * rank + 1]


# The dots, for other forms too.

_BITS = {2: jnp.uint16, 4: jnp.uint32, 8: jnp.uint64}


def by_weights(rows: Array, weights: Array, numerics: Numerics) -> Array:
    """(N, X, i) by (i, o) to (N, X, o)."""
    return _dot(rows, weights, ((rows.ndim - 1,), (0,)), numerics)


def by_rows(fine: Array, coarse: Array, numerics: Numerics) -> Array:
    """(N, X, i) by (N, X, o) to (i, o), the narrower one on the left."""
    swap = _narrower_is_coarse(fine.shape, coarse.shape)
    one, other = (coarse, fine) if swap else (fine, coarse)
    if swap:
        numerics = replace(numerics, precision=numerics.precision[::-1])
    if one.dtype.itemsize == 2:
        out = first_by_rows(_channels_first(one), other, numerics)
    else:
        rows = tuple(range(one.ndim - 1))
        out = _dot(one, other, (rows, rows), numerics)
    # Without the barrier XLA turns a transposed dot into one of swapped operands.
    return lax.optimization_barrier(out).T if swap else out


def first_by_rows(fine: Array, coarse: Array, numerics: Numerics) -> Array:
    """(i, N, X) by (N, X, o) to (i, o)."""
    rows = tuple(range(coarse.ndim - 1))
    return _dot(fine, coarse, (tuple(axis + 1 for axis in rows), rows), numerics)


def _dot(
    one: Array, other: Array, summed: tuple[tuple[int, ...], tuple[int, ...]], numerics: Numerics
) -> Array:
    """The dot over the axes `summed` of each, in the type of sums."""
    return lax.dot_general(
        one,
        other,
        (summed, ((), ())),
        precision=numerics.precision,
        preferred_element_type=numerics.sums,
    )


def _narrower_is_coarse(fine: Shape, coarse: Shape) -> bool:
    """Whether it moves less to transpose the coarse tensor and the result than the fine tensor."""
    i, o = fine[-1], coarse[-1]
    if not isinstance(fine[0], int):  # a symbolic batch: many rows
        return bool(o < i)
    count = math.prod(fine[:-1])
    return bool(count * o + i * o < count * i)


def _channels_first(x: Array) -> Array:
    """Transpose as integers: XLA would fold a transposition of floats into the dot."""
    return as_numbers(jnp.moveaxis(as_bits(x), -1, 0), x.dtype)


def movable(x: Array) -> Array:
    """16-bit floats as integers: XLA moves such floats by way of float32."""
    return as_bits(x) if x.dtype.itemsize == 2 else x


def as_bits(x: Array) -> Array:
    """Floats as integers of the same size."""
    return lax.bitcast_convert_type(x, _BITS[x.dtype.itemsize])


def as_numbers(x: Array, dtype: DType) -> Array:
    """The reverse of `as_bits` and of `movable`."""
    return x if x.dtype == dtype else lax.bitcast_convert_type(x, dtype)
