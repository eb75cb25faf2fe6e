"""All windows written out side by side (im2col), then one dot: for dots faster than convolutions.

The windows are many times the data, and memory is what they cost. More than a few MiB of
them are written in blocks, each one used while it is in the cache: of one row along the first
axis, for the whole batch, at least. Groups are taken a few at a time, each one contiguous.
"""

import math
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
from jax import lax

from jaxconv import _sharding
from jaxconv._attributes import Precision
from jaxconv._dtypes import DType
from jaxconv._geometry import Geometry
from jaxconv._lowering import rows, window
from jaxconv._lowering.apart import apart
from jaxconv._lowering.groups import by_group
from jaxconv._reshape import replace_axes

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


def _bytes(fine: Any, geometry: Geometry) -> int:
    """Of all windows."""
    batch = fine.shape[0] if isinstance(fine.shape[0], int) else SOME_BATCH
    extents = math.prod(a.coarse * a.kernel for a in geometry.axes)
    return batch * extents * int(fine.shape[-1]) * int(fine.dtype.itemsize)


def _together(fine: Any, geometry: Geometry) -> int:
    """How many groups are taken at a time."""
    return geometry.groups * TOGETHER // max(_bytes(fine, geometry), 1)


@by_group(_together)
@apart
def to_coarse(
    fine: Any, kernel: Any, *, geometry: Geometry, precision: Precision, dtype: DType
) -> Any:
    """Windows by the whole kernel."""
    source = window.padded(rows.movable(fine), geometry)
    weights = kernel.reshape(-1, kernel.shape[-1])

    def some(start: Any, size: int) -> Any:
        windows = jnp.concatenate(_reads(source, geometry, start, size), -1)
        return rows.by_weights(rows.as_numbers(windows, fine.dtype), weights, precision, dtype)

    total, size = geometry.axes[0].coarse, _block(fine, geometry)
    if size == total:
        return some(0, total)

    def step(block: Any, out: Any) -> Any:
        start = jnp.minimum(block * size, total - size)  # the last block overlaps its neighbour
        return lax.dynamic_update_slice_in_dim(out, some(start, size), start, axis=1)

    shape = (*fine.shape[:1], *(a.coarse for a in geometry.axes), kernel.shape[-1])
    out, *_ = _sharding.vary_alike(jnp.zeros(shape, dtype), fine, kernel)
    return lax.fori_loop(0, -(-total // size), step, out)


@by_group(_together)
@apart
def to_kernel(
    fine: Any, coarse: Any, *, geometry: Geometry, precision: Precision, dtype: DType
) -> Any:
    """Windows by the coarse tensor, over all rows."""
    source, channels = window.padded(rows.movable(fine), geometry), fine.shape[-1]
    few = channels < FEW
    if few:  # each with the batch as an image of its own
        source = replace_axes(jnp.moveaxis(source, -1, 0), 0, 2, (channels * source.shape[0],))
        source = lax.expand_dims(source, (source.ndim,))

    def some(start: Any, size: int) -> Any:
        reads = _reads(source, geometry, start, size)
        block = lax.dynamic_slice_in_dim(coarse, start, size, axis=1)
        if few:
            windows = jnp.concatenate(reads).reshape(len(reads) * channels, *block.shape[:-1])
            dot = rows.first_by_rows
        else:
            windows, dot = jnp.concatenate(reads, -1), rows.by_rows
        return dot(rows.as_numbers(windows, fine.dtype), block, precision, dtype)

    shape = (math.prod(a.kernel for a in geometry.axes) * channels, coarse.shape[-1])
    sums = math.prod(shape) * dtype.itemsize if fine.dtype.itemsize > 2 else WHOLE
    total, size = geometry.axes[0].coarse, _block(fine, geometry, sums)
    if size == total:
        out = some(0, total)
    else:
        blocks, left = divmod(total, size)
        out, *_ = _sharding.vary_alike(jnp.zeros(shape, dtype), fine, coarse)
        out = lax.fori_loop(0, blocks, lambda b, out: out + some(b * size, size), out)
        if left:
            out += some(total - left, left)
    return out.reshape(*(a.kernel for a in geometry.axes), fine.shape[-1], coarse.shape[-1])


def _reads(source: Any, geometry: Geometry, start: Any, size: int) -> list[Any]:
    """What the taps read for some rows of the coarse tensor: (N, size, X, C) each."""
    first, *rest = geometry.axes
    part = replace(first, fine=(size - 1) * first.stride + first.extent, coarse=size, pad_low=0)
    source = lax.dynamic_slice_in_dim(source, start * first.stride, part.fine, axis=1)
    some = replace(geometry, axes=(part, *rest))
    return [window.read_by(tap, source, some) for tap in window.taps(some)]


def _block(fine: Any, geometry: Geometry, sums: int = WHOLE) -> int:
    """How many rows of the coarse tensor, along its first axis, make a block.

    Each block reads and writes the sums, so that it should be several times their bytes.
    """
    total, whole = geometry.axes[0].coarse, _bytes(fine, geometry)
    if whole <= min(max(8 * sums, 2 * LEAST), WHOLE):
        return total
    block = min(max(4 * sums, LEAST), BLOCK)
    most = min(max(1, total * block // whole), total)
    # Equal blocks, if they are not much smaller: rows left over compile to a second block.
    return next((n for n in range(most, most // 2, -1) if total % n == 0), most)
