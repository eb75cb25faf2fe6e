"""im2col: all windows written out side by side, then one dot.

The windows are many times as large as the data, and writing the windows is the cost. So more than
a few MiB of windows are written in blocks, and a dot reads a block while the block is in the cache.
A block has at least one row of every image. Groups are taken a few at a time, each contiguous.

XLA needs 20 ms to compile each read of a tap. So many taps are read axis by axis: those of the last
axis side by side, then rows of those. 7 x 7 taps are 14 reads, not 49, and 31 x 31 taps are 24.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

import jax.numpy as jnp
from jax import Array, lax

from jaxconv._base.geometry import Axis, Geometry
from jaxconv._base.typing import Index
from jaxconv._lowering.forms import blocks, dots, window
from jaxconv._lowering.problem import Call, Form, Problem

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
#: Taps that are read at once, with two axes and 16 bits or few channels, and otherwise; and taps of
#: an axis, where neighbours are joined first. Axis by axis, few channels and 16 bits take 0.7 to
#: 0.9 of the time. All others take 1.2 to 1.8 times as long, but a fifth of the time to compile.
MAX_SHORT_TAPS_AT_ONCE, MAX_TAPS_AT_ONCE, MAX_READS = 9, 64, 16
#: Images that a symbolic batch is taken to have.
SYMBOLIC_IMAGES = 8


def _count_bytes(problem: Problem) -> int:
    """Count the bytes of the windows of a group."""
    images = SYMBOLIC_IMAGES if problem.batch is None else problem.batch
    pixels = images * problem.positions * problem.taps
    return pixels * problem.fine_channels * problem.dtype.itemsize


def _count_groups(problem: Problem) -> int:
    return MAX_GROUPS_BYTES // _count_bytes(problem)


@blocks.map_groups(_count_groups)
def to_coarse(fine: Array, kernel: Array, call: Call) -> Array:
    """Multiply the windows by the kernel."""
    geometry, numerics = call.geometry, call.numerics
    source = window.pad_fine(blocks.movable(fine), geometry)
    weights = kernel.reshape(-1, kernel.shape[-1])
    along, size = _choose_block(call.problem)

    def product(start: Index) -> Array:
        windows = _write_windows(source, geometry, along, start, size, source.ndim - 1)
        return dots.contract_channels(blocks.as_floats(windows, fine.dtype), weights, numerics)

    total = geometry.axes[along].coarse
    return blocks.concatenate_blocks(product, size, total, 1 + along, fine, kernel)


@blocks.map_groups(_count_groups)
def to_kernel(fine: Array, coarse: Array, call: Call) -> Array:
    """Multiply the windows by the coarse tensor, summed over all pixels."""
    geometry, numerics = call.geometry, call.numerics
    data = geometry.data
    channels = fine.shape[-1]
    by_channel, view = channels < MIN_CHANNELS, geometry
    if by_channel:
        spatial = tuple(at + 1 for at in data.spatial)
        view = replace(geometry, data=data._replace(spatial=spatial))

    def pad_and_move(fine: Array) -> Array:
        padded = window.pad_fine(blocks.movable(fine), geometry)
        return jnp.moveaxis(padded, -1, 0) if by_channel else padded  # C, N, X

    # Otherwise XLA would move and pad the pixels of each tap, in a loop for each tap.
    source = blocks.call_isolated(pad_and_move, fine)

    def product(start: Index, size: int) -> Array:
        channel = 0 if by_channel else source.ndim - 1
        windows = _write_windows(source, view, along, start, size, channel)
        block = blocks.slice_along(coarse, start, size, data.spatial[along])
        multiply = dots.contract_first_rows if by_channel else dots.contract_rows
        return multiply(blocks.as_floats(windows, fine.dtype), block, numerics)

    shape = (math.prod(a.kernel for a in geometry.axes) * channels, coarse.shape[data.channel])
    sums = math.prod(shape) * numerics.sums.itemsize
    sums = sums if fine.dtype.itemsize > 2 else MAX_WINDOWS_BYTES  # the largest blocks
    along, size = _choose_block(call.problem, sums)
    total = geometry.axes[along].coarse
    count, left = divmod(total, size)
    out = blocks.sum_over_blocks(lambda n: product(n * size, size), count, fine, coarse)
    if left:
        out = out + product(total - left, left)
    return out.reshape(*(a.kernel for a in geometry.axes), channels, shape[-1])


def _write_windows(
    source: Array, geometry: Geometry, along: int, start: Index, size: int, channel: int
) -> Array:
    """Write the windows of `size` coarse pixels along one axis: taps become channels."""
    axes, spatial = list(geometry.axes), geometry.data.spatial
    axes[along] = axis = replace(axes[along], coarse=size)
    begin = start * axis.stride
    windows = lax.dynamic_slice_in_dim(source, begin, axis.reach, axis=spatial[along])
    short = source.dtype.itemsize == 2 or source.shape[channel] < MIN_CHANNELS
    most = MAX_SHORT_TAPS_AT_ONCE if short and geometry.rank < 3 else MAX_TAPS_AT_ONCE
    if math.prod(a.kernel for a in axes) <= most:
        block = replace(geometry, axes=tuple(axes))
        reads = [window.read_tap(tap, windows, block) for tap in window.taps(block)]
        return jnp.concatenate(reads, channel)
    for n in reversed(range(geometry.rank)):
        join = partial(_join_taps, axis=axes[n], at=spatial[n], channel=channel)
        # Or XLA would join the taps of all axes in one loop, which is what takes long.
        isolate = n > 0 and axes[n].kernel > 1
        windows = blocks.call_isolated(join, windows) if isolate else join(windows)
    return windows


def _join_taps(source: Array, *, axis: Axis, at: int, channel: int) -> Array:
    """Write side by side, along the axis of channels, what the taps of one axis read."""
    step = axis.stride * max(1, round(math.sqrt(axis.kernel) / axis.stride))
    if axis.kernel <= max(MAX_READS, step):
        return jnp.concatenate(list(_read_taps(source, axis, 0, axis.kernel, at)), channel)
    # Many taps: first `step` neighbours, at all pixels where a run of so many taps begins.
    runs, left = divmod(axis.kernel, step)
    shift = step * axis.dilation // axis.stride
    starts = replace(axis, kernel=step, coarse=axis.coarse + (runs - 1) * shift)
    join = partial(_join_taps, axis=starts, at=at, channel=channel)
    neighbours = blocks.call_isolated(join, source)
    joined = replace(axis, stride=1, dilation=shift)
    reads = [
        *_read_taps(neighbours, joined, 0, runs, at),
        *_read_taps(source, axis, axis.kernel - left, axis.kernel, at),
    ]
    return jnp.concatenate(reads, channel)


def _read_taps(source: Array, axis: Axis, first: int, last: int, at: int) -> Iterator[Array]:
    """Slice the pixels that each of some taps of one axis reads."""
    for tap in range(first, last):
        start = tap * axis.dilation
        yield lax.slice_in_dim(source, start, start + axis.span, axis.stride, at)


def _choose_block(problem: Problem, sums: int = MAX_WINDOWS_BYTES) -> tuple[int, int]:
    """Choose the axis of the coarse tensor that blocks split, and the pixels of a block.

    Blocks split the first axis, whose pixels are whole rows, unless one row has too many windows.
    Each block reads and writes all sums, so a block should have several times their bytes. Equal
    blocks are preferred, down to half the bytes: a remainder is compiled as a second block.
    """
    whole = _count_bytes(problem)
    totals = [a.coarse for a in problem.geometry.axes]
    if whole <= min(max(8 * sums, 2 * MIN_BLOCK_BYTES), MAX_WINDOWS_BYTES):
        return 0, totals[0]
    along = 0 if whole // totals[0] <= MAX_WINDOWS_BYTES else totals.index(max(totals))
    block, total = min(max(8 * sums, MIN_BLOCK_BYTES), MAX_BLOCK_BYTES), totals[along]
    most = min(max(1, total * block // whole), total)
    return along, next((n for n in range(most, most // 2, -1) if total % n == 0), most)


FORM = Form("im2col", {"coarse": to_coarse, "kernel": to_kernel}, gathers=True, contender=True)
