"""Weights gradients by oneDNN's forward convolution: images are its channels.

    dW[t, s, i, o] = sum over images n, rows y and columns x of
        fine[n, stride*y + dilation*t, stride*x + dilation*s, i] * coarse[n, y, x, o]

is a convolution whose channels are the images n. Its kernel is the coarse tensor as it lies,
(n, y, x, o), and stride and dilation are exchanged. Its data is the fine tensor with the images
last: (y, (x, i), n), where columns and fine channels are one axis, on which a column is I places.
So the results (t, (s, i), o) lie in order, no tap costs a copy, and zeros around the data are
padding of the call. Where columns are dilated, their results do not lie side by side, and columns
and fine channels are two axes. Groups are groups of the call, each with the images as its channels.

oneDNN reads its kernel once for every few results, so a core's cache should hold the kernel. So the
sum goes over blocks of a few images, and of some rows of each. Very few images are cut into bands
of rows, and a block has rows of each band, as images. What blocks leave over has calls of its own:
zeros that filled up a block would be multiplied with pixels that other taps read, which may be
infinite.

Blocks in 16 bits are widened, unless a block of so few taps that oneDNN multiplies bfloat16 as it
is (`onednn.MAX_TAPS_BFLOAT16`) is large enough.
"""

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from jaxconv._base.geometry import Axis, DataLayout, Geometry, KernelLayout, reorder
from jaxconv._base.reshape import merge_groups, split_groups
from jaxconv._base.typing import Index
from jaxconv._lowering import onednn_here
from jaxconv._lowering.forms import onednn, split, window
from jaxconv._lowering.forms.blocks import (
    as_floats,
    find_divisor,
    slice_along,
    sliceable,
    sum_over_blocks,
)
from jaxconv._lowering.problem import Call, Form, Problem

#: Images for which none is cut.
MIN_IMAGES = 4

#: Images in a call, and of small images; as many bands are cut of fewer.
IMAGES, MANY_IMAGES = 8, 16

#: Bytes of the coarse tensor in a call, and of the fine tensor.
MAX_COARSE_BYTES, MAX_FINE_BYTES = 2 << 20, 4 << 20

#: Bytes and channels of a coarse tensor that one call takes, however many images it has.
MAX_WHOLE_BYTES, MAX_WHOLE_CHANNELS = 1 << 19, 32

#: Blocks that XLA may compute at a time: it copies one while oneDNN multiplies another.
SIDE_BY_SIDE = 2

#: The most spatial axes of a call.
MAX_AXES = 3

#: Fine channels that are worth small calls in bfloat16, and how many times as many taps a widened
#: block may have and still be slower.
MIN_FINE_CHANNELS, MAX_WIDENED_TAPS = 8, 5


class _Block(NamedTuple):
    """What one call reads: some images, each a band of one; and some rows of each, as taps."""

    bands: int
    images: int
    rows: int
    taps: int


