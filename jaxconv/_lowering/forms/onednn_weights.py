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
of rows, and a block has rows of each band, as images. Blocks divide evenly: zeros that filled up a
block would be multiplied with pixels that other taps read, which may be infinite.
"""

import math
from dataclasses import replace
from typing import NamedTuple

import jax.numpy as jnp
from jax import Array, lax

from jaxconv._base.geometry import Axis, DataLayout, Geometry, KernelLayout
from jaxconv._base.typing import Index
from jaxconv._lowering.forms import onednn, taps, window
from jaxconv._lowering.forms.blocks import find_divisor, sum_over_blocks
from jaxconv._lowering.onednn_here import has_avx512
from jaxconv._lowering.problem import Call, Form, Problem

#: Images for which none is cut.
MIN_IMAGES = 4

#: Images in a call, as bands and for large images; and for small ones.
IMAGES, MANY_IMAGES = 8, 16

#: Bytes of the coarse tensor in a call, and of the fine tensor.
MAX_COARSE_BYTES, MAX_FINE_BYTES = 1 << 20, 2 << 20

#: Bytes and channels of a coarse tensor that one call takes, however many images it has.
MAX_WHOLE_BYTES, MAX_WHOLE_CHANNELS = 1 << 19, 32

#: Parts of the fine channels, which oneDNN divides over the cores; and channels of a part.
PARTS, MIN_PART_CHANNELS = 2, 8

#: Blocks that XLA may compute at a time: it copies one while oneDNN multiplies another.
SIDE_BY_SIDE = 2

#: The most spatial axes of a call.
MAX_AXES = 3


class _Block(NamedTuple):
    """What one call reads: some images, each a band of one; and some rows of each."""

    bands: int
    images: int
    rows: int


def _choose_block(batch: int, axes: tuple[Axis, ...], fine: int, coarse: int) -> _Block:
    """Choose divisors of the batch and of the rows, for so many channels."""
    first, line = axes[0], math.prod(a.coarse for a in axes[1:])
    bands = 1
    if batch < MIN_IMAGES:  # half of what the windows of a band read is its own, at least
        most = first.coarse * first.stride // (2 * max(first.extent - 1, 1))
        bands = find_divisor(first.coarse, min(IMAGES // batch, most))
    images, rows = batch * bands, first.coarse // bands
    row = 4 * line * coarse
    fine_row = 4 * first.stride * math.prod(a.fine for a in axes[1:]) * fine
    fits = images * rows * row <= MAX_WHOLE_BYTES and rows * line <= onednn.MAX_TAPS
    if not fits or images * rows * fine_row > MAX_FINE_BYTES or coarse > MAX_WHOLE_CHANNELS:
        small = images <= MANY_IMAGES or 2 * IMAGES * rows * row <= MAX_WHOLE_BYTES
        images = find_divisor(images, MANY_IMAGES if small else IMAGES)
    cached = min(MAX_COARSE_BYTES // (images * row), MAX_FINE_BYTES // (images * fine_row))
    return _Block(bands, images, find_divisor(rows, min(onednn.MAX_TAPS // line, cached)))


def _goes_by_plane(axes: tuple[Axis, ...]) -> bool:
    """Whether a call cannot take all axes, or not even the lines of one plane."""
    line = math.prod(a.coarse for a in axes[1:])
    wide = len(axes) > MAX_AXES - (axes[-1].dilation > 1) or line > onednn.MAX_TAPS
    return len(axes) > 2 and wide


def to_kernel(fine: Array, coarse: Array, call: Call) -> Array:
    """Sum over blocks; in 3-D, large planes are the images of a sum for each tap across them."""
    geometry = call.geometry
    if _goes_by_plane(geometry.axes):
        plane = replace(geometry, axes=geometry.axes[1:]).canonical()
        coarse = taps.merge_into_batch(coarse)
        slabs = taps.read_slabs(fine, geometry)
        return jnp.stack([to_kernel(x, coarse, call.of(plane)) for x in slabs])
    channels = (x.shape[-1] // geometry.groups for x in (fine, coarse))
    bands, images, rows = _choose_block(fine.shape[0], geometry.axes, *channels)
    for n, a in enumerate(geometry.axes):
        # oneDNN has no vector code for pads as large as its kernel, and none that crop.
        pads, cut = (a.pad_low, a.pad_high), n == 0 and rows < a.coarse
        if cut or min(pads) < 0 or max(pads) >= a.span:
            fine = window.pad_axis(fine, geometry, n)
            axes = (*geometry.axes[:n], a.padded(), *geometry.axes[n + 1 :])
            geometry = replace(geometry, axes=axes)
    first = geometry.axes[0]
    band = first.coarse // bands
    # All rows are the axis itself; of some, it is padded already.
    block = first if rows == first.coarse else replace(first, coarse=rows).padded()
    geometry = replace(geometry, axes=(block, *geometry.axes[1:]))
    blocks = band // rows  # of a band

    def add(n: Index) -> Array:
        image, row = (f(jnp.int32(n), jnp.int32(blocks)) for f in (lax.div, lax.rem))

        def read(x: Array, stride: int, count: int) -> Array:
            """Read some rows of each band of some images."""
            starts = [(row * rows + b * band) * stride for b in range(bands)]
            of_band = (images // bands, count)
            return jnp.concatenate([_slice(x, image * images, of_band, n) for n in starts])

        return _call(read(fine, first.stride, block.fine), read(coarse, 1, rows), geometry)

    count = fine.shape[0] * bands // images * blocks
    out = sum_over_blocks(add, count, fine, coarse, side_by_side=SIDE_BY_SIDE)
    kernel = [a.kernel for a in geometry.axes]
    out = out.reshape(out.shape[0], *kernel, -1, out.shape[-1])  # (parts, t, s, i, o)
    return jnp.moveaxis(out, 0, -3).reshape(*kernel, -1, out.shape[-1])


def _slice(x: Array, image: Index, extents: tuple[int, int], row: Index) -> Array:
    """Slice images, and rows of them."""
    if extents == x.shape[:2]:
        return x
    zeros = [jnp.zeros((), jnp.int32)] * (x.ndim - 2)
    return lax.dynamic_slice(x, [image, row, *zeros], (*extents, *x.shape[2:]))


def _call(fine: Array, coarse: Array, geometry: Geometry) -> Array:
    """Contract (n, Y, X, (g, i)) and (n, y, x, (g, o)) to (parts, t, (s, i), (g, o)).

    Where columns are dilated, s and i are apart. oneDNN divides groups over the cores, too.
    """
    rank, groups, last = geometry.rank, geometry.groups, geometry.axes[-1]
    channels = fine.shape[-1] // groups
    several = groups == 1 and channels % PARTS == 0 and channels >= PARTS * MIN_PART_CHANNELS
    parts = PARTS if several else 1
    i = channels // parts
    fine = fine.reshape(*fine.shape[:-1], groups, parts, i)
    fine = lax.transpose(fine, (rank + 2, *range(1, rank + 1), rank + 3, rank + 1, 0))
    fine = fine.reshape(*fine.shape[:-2], -1)  # (parts, Y, X, i, (g, n))
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
    if not onednn.may_call(problem) or problem.bits < 32:
        return True
    axes = problem.geometry.axes
    lines = axes[2:] if _goes_by_plane(axes) else axes[1:]
    # Of one image, groups of one channel would be depthwise, of which oneDNN takes the fallback for
    # some sizes. Other groups were swept on AVX2 alone.
    groups_fail = not problem.dense and (problem.coarse_channels == 1 or has_avx512())
    return groups_fail or math.prod(a.coarse for a in lines) > onednn.MAX_TAPS


FORM = Form("onednn-weights", {"kernel": to_kernel}, cannot=_cannot, gathers=True, contender=True)
