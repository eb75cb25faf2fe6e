"""im2col: all windows written out side by side, then one dot.

The windows are many times the data, and memory is what they cost. More than a few MiB of them are
written in blocks, each one used while it is in the cache: of one row at least, for the whole
batch. Groups are taken a few at a time, each one contiguous.
"""

import math
from dataclasses import replace

import jax.numpy as jnp
from jax import Array, lax

from jaxconv import _sharding
from jaxconv._geometry import Geometry
from jaxconv._lowering import dot, window
from jaxconv._lowering.blocks import added, by_group
from jaxconv._lowering.plan import Form
from jaxconv._lowering.problem import Numerics
from jaxconv._typing import Index

#: Bytes of windows that are written at once, and else of one block. The C library maps
#: buffers above 32 MiB anew at each call, and first touching their pages takes longer
#: than the dot.
WHOLE, BLOCK = 15 << 20, 4 << 20
#: Of one block at least, where the sum over the blocks is small: contractions that stand side by
#: side have their blocks at the same time.
LEAST = 2 << 20
#: Bytes of the windows of the groups that are taken together.
TOGETHER = 8 << 20
#: Fewer channels than this would be written as slivers side by side. A weights gradient has them
#: one after another instead, each with whole rows: the stem of ResNet-50 in half the time (AMD).
FEW = 8
#: What a symbolic batch is taken for.
SOME_BATCH = 8


def _bytes(fine: Array, geometry: Geometry) -> int:
    """Of all windows."""
    batch = fine.shape[0] if isinstance(fine.shape[0], int) else SOME_BATCH
    extents = math.prod(a.coarse * a.kernel for a in geometry.axes)
    return batch * extents * int(fine.shape[geometry.data.channel]) * int(fine.dtype.itemsize)


def _together(fine: Array, geometry: Geometry) -> int:
    """How many groups are taken at a time."""
    return geometry.groups * TOGETHER // max(_bytes(fine, geometry), 1)


@by_group(_together)
def to_coarse(fine: Array, kernel: Array, *, geometry: Geometry, numerics: Numerics) -> Array:
    """Windows by the whole kernel."""
    source = window.padded(dot.movable(fine), geometry)
    weights = kernel.reshape(-1, kernel.shape[-1])

    def some(start: Index, size: int) -> Array:
        windows = jnp.concatenate(_reads(source, geometry, along, start, size), -1)
        return dot.by_weights(dot.as_numbers(windows, fine.dtype), weights, numerics)

    along, size = _block(fine, geometry)
    total = geometry.axes[along].coarse
    if size == total:
        return some(0, total)

    def step(block: Index, out: Array) -> Array:
        start = jnp.minimum(block * size, total - size)  # the last block overlaps its neighbour
        return lax.dynamic_update_slice_in_dim(out, some(start, size), start, 1 + along)

    shape = (*fine.shape[:1], *(a.coarse for a in geometry.axes), kernel.shape[-1])
    zeros, *_ = _sharding.vary_alike(jnp.zeros(shape, numerics.sums), fine, kernel)
    out: Array = lax.fori_loop(0, -(-total // size), step, zeros)
    return out


@by_group(_together)
def to_kernel(fine: Array, coarse: Array, *, geometry: Geometry, numerics: Numerics) -> Array:
    """Windows by the coarse tensor, over all rows; of few channels, channel by channel.

    Then the windows of each channel and tap are whole rows, one after another.
    """
    data = geometry.data
    channels = fine.shape[-1]
    source, view = window.padded(dot.movable(fine), geometry), geometry
    if by_channel := channels < FEW:
        spatial = tuple(at + 1 for at in data.spatial)
        source = jnp.moveaxis(source, -1, 0)  # C, N, X
        view = replace(geometry, data=data._replace(spatial=spatial))

    def product(start: Index, size: int) -> Array:
        windows = jnp.concatenate(_reads(source, view, along, start, size), 0 if by_channel else -1)
        block = _some(coarse, start, size, data.spatial[along])
        multiply = dot.first_by_rows if by_channel else dot.by_rows
        return multiply(dot.as_numbers(windows, fine.dtype), block, numerics)

    shape = (math.prod(a.kernel for a in geometry.axes) * channels, coarse.shape[data.channel])
    sums = math.prod(shape) * numerics.sums.itemsize if fine.dtype.itemsize > 2 else WHOLE
    along, size = _block(fine, geometry, sums)
    total = geometry.axes[along].coarse
    count, left = divmod(total, size)
    out = added(lambda n: product(n * size, size), count, fine, coarse)
    if left:
        out = out + product(total - left, left)
    return out.reshape(*(a.kernel for a in geometry.axes), channels, shape[-1])


def _some(x: Array, start: Index, size: int, axis: int) -> Array:
    """So many along an axis, which is not touched if they are all."""
    return x if size == x.shape[axis] else lax.dynamic_slice_in_dim(x, start, size, axis)


def _reads(source: Array, geometry: Geometry, along: int, start: Index, size: int) -> list[Array]:
    """What the taps read for some places of the coarse tensor along one axis."""
    axes, at = list(geometry.axes), geometry.data.spatial[along]
    axis = axes[along]
    part = replace(axis, fine=(size - 1) * axis.stride + axis.extent, coarse=size, pad_low=0)
    source = lax.dynamic_slice_in_dim(source, start * axis.stride, part.fine, axis=at)
    axes[along] = part
    some = replace(geometry, axes=tuple(axes))
    return [window.read_by(tap, source, some) for tap in window.taps(some)]


def _block(fine: Array, geometry: Geometry, sums: int = WHOLE) -> tuple[int, int]:
    """Along which axis of the coarse tensor, and how many pixels of it, make a block.

    Along the first axis, whose pixels are whole rows, unless one of them has too many windows. Each
    block reads and writes the sums, so that it should be several times their bytes.
    """
    whole = _bytes(fine, geometry)
    totals = [a.coarse for a in geometry.axes]
    if whole <= min(max(8 * sums, 2 * LEAST), WHOLE):
        return 0, totals[0]
    along = 0 if whole // totals[0] <= WHOLE else totals.index(max(totals))
    return along, _share(totals[along], min(max(8 * sums, LEAST), BLOCK), whole)


def _share(total: int, block: int, whole: int) -> int:
    """So many of all as have the bytes of a block.

    Blocks are equal, if they are not much smaller: what is left over compiles to a second block.
    """
    most = min(max(1, total * block // whole), total)
    return next((n for n in range(most, most // 2, -1) if total % n == 0), most)


FORM = Form("im2col", {"coarse": to_coarse, "kernel": to_kernel})
