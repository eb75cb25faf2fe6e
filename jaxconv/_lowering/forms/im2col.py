"""im2col: all windows written out side by side, then one dot.

The windows are many times as large as the data, and writing them is the cost. So more than a few
MiB of them are written in blocks, and each block is used while it is in the cache. A block has at
least one row of every image. Groups are taken a few at a time, each contiguous.
"""

import math
from dataclasses import replace

import jax.numpy as jnp
from jax import Array, lax

from jaxconv._base.geometry import Geometry
from jaxconv._base.typing import Index
from jaxconv._lowering import isolate
from jaxconv._lowering.form import Form
from jaxconv._lowering.forms import dot, window
from jaxconv._lowering.forms.blocks import (
    by_group,
    concatenate_blocks,
    slice_along,
    sum_over_blocks,
)
from jaxconv._lowering.problem import Numerics

#: Most bytes of windows that are written at once, and most bytes of a block where there are more.
#: The C library maps buffers above 32 MiB anew at each call, and first touching their pages takes
#: longer than the dot.
WHOLE, BLOCK = 15 << 20, 4 << 20
#: Fewest bytes of a block, which suffice where the sums are small: contractions that run side by
#: side have their blocks in memory at the same time.
LEAST = 2 << 20
#: Most bytes of windows of the groups that are taken together.
TOGETHER = 8 << 20
#: With fewer channels, channels-last windows would be short runs of memory. So a weights gradient
#: writes them channel by channel, as whole rows: the stem of ResNet-50 takes half the time (AMD).
FEW = 8
#: Images that a symbolic batch is taken to have.
SOME_BATCH = 8


def _bytes(fine: Array, geometry: Geometry) -> int:
    """Bytes of all windows."""
    batch = fine.shape[0] if isinstance(fine.shape[0], int) else SOME_BATCH
    extents = math.prod(a.coarse * a.kernel for a in geometry.axes)
    return batch * extents * int(fine.shape[geometry.data.channel]) * int(fine.dtype.itemsize)


def _together(fine: Array, geometry: Geometry) -> int:
    """How many groups are taken together."""
    return geometry.groups * TOGETHER // max(_bytes(fine, geometry), 1)


@by_group(_together)
def to_coarse(fine: Array, kernel: Array, *, geometry: Geometry, numerics: Numerics) -> Array:
    """The product of the windows and the kernel."""
    source = window.pad_fine(dot.movable(fine), geometry)
    weights = kernel.reshape(-1, kernel.shape[-1])

    def product(start: Index, size: int) -> Array:
        windows = jnp.concatenate(_reads(source, geometry, along, start, size), -1)
        return dot.by_weights(dot.as_numbers(windows, fine.dtype), weights, numerics)

    along, size = _block(fine, geometry)
    total = geometry.axes[along].coarse
    return concatenate_blocks(
        lambda start: product(start, size), size, total, 1 + along, fine, kernel
    )


@by_group(_together)
def to_kernel(fine: Array, coarse: Array, *, geometry: Geometry, numerics: Numerics) -> Array:
    """The product of the windows and the coarse tensor, summed over all pixels.

    With few channels, the windows are written channel by channel, as whole rows.
    """
    data = geometry.data
    channels = fine.shape[-1]
    by_channel, view = channels < FEW, geometry
    if by_channel:
        spatial = tuple(at + 1 for at in data.spatial)
        view = replace(geometry, data=data._replace(spatial=spatial))

    def moved(fine: Array) -> Array:
        padded = window.pad_fine(dot.movable(fine), geometry)
        return jnp.moveaxis(padded, -1, 0) if by_channel else padded  # C, N, X

    # Otherwise XLA would move and pad the pixels of each tap, in a loop for each.
    source = isolate.apart(moved, fine)

    def product(start: Index, size: int) -> Array:
        windows = jnp.concatenate(_reads(source, view, along, start, size), 0 if by_channel else -1)
        block = slice_along(coarse, start, size, data.spatial[along])
        multiply = dot.first_by_rows if by_channel else dot.by_rows
        return multiply(dot.as_numbers(windows, fine.dtype), block, numerics)

    shape = (math.prod(a.kernel for a in geometry.axes) * channels, coarse.shape[data.channel])
    sums = math.prod(shape) * numerics.sums.itemsize if fine.dtype.itemsize > 2 else WHOLE
    along, size = _block(fine, geometry, sums)
    total = geometry.axes[along].coarse
    count, left = divmod(total, size)
    out = sum_over_blocks(lambda n: product(n * size, size), count, fine, coarse)
    if left:
        out = out + product(total - left, left)
    return out.reshape(*(a.kernel for a in geometry.axes), channels, shape[-1])


def _reads(source: Array, geometry: Geometry, along: int, start: Index, size: int) -> list[Array]:
    """What each tap reads for `size` coarse pixels along one axis."""
    axes, at = list(geometry.axes), geometry.data.spatial[along]
    axis = axes[along]
    part = replace(axis, fine=(size - 1) * axis.stride + axis.extent, coarse=size, pad_low=0)
    source = lax.dynamic_slice_in_dim(source, start * axis.stride, part.fine, axis=at)
    axes[along] = part
    some = replace(geometry, axes=tuple(axes))
    return [window.read_tap(tap, source, some) for tap in window.taps(some)]


def _block(fine: Array, geometry: Geometry, sums: int = WHOLE) -> tuple[int, int]:
    """The axis of the coarse tensor that is split into blocks, and its pixels in one block.

    That is the first axis, whose pixels are whole rows, unless the windows of one row are too many.
    Each block reads and writes all sums, so it should have several times their bytes.
    """
    whole = _bytes(fine, geometry)
    totals = [a.coarse for a in geometry.axes]
    if whole <= min(max(8 * sums, 2 * LEAST), WHOLE):
        return 0, totals[0]
    along = 0 if whole // totals[0] <= WHOLE else totals.index(max(totals))
    return along, _share(totals[along], min(max(8 * sums, LEAST), BLOCK), whole)


def _share(total: int, block: int, whole: int) -> int:
    """How many of `total` pixels have the bytes of a block.

    Equal blocks are preferred, down to half the bytes: a remainder is compiled as a second block.
    """
    most = min(max(1, total * block // whole), total)
    return next((n for n in range(most, most // 2, -1) if total % n == 0), most)


FORM = Form("im2col", {"coarse": to_coarse, "kernel": to_kernel}, gathers=True, contender=True)
