"""im2col: all windows written out side by side, then one dot.

The windows are many times as large as the data, and writing the windows is the cost. So more than
a few MiB of windows are written in blocks, and a dot reads a block while the block is in the cache.
A block has at least one row of every image. Groups are taken a few at a time, each contiguous.
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
    concatenate_blocks,
    map_groups,
    slice_along,
    sum_over_blocks,
)
from jaxconv._lowering.problem import Numerics

#: Windows that are written at once, and windows in a block where there are more. The C library maps
#: buffers above 32 MiB anew at each call, and to touch new pages takes longer than the dot.
MAX_WINDOWS_BYTES, MAX_BLOCK_BYTES = 15 << 20, 4 << 20
#: Suffices where the sums are small: contractions that run side by side have their blocks in memory
#: at the same time.
MIN_BLOCK_BYTES = 2 << 20
#: Windows of the groups that are taken together.
MAX_GROUPS_BYTES = 8 << 20
#: With fewer channels, channels-last windows would be short runs of memory. So a weights gradient
#: writes windows channel by channel, in whole rows: ResNet-50's stem takes half the time (AMD).
MIN_CHANNELS = 8
#: Images that a symbolic batch is taken to have.
SYMBOLIC_IMAGES = 8


def _count_bytes(fine: Array, geometry: Geometry) -> int:
    """Count the bytes of all windows."""
    batch = fine.shape[0] if isinstance(fine.shape[0], int) else SYMBOLIC_IMAGES
    extents = math.prod(a.coarse * a.kernel for a in geometry.axes)
    return batch * extents * int(fine.shape[geometry.data.channel]) * int(fine.dtype.itemsize)


def _count_groups(fine: Array, geometry: Geometry) -> int:
    """Count the groups that are taken together."""
    return geometry.groups * MAX_GROUPS_BYTES // max(_count_bytes(fine, geometry), 1)


@map_groups(_count_groups)
def to_coarse(fine: Array, kernel: Array, *, geometry: Geometry, numerics: Numerics) -> Array:
    """Multiply the windows by the kernel."""
    source = window.pad_fine(dot.make_movable(fine), geometry)
    weights = kernel.reshape(-1, kernel.shape[-1])

    def product(start: Index, size: int) -> Array:
        windows = jnp.concatenate(_read_taps(source, geometry, along, start, size), -1)
        return dot.contract_channels(dot.cast_to_floats(windows, fine.dtype), weights, numerics)

    along, size = _choose_block(fine, geometry)
    total = geometry.axes[along].coarse
    return concatenate_blocks(
        lambda start: product(start, size), size, total, 1 + along, fine, kernel
    )


@map_groups(_count_groups)
def to_kernel(fine: Array, coarse: Array, *, geometry: Geometry, numerics: Numerics) -> Array:
    """Multiply the windows by the coarse tensor, summed over all pixels."""
    data = geometry.data
    channels = fine.shape[-1]
    by_channel, view = channels < MIN_CHANNELS, geometry
    if by_channel:
        spatial = tuple(at + 1 for at in data.spatial)
        view = replace(geometry, data=data._replace(spatial=spatial))

    def pad_and_move(fine: Array) -> Array:
        padded = window.pad_fine(dot.make_movable(fine), geometry)
        return jnp.moveaxis(padded, -1, 0) if by_channel else padded  # C, N, X

    # Otherwise XLA would move and pad the pixels of each tap, in a loop for each tap.
    source = isolate.call_apart(pad_and_move, fine)

    def product(start: Index, size: int) -> Array:
        reads = _read_taps(source, view, along, start, size)
        windows = jnp.concatenate(reads, 0 if by_channel else -1)
        block = slice_along(coarse, start, size, data.spatial[along])
        multiply = dot.contract_first_rows if by_channel else dot.contract_rows
        return multiply(dot.cast_to_floats(windows, fine.dtype), block, numerics)

    shape = (math.prod(a.kernel for a in geometry.axes) * channels, coarse.shape[data.channel])
    sums = math.prod(shape) * numerics.sums.itemsize
    sums = sums if fine.dtype.itemsize > 2 else MAX_WINDOWS_BYTES
    along, size = _choose_block(fine, geometry, sums)
    total = geometry.axes[along].coarse
    count, left = divmod(total, size)
    out = sum_over_blocks(lambda n: product(n * size, size), count, fine, coarse)
    if left:
        out = out + product(total - left, left)
    return out.reshape(*(a.kernel for a in geometry.axes), channels, shape[-1])


def _read_taps(
    source: Array, geometry: Geometry, along: int, start: Index, size: int
) -> list[Array]:
    """Read the pixels of each tap for `size` coarse pixels along one axis."""
    axes, at = list(geometry.axes), geometry.data.spatial[along]
    axis = axes[along]
    part = replace(axis, fine=(size - 1) * axis.stride + axis.extent, coarse=size, pad_low=0)
    source = lax.dynamic_slice_in_dim(source, start * axis.stride, part.fine, axis=at)
    axes[along] = part
    block = replace(geometry, axes=tuple(axes))
    return [window.read_tap(tap, source, block) for tap in window.taps(block)]


def _choose_block(
    fine: Array, geometry: Geometry, sums: int = MAX_WINDOWS_BYTES
) -> tuple[int, int]:
    """Choose the axis of the coarse tensor that blocks split, and the pixels of a block.

    Blocks split the first axis, whose pixels are whole rows, unless one row has too many windows.
    Each block reads and writes all sums, so a block should have several times their bytes.
    """
    whole = _count_bytes(fine, geometry)
    totals = [a.coarse for a in geometry.axes]
    if whole <= min(max(8 * sums, 2 * MIN_BLOCK_BYTES), MAX_WINDOWS_BYTES):
        return 0, totals[0]
    along = 0 if whole // totals[0] <= MAX_WINDOWS_BYTES else totals.index(max(totals))
    block = min(max(8 * sums, MIN_BLOCK_BYTES), MAX_BLOCK_BYTES)
    return along, _choose_pixels(totals[along], block, whole)


def _choose_pixels(total: int, block: int, whole: int) -> int:
    """Choose how many of `total` pixels a block has.

    Equal blocks are preferred, down to half the bytes: a remainder is compiled as a second block.
    """
    most = min(max(1, total * block // whole), total)
    return next((n for n in range(most, most // 2, -1) if total % n == 0), most)


FORM = Form("im2col", {"coarse": to_coarse, "kernel": to_kernel}, gathers=True, contender=True)
