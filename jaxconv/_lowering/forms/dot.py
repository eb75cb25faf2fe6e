"""One dot: kernels of one tap, and windows that tile the fine tensor.

A dot runs at the machine's peak; in 16 bits, only if the result is float32 and the left operand
contracts its last axis: other orientations take up to 20 times as long. Data is channels-last. Only
taps and channels are merged, which nobody shards, so a sharded batch stays sharded. Groups are the
batch of the dot.
"""

import math
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxconv._base.geometry import Geometry
from jaxconv._base.reshape import pad, transpose
from jaxconv._base.typing import Shape
from jaxconv._lowering.form import Call, Form
from jaxconv._lowering.forms import bits, window
from jaxconv._lowering.forms.blocks import find_divisor, map_groups
from jaxconv._lowering.problem import Numerics


@map_groups()
def to_coarse(fine: Array, kernel: Array, call: Call) -> Array:
    """Multiply patches, one row for each window, by the weights."""
    geometry, numerics = call.geometry, call.numerics
    weights = kernel.reshape(-1, kernel.shape[-1])
    return contract_channels(_read_patches(fine, geometry), weights, numerics)


@map_groups()
def to_fine(coarse: Array, kernel: Array, call: Call) -> Array:
    """Multiply each coarse pixel by the weights: the product is a window."""
    geometry, numerics = call.geometry, call.numerics
    weights = kernel.reshape(-1, kernel.shape[-1])
    windows = contract_last(coarse, weights, numerics)
    return _lay_patches(windows, kernel.shape[-2], geometry)


@map_groups()
def to_kernel(fine: Array, coarse: Array, call: Call) -> Array:
    """Multiply patches by the coarse tensor, over the batch and all coarse pixels."""
    geometry, numerics = call.geometry, call.numerics
    out = contract_rows(_read_patches(fine, geometry), coarse, numerics)
    return out.reshape(*(a.kernel for a in geometry.axes), fine.shape[-1], coarse.shape[-1])


FORM = Form(
    "dot",
    {"coarse": to_coarse, "fine": to_fine, "kernel": to_kernel},
    cannot=lambda p: not (p.pointwise or p.tiles),
    contender=True,
)

#: Rows of a part, and parts. XLA:CPU splits a dot over cores by its sums, not by its rows: few sums
#: stay on one core.
MIN_PART_ROWS, MAX_PARTS = 4096, 4