def _choose_block(problem: Problem, most: int) -> _Block:
    """Choose some images, and some rows: at most `most` taps, or one row."""
    batch, axes = problem.batch or 1, problem.geometry.axes
    fine, coarse = problem.fine_channels, problem.coarse_channels
    first, line = axes[0], math.prod(a.coarse for a in axes[1:])
    bands = 1
    if batch < MIN_IMAGES:  # half of what the windows of a band read is its own, at least
        own = first.coarse * first.stride // (2 * max(first.extent - 1, 1))
        bands = find_divisor(first.coarse, min(IMAGES // batch, own))
    images, rows = batch * bands, first.coarse // bands
    row = 4 * line * coarse
    fine_row = 4 * first.stride * math.prod(a.fine for a in axes[1:]) * fine
    fits = images * rows * row <= MAX_WHOLE_BYTES and rows * line <= most
    if not fits or images * rows * fine_row > MAX_FINE_BYTES or coarse > MAX_WHOLE_CHANNELS:
        small = images <= MANY_IMAGES or 2 * IMAGES * rows * row <= MAX_WHOLE_BYTES
        several = MANY_IMAGES if small else IMAGES
        # Rather fewer images than some rows of each: rows that windows share would be copied twice.
        whole = MAX_FINE_BYTES // (rows * fine_row)
        if bands == 1 and whole >= MIN_IMAGES and rows * line <= most:
            several = min(several, whole)
        images = _choose_size(images, several)
    cached = min(MAX_COARSE_BYTES // (images * row), MAX_FINE_BYTES // (images * fine_row))
    rows = _choose_size(rows, min(most // line, cached))
    return _Block(bands, images, rows, rows * line)


def _choose_size(total: int, most: int) -> int:
    """Choose the largest divisor; if it is small, the size of blocks of which the last has less."""
    size = find_divisor(total, most)
    return size if 2 * size > min(most, total) else -(-total // -(-total // max(most, 1)))


def _cut(total: int, size: int) -> Iterator[tuple[int, int, int]]:
    """Where blocks begin, their size, and how many there are; then the same of what is left."""
    count, left = divmod(total, size)
    yield 0, size, count
    if left:
        yield count * size, left, 1


def _stays_bfloat16(problem: Problem, block: _Block, widened: _Block) -> bool:
    """Whether oneDNN multiplies a block in bfloat16, and is faster than in a larger widened one.

    With AMX it was not tried. Images are even: oneDNN multiplies them in pairs, and a pair of one
    takes the next pixel's first image times zero, which makes NaN of infinity.
    """
    native = problem.bits == 16 and onednn_here.multiplies(problem.dtype)
    if not native or onednn_here.has_amx() or problem.fine_channels < MIN_FINE_CHANNELS:
        return False
    large = block.taps * MAX_WIDENED_TAPS >= widened.taps
    even = block.images % 2 == 0 == (problem.batch or 1) * block.bands % 2
    return large and block.taps <= onednn.MAX_TAPS_BFLOAT16 and even


def _goes_by_plane(axes: tuple[Axis, ...]) -> bool:
    """Whether a sum is made plane by plane: axes, or taps of a line, are too many for one call."""
    line = math.prod(a.coarse for a in axes[1:])
    wide = len(axes) > MAX_AXES - (axes[-1].dilation > 1) or line > onednn.MAX_TESTED_TAPS
    return len(axes) > 2 and wide


def to_kernel(fine: Array, coarse: Array, call: Call) -> Array:
    """Sum over blocks; in 3-D, large planes are the images of a sum for each tap across them."""
    problem, geometry = call.problem, call.geometry
    if _goes_by_plane(geometry.axes):
        [plane] = split.merge_first_axis(problem)
        coarse = split.merge_into_batch(coarse)
        slabs = split.read_slabs(fine, geometry)
        return jnp.stack([to_kernel(x, coarse, replace(call, problem=plane)) for x in slabs])
    sizes, dtype = _choose_block(problem, onednn.MAX_TESTED_TAPS), jnp.dtype(jnp.float32)
    smaller = _choose_block(problem, onednn.MAX_TAPS_BFLOAT16)
    if _stays_bfloat16(problem, smaller, sizes):
        sizes, dtype = smaller, problem.dtype
    bands, rows = sizes.bands, sizes.rows
    for n, a in enumerate(geometry.axes):
        # oneDNN has no vector code for pads as large as its kernel, for negative pads or, of groups
        # in bfloat16, for some pads.
        pads, cut = (a.pad_low, a.pad_high), n == 0 and rows < a.coarse
        most = 0 if geometry.groups > 1 and dtype == jnp.bfloat16 else a.span - 1
        if cut or min(pads) < 0 or max(pads) > most:
            fine = window.pad_axis(fine, geometry, n)
            axes = (*geometry.axes[:n], a.padded(), *geometry.axes[n + 1 :])
            geometry = replace(geometry, axes=axes)
    first = geometry.axes[0]
    band = first.coarse // bands

    def add_blocks(images: tuple[int, int, int], rows: tuple[int, int, int]) -> Array:
        (first_image, of_images, _), (first_row, of_rows, blocks) = images, rows
        # All rows are the axis itself; of some, it is padded already.
        axis = first if of_rows == first.coarse else replace(first, coarse=of_rows).padded()
        part = replace(geometry, axes=(axis, *geometry.axes[1:]))

        def block(n: Index) -> Array:
            image, row = (f(jnp.int32(n), jnp.int32(blocks)) for f in (lax.div, lax.rem))
            begin = image * of_images + first_image

            def read(x: Array, stride: int, count: int) -> Array:
                """Read some rows of each band of some images."""
                starts = [(row * of_rows + first_row + b * band) * stride for b in range(bands)]
                of_band = (of_images // bands, count)
                return jnp.concatenate([_slice(x, begin, of_band, n) for n in starts])

            data, kernel = read(fine, first.stride, axis.fine), read(coarse, 1, of_rows)
            return _call(data.astype(dtype), kernel.astype(dtype), part)

        count = images[-1] * blocks
        return sum_over_blocks(block, count, fine, coarse, side_by_side=SIDE_BY_SIDE)

    cuts = _cut(fine.shape[0] * bands, sizes.images), _cut(band, rows)
    out = reduce(lax.add, itertools.starmap(add_blocks, itertools.product(*cuts)))
    return out.reshape(*(a.kernel for a in geometry.axes), -1, out.shape[-1])


def _slice(x: Array, image: Index, extents: tuple[int, int], row: Index) -> Array:
    """Slice images, and rows of them."""
    if extents == x.shape[:2]:
        return x
    zeros = [jnp.zeros((), jnp.int32)] * (x.ndim - 2)
    part = lax.dynamic_slice(sliceable(x), [image, row, *zeros], (*extents, *x.shape[2:]))
    return as_floats(part, x.dtype)


def _call(fine: Array, coarse: Array, geometry: Geometry) -> Array:
    """Contract (n, Y, X, (g, i)) and (n, y, x, (g, o)) to (1, t, (s, i), (g, o)).

    Where columns are dilated, s and i are apart.
    """
    rank, groups, last = geometry.rank, geometry.groups, geometry.axes[-1]
    i = fine.shape[-1] // groups
    fine = fine.reshape(*fine.shape[:-1], groups, i)
    fine = lax.transpose(fine, (*range(1, rank + 1), rank + 2, rank + 1, 0))
    fine = fine.reshape(1, *fine.shape[:-2], -1)  # (1, Y, X, i, (g, n))
    axes = [a.exchanged() for a in geometry.axes]
    if last.dilation > 1:
        axes.append(Axis(i, 1, i, 1, 1, 0))
        coarse = lax.expand_dims(coarse, (rank + 1,))
    else:
        a = axes[-1]
        axes[-1] = Axis(a.fine * i, a.kernel, a.coarse * i, 1, a.dilation * i, a.pad_low * i)
        fine = fine.reshape(*fine.shape[:rank], -1, fine.shape[-1])
    spatial = tuple(range(1, len(axes) + 1))
    layouts = DataLayout(0, len(axes) + 1, spatial), KernelLayout(len(axes) + 1, 0, spatial)
    fine = lax.optimization_barrier(fine)  # the transposition is one pass, and no loop of its own
    sums = Geometry(tuple(axes), groups, *layouts)
    return onednn.convolve(fine, coarse, sums, jnp.dtype(jnp.float32))


def _cannot(problem: Problem) -> bool:
    if not onednn.may_call(problem):
        return True
    axes = problem.geometry.axes
    lines = axes[2:] if _goes_by_plane(axes) else axes[1:]
    # Of one image, groups of one channel would be depthwise, of which oneDNN takes the fallback for
    # some sizes.
    fails = not problem.dense and problem.coarse_channels == 1
    return fails or math.prod(a.coarse for a in lines) > onednn.MAX_TESTED_TAPS


FORM = Form("onednn-weights", {"kernel": to_kernel}, cannot=_cannot, gathers=True, contender=True)


# Depthwise: the coarse pixels of an image slide over its fine pixels.
#
#     dW[t, c] = sum over images n of
#         (sum over q of fine[n, stride*q + dilation*t, c] * coarse[n, q, c])
#
# The inner sum is itself a depthwise contraction to coarse: its kernel is the coarse image, its
# results are the taps, and stride and dilation are exchanged. oneDNN computes such a contraction
# for each image, or for some rows of a large image. A group of several channels has a depthwise
# channel for each pair of a fine and a coarse channel: the data of a block is copied for each.


def _choose_rows(problem: Problem) -> int:
    """Choose how many coarse rows of an image a block has: all, or a divisor."""
    rows, *others = (a.coarse for a in problem.geometry.axes)
    return find_divisor(rows, onednn.MAX_TESTED_TAPS // math.prod(others))


def _block_axes(problem: Problem) -> tuple[Axis, ...]:
    """The axes of a block; if an image has several, the first axis is padded before."""
    first, *others = problem.geometry.axes
    rows = _choose_rows(problem)
    if rows < first.coarse:
        first = replace(first, coarse=rows).padded()
    return (first, *others)


def split_images(problem: Problem) -> tuple[Problem, ...]:
    channels = problem.geometry.groups * problem.fine_channels * problem.coarse_channels
    axes = tuple(a.exchanged() for a in _block_axes(problem))
    geometry = replace(problem.geometry.canonical(), axes=axes).with_groups(channels)
    part = replace(problem, result="coarse", geometry=geometry, batch=1)
    return (replace(part, fine_channels=1, coarse_channels=1),)


def images_to_kernel(fine: Array, coarse: Array, call: Call) -> Array:
    """Sum over blocks of rows of all images."""
    problem, geometry, groups = call.problem, call.geometry, call.geometry.groups
    i, o = problem.fine_channels, problem.coarse_channels
    last, batch, at = geometry.canonical(), geometry.data.batch, geometry.data.spatial[0]
    rows, first = _choose_rows(problem), geometry.axes[0]
    blocks = first.coarse // rows
    if blocks > 1:
        fine = window.pad_axis(fine, geometry, 0)

    def read(x: Array, n: Index, step: int, count: int) -> Array:
        """Read some rows of an image, with the channels last and the groups apart."""
        x = slice_along(x, lax.div(jnp.int32(n), jnp.int32(blocks)), 1, batch)
        x = slice_along(x, lax.rem(jnp.int32(n), jnp.int32(blocks)) * step, count, at)
        return split_groups(reorder(x, geometry.data.spec, last.data.spec), groups)

    def block(n: Index) -> Array:
        data = read(fine, n, rows * first.stride, _block_axes(problem)[0].fine)
        kernel = read(coarse, n, rows, rows)[0]
        # For each pair of channels of a group, (g, i, o).
        data = jnp.broadcast_to(data[..., None], (*data.shape, o))
        kernel = jnp.broadcast_to(kernel[..., None, :], (*kernel.shape[:-1], i, o))
        data, kernel = (x.reshape(*x.shape[:-3], -1) for x in (data, kernel))
        return call.wide.part(data, jnp.expand_dims(kernel, -2))[0]

    out = sum_over_blocks(block, fine.shape[batch] * blocks, fine, coarse)
    out = out.reshape(*out.shape[:-1], groups, i, o)
    out = merge_groups(jnp.swapaxes(out, -3, -2))  # X, i, (g, o)
    return reorder(out, last.kernel.spec, geometry.kernel.spec)


SLIDE = Form(
    "slide",
    {"kernel": images_to_kernel},
    cannot=lambda p: p.dense or not p.counted or p.rank > 2,
    layouts="any",
    gathers=True,
    parts=split_images,
    contender=True,
)
