"""Dots: one, one in parts, one for each tap, or one for each image.

A dot runs at the machine's peak; in 16 bits, only if the result is float32 and the left operand
contracts its last axis: other orientations take up to 20 times as long.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial, reduce

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxconv._base.geometry import Geometry, reorder
from jaxconv._base.reshape import merge_groups, pad, replace_axes, split_groups, transpose
from jaxconv._base.typing import Shape
from jaxconv._lowering.forms import window
from jaxconv._lowering.forms.blocks import as_floats, as_integers, find_divisor, map_groups
from jaxconv._lowering.problem import Call, Form, Numerics

# One dot, of kernels of one tap, and of windows that tile the fine tensor. Data is channels-last.
# Only taps and channels are merged: a batch that is split over devices stays split, and channels
# would be gathered. Groups are the batch of the dot.


@map_groups()
def to_coarse(fine: Array, kernel: Array, call: Call) -> Array:
    """Multiply patches, one row for each window, by the weights."""
    weights = kernel.reshape(-1, kernel.shape[-1])
    return contract_channels(_read_patches(fine, call.geometry), weights, call.numerics)


@map_groups()
def to_fine(coarse: Array, kernel: Array, call: Call) -> Array:
    """Multiply each coarse pixel by the weights: the product is a window."""
    windows = contract_last(coarse, kernel.reshape(-1, kernel.shape[-1]), call.numerics)
    return _lay_patches(windows, kernel.shape[-2], call.geometry)


@map_groups()
def to_kernel(fine: Array, coarse: Array, call: Call) -> Array:
    """Multiply patches by the coarse tensor, over the batch and all coarse pixels."""
    out = contract_rows(_read_patches(fine, call.geometry), coarse, call.numerics)
    return out.reshape(*(a.kernel for a in call.geometry.axes), fine.shape[-1], coarse.shape[-1])


ONE = Form(
    "dot",
    {"coarse": to_coarse, "fine": to_fine, "kernel": to_kernel},
    cannot=lambda p: not (p.pointwise or p.tiles),
    contender=True,
)

#: Rows that are worth a part. XLA:CPU splits a dot over cores by its sums, not by its rows: few
#: sums stay on one core.
MIN_PART_ROWS = 4096

#: Fewest and most parts.
MIN_PARTS, MAX_PARTS = 2, 4


def parts_to_kernel(fine: Array, coarse: Array, call: Call) -> Array:
    """Sum a few dots side by side, each over a part of the rows."""
    parts = _count_parts(math.prod(coarse.shape[:-1]))
    operands = _read_pixels(fine, call.geometry), coarse
    of_parts = (x.reshape(parts, -1, x.shape[-1]) for x in operands)
    out = jax.vmap(partial(contract_rows, numerics=call.numerics))(*of_parts).sum(0)
    return out.reshape(*(1 for _ in call.geometry.axes), *out.shape)


def _count_parts(rows: float) -> int:
    """Count the parts: a divisor of the rows."""
    rows = int(rows)
    return find_divisor(rows, min(max(rows // MIN_PART_ROWS, MIN_PARTS), MAX_PARTS))


IN_PARTS = Form(
    "dot in parts",
    {"kernel": parts_to_kernel},
    cannot=lambda p: not (p.pointwise and p.dense and p.counted and _count_parts(p.pixels) > 1),
    gathers=True,
)


def _read_patches(fine: Array, geometry: Geometry) -> Array:
    """Read the windows, which do not overlap, as (N, coarse extents, taps * C)."""
    if all(a.kernel == 1 for a in geometry.axes):
        return _read_pixels(fine, geometry)
    fine = window.pad_fine(fine, geometry)  # coarse * kernel pixels an axis, since kernel == stride
    extents = [n for a in geometry.axes for n in (a.coarse, a.kernel)]
    batch, channels = fine.shape[0], fine.shape[-1]
    split = transpose(fine.reshape(batch, *extents, channels), _patch_order(geometry))
    taps = math.prod(a.kernel for a in geometry.axes)
    return split.reshape(batch, *(a.coarse for a in geometry.axes), taps * channels)


def _read_pixels(fine: Array, geometry: Geometry) -> Array:
    """Read the pixels of the one tap: a pixel for each coarse pixel."""
    return window.read_tap((0,) * geometry.rank, window.pad_fine(fine, geometry), geometry)


def _lay_patches(windows: Array, channels: int, geometry: Geometry) -> Array:
    """Lay the windows (N, coarse extents, taps * C) side by side, and crop."""
    batch = windows.shape[0]
    if any(a.kernel > 1 for a in geometry.axes):
        coarse, taps = ([getattr(a, slot) for a in geometry.axes] for slot in ("coarse", "kernel"))
        order = _patch_order(geometry)
        inverse = sorted(range(len(order)), key=order.__getitem__)
        windows = transpose(windows.reshape(batch, *coarse, *taps, channels), inverse)
    tiled = windows.reshape(batch, *(a.coarse * a.kernel for a in geometry.axes), channels)
    crop = [(-a.pad_low, -a.pad_high, a.stride - 1 if a.kernel == 1 else 0) for a in geometry.axes]
    return pad(tiled, dict(enumerate(crop, 1)))


def _patch_order(geometry: Geometry) -> list[int]:
    """The order of axes from (N, c1, k1, c2, k2, ..., C) to (N, c1, c2, ..., k1, k2, ..., C)."""
    rank = geometry.rank
    return [0, *range(1, 2 * rank, 2), *range(2, 2 * rank + 1, 2), 2 * rank + 1]


# The one dot, for other forms too.

#: Axes of both operands.
Pairs = tuple[tuple[int, ...], tuple[int, ...]]


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
    one: Array, other: Array, summed: Pairs, numerics: Numerics, batch: Pairs = ((), ())
) -> Array:
    """Compute the dot over the axes `summed` of the operands, in the type of sums."""
    return lax.dot_general(
        one,
        other,
        (summed, batch),
        precision=numerics.precision,
        preferred_element_type=numerics.sums,
    )


def _narrower_is_coarse(fine: Shape, coarse: Shape) -> bool:
    """Whether to transpose coarse and the result moves fewer elements than to transpose fine."""
    i, o = fine[-1], coarse[-1]
    if not isinstance(fine[0], int):  # a symbolic batch: many rows
        return bool(o < i)
    count = math.prod(fine[:-1])
    return bool(count * o + i * o < count * i)


def _move_channels_first(x: Array) -> Array:
    """Transpose as integers: XLA would fold a transposition of floats into the dot."""
    return as_floats(jnp.moveaxis(as_integers(x), -1, 0), x.dtype)


# A dot for each tap, in any layouts, where no convolution will do: on GPU, where cuDNN lacks the
# convolution; on CPU, where a grouped convolution gathers a sharded batch (openxla/xla#47945).
# Groups are a batch axis of the dots. The sums over taps are in a wide type, for which a dot does
# not convert its operands.


def taps_to_coarse(fine: Array, kernel: Array, call: Call) -> Array:
    """Sum over taps the pixels that a tap reads times its weights."""
    geometry, numerics = call.geometry, call.numerics
    groups, data, layout = geometry.groups, geometry.data, geometry.kernel
    kernel = reorder(kernel, layout.spec, geometry.canonical().kernel.spec)
    kernel = split_groups(kernel, groups)  # taps, i, g, o
    summed, batch = ((data.channel + 1,), (0,)), ((data.channel,), (1,))
    products = [
        _dot(split_groups(read, groups, data.channel), kernel[tap], summed, numerics, batch)
        for tap, read in _read_each_tap(fine, geometry)
    ]
    out = jnp.moveaxis(reduce(lax.add, products), (0, -1), (data.channel, data.channel + 1))
    return replace_axes(out, data.channel, 2, (kernel.shape[-2] * kernel.shape[-1],))


def taps_to_kernel(fine: Array, coarse: Array, call: Call) -> Array:
    """Multiply the pixels that each tap reads by the coarse tensor, summed over all pixels."""
    geometry, numerics = call.geometry, call.numerics
    groups, data, layout = geometry.groups, geometry.data, geometry.kernel
    coarse = split_groups(coarse, groups, data.channel)
    summed = tuple(a + (a > data.channel) for a in (data.batch, *data.spatial))
    pixels, batch = (summed, summed), ((data.channel,), (data.channel,))
    products = [
        _dot(split_groups(read, groups, data.channel), coarse, pixels, numerics, batch)
        for _, read in _read_each_tap(fine, geometry)
    ]
    out = jnp.stack(products)  # taps, g, i, o
    extents = (a.kernel for a in geometry.axes)
    out = jnp.swapaxes(out, 1, 2).reshape(*extents, out.shape[2], -1)
    return reorder(out, geometry.canonical().kernel.spec, layout.spec)


def _read_each_tap(fine: Array, geometry: Geometry) -> Iterator[tuple[window.Tap, Array]]:
    """Yield each tap, and the pixels of the fine tensor that the tap reads."""
    read_by = window.shift_fine  # of data that is split over devices, these exchange halos only
    if any(a.stride > 1 for a in geometry.axes):
        fine, read_by = window.pad_fine(fine, geometry), window.read_tap
    return ((tap, read_by(tap, fine, geometry)) for tap in window.taps(geometry))


BY_TAP = Form(
    "dot by tap",
    {"coarse": taps_to_coarse, "kernel": taps_to_kernel},
    layouts="any",
    eight_bits=True,
    isolated=False,
)


# A dot for each image and group, of one tap with the channels first: no data is transposed. The
# weights are copied for each image, to have one batched dot: otherwise XLA would move the batch to
# the last axis.


def images_to_coarse(fine: Array, kernel: Array, call: Call) -> Array:
    """Multiply (n, g, o, i) by (n, g, i, X) to (n, g, o, X)."""
    geometry, numerics = call.geometry, call.numerics
    weights = jnp.moveaxis(_split_weights(as_integers(kernel), geometry), -1, -2)
    weights = as_floats(weights, kernel.dtype)  # as integers, see `_move_channels_first`
    out = _multiply(weights, _flatten(_read_pixels(fine, geometry), geometry), 2, numerics)
    return out.reshape(geometry.shape("coarse", fine.shape, kernel.shape))


def images_to_fine(coarse: Array, kernel: Array, call: Call) -> Array:
    """Multiply (n, g, i, o) by (n, g, o, X) to (n, g, i, X); pixels that nothing reads are 0."""
    geometry, numerics = call.geometry, call.numerics
    out = _multiply(_split_weights(kernel, geometry), _flatten(coarse, geometry), 2, numerics)
    batch, _, *extents = coarse.shape
    out = out.reshape(batch, geometry.groups * kernel.shape[-2], *extents)
    spread = [(-a.pad_low, -a.pad_high, a.stride - 1) for a in geometry.axes]
    return pad(out, dict(enumerate(spread, 2)))


def images_to_kernel(fine: Array, coarse: Array, call: Call) -> Array:
    """Multiply (n, g, i, X) by (n, g, o, X) to (n, g, i, o), and sum over n."""
    geometry, numerics = call.geometry, call.numerics
    read = _flatten(_read_pixels(fine, geometry), geometry)
    out = _multiply(read, _flatten(coarse, geometry), 3, numerics).sum(0)
    out = merge_groups(jnp.moveaxis(out, 0, 1))  # i, (g, o)
    return out.reshape(*(1 for _ in geometry.axes), *out.shape)


def _multiply(one: Array, other: Array, other_axis: int, numerics: Numerics) -> Array:
    """Compute a dot for each image and group, over the last axis of `one` and `other_axis`."""
    if one.ndim < other.ndim:
        one = jnp.broadcast_to(one, (other.shape[0], *one.shape))
    return _dot(one, other, ((3,), (other_axis,)), numerics, ((0, 1), (0, 1)))


def _split_weights(kernel: Array, geometry: Geometry) -> Array:
    """Reshape weights to (g, i, o)."""
    weights = kernel.reshape(kernel.shape[-2:])
    return jnp.moveaxis(split_groups(weights, geometry.groups), 0, 1)


def _flatten(data: Array, geometry: Geometry) -> Array:
    """Reshape data to (n, g, channels of a group, X)."""
    batch, channels, *extents = data.shape
    groups = geometry.groups
    return data.reshape(batch, groups, channels // groups, math.prod(extents))


BY_IMAGE = Form(
    "dot by image",
    {"coarse": images_to_coarse, "fine": images_to_fine, "kernel": images_to_kernel},
    # XLA of JAX 0.10 cannot run some dots in bfloat16 that contract the last axis of both operands.
    cannot=lambda p: not p.pointwise or (p.result == "kernel" and p.bits == 16),
    gathers=True,
    layouts="channels first",
    eight_bits=True,
)