def parts_to_kernel(fine: Array, coarse: Array, call: Call) -> Array:
    """Sum a few dots side by side, each over a part of the rows."""
    geometry, numerics = call.geometry, call.numerics
    rows = math.prod(coarse.shape[:-1])
    parts = find_divisor(rows, min(max(rows // MIN_PART_ROWS, 2), MAX_PARTS))
    operands = (x.reshape(parts, -1, x.shape[-1]) for x in (_read_patches(fine, geometry), coarse))
    out = jax.vmap(partial(contract_rows, numerics=numerics))(*operands).sum(0)
    return out.reshape(*(1 for _ in geometry.axes), *out.shape)


IN_PARTS = Form(
    "dot in parts",
    {"kernel": parts_to_kernel},
    cannot=lambda p: not p.pointwise or not p.dense,
    gathers=True,
)


def _read_patches(fine: Array, geometry: Geometry) -> Array:
    """Read the windows, which do not overlap, as (N, coarse extents, taps * C)."""
    if all(a.kernel == 1 for a in geometry.axes):
        return window.read_tap((0,) * geometry.rank, window.pad_fine(fine, geometry), geometry)
    fine = window.pad_fine(fine, geometry)  # coarse * kernel pixels an axis, since kernel == stride
    extents = [n for a in geometry.axes for n in (a.coarse, a.kernel)]
    batch, channels = fine.shape[0], fine.shape[-1]
    split = transpose(fine.reshape(batch, *extents, channels), _patch_order(geometry))
    taps = math.prod(a.kernel for a in geometry.axes)
    return split.reshape(batch, *(a.coarse for a in geometry.axes), taps * channels)


def _lay_patches(windows: Array, channels: int, geometry: Geometry) -> Array:
    """Lay the windows (N, coarse extents, taps * C) side by side, and crop."""
    batch = windows.shape[0]
    if any(a.kernel > 1 for a in geometry.axes):
        split = windows.reshape(
            batch,
            *(a.coarse for a in geometry.axes),
            *(a.kernel for a in geometry.axes),
            channels,
        )
        order = _patch_order(geometry)
        inverse = sorted(range(len(order)), key=order.__getitem__)
        windows = transpose(split, inverse)
    tiled = windows.reshape(batch, *(a.coarse * a.kernel for a in geometry.axes), channels)
    crop = [(-a.pad_low, -a.pad_high, a.stride - 1 if a.kernel == 1 else 0) for a in geometry.axes]
    return pad(tiled, dict(enumerate(crop, 1)))


def _patch_order(geometry: Geometry) -> list[int]:
    """The order of axes from (N, c1, k1, c2, k2, ..., C) to (N, c1, c2, ..., k1, k2, ..., C)."""
    rank = geometry.rank
    return [0, *range(1, 2 * rank, 2), *range(2, 2 * rank + 1, 2), 2 * rank + 1]


# The dots, for other forms too.


def contract_channels(rows: Array, weights: Array, numerics: Numerics) -> Array:
    """Contract (N, X, i) with (i, o) to (N, X, o)."""
    return _dot(rows, weights, ((rows.ndim - 1,), (0,)), numerics)


def contract_last(rows: Array, weights: Array, numerics: Numerics) -> Array:
    """Contract (N, X, i) with (o, i) to (N, X, o)."""
    return _dot(rows, weights, ((rows.ndim - 1,), (1,)), numerics)


def contract_rows(fine: Array, coarse: Array, numerics: Numerics) -> Array:
    """Contract (N, X, i) with (N, X, o) to (i, o), the narrower operand on the left."""
    swap = _narrower_is_coarse(fine.shape, coarse.shape)
    one, other = (coarse, fine) if swap else (fine, coarse)
    if swap:
        numerics = replace(numerics, precision=numerics.precision[::-1])
    if one.dtype.itemsize == 2:
        out = contract_first_rows(_move_channels_first(one), other, numerics)
    else:
        rows = tuple(range(one.ndim - 1))
        out = _dot(one, other, (rows, rows), numerics)
    # Without the barrier XLA turns a transposed dot into a dot of swapped operands.
    return lax.optimization_barrier(out).T if swap else out


def contract_first_rows(fine: Array, coarse: Array, numerics: Numerics) -> Array:
    """Contract (i, N, X) with (N, X, o) to (i, o)."""
    rows = tuple(range(coarse.ndim - 1))
    return _dot(fine, coarse, (tuple(axis + 1 for axis in rows), rows), numerics)


def _dot(
    one: Array, other: Array, summed: tuple[tuple[int, ...], tuple[int, ...]], numerics: Numerics
) -> Array:
    """Compute the dot over the axes `summed` of the operands, in the type of sums."""
    return lax.dot_general(
        one,
        other,
        (summed, ((), ())),
        precision=numerics.precision,
        preferred_element_type=numerics.sums,
    )


def _narrower_is_coarse(fine: Shape, coarse: Shape) -> bool:
    """Whether to transpose the coarse tensor and the result moves less than the fine tensor."""
    i, o = fine[-1], coarse[-1]
    if not isinstance(fine[0], int):  # a symbolic batch: many rows
        return bool(o < i)
    count = math.prod(fine[:-1])
    return bool(count * o + i * o < count * i)


def _move_channels_first(x: Array) -> Array:
    """Transpose as integers: XLA would fold a transposition of floats into the dot."""
    return bits.to_floats(jnp.moveaxis(bits.of_floats(x), -1, 0), x.dtype)
