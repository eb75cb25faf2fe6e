"""oneDNN's forward convolution: to coarse, and to kernel with the axes in other roles."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from jaxconv._base.finish import NOTHING, Finish
from jaxconv._base.geometry import UNIT, Axis, Geometry, KernelLayout
from jaxconv._base.reshape import replace_axes
from jaxconv._base.typing import Index
from jaxconv._lowering.form import Form
from jaxconv._lowering.forms import onednn_call, window
from jaxconv._lowering.forms.blocks import find_divisor, sum_over_blocks
from jaxconv._lowering.problem import Numerics, Problem


def to_coarse(
    fine: Array,
    kernel: Array,
    *,
    geometry: Geometry,
    numerics: Numerics,
    finish: Finish = NOTHING,
    extras: Sequence[Array] = (),
) -> Array:
    """Call oneDNN once; pad before the call where oneDNN would choose its fallback."""
    layout = geometry.kernel
    depthwise = kernel.shape[layout.fine] == 1 < geometry.groups == kernel.shape[layout.coarse]
    if depthwise and geometry.rank == 1:
        layout = KernelLayout(layout.coarse + 1, layout.fine + 1, (0, layout.spatial[0] + 1))
        plane = replace(replace(geometry, axes=(UNIT, *geometry.axes)).canonical(), kernel=layout)
        fine, kernel = lax.expand_dims(fine, (1,)), lax.expand_dims(kernel, (0,))
        extras = [lax.expand_dims(x, (1,)) if x.ndim > 1 else x for x in extras]
        more: Any = {"numerics": numerics, "finish": finish, "extras": extras}
        out = to_coarse(fine, kernel, geometry=plane, **more)
        return lax.squeeze(out, (1,))
    axes = geometry.axes
    deep = any(max(a.pad_low, a.pad_high) >= a.extent for a in axes)
    flat = any(a.kernel == 1 for a in axes)
    if deep or (depthwise and (flat or any(a.dilation > 1 for a in axes))):
        fine, geometry = window.pad_fine(fine, geometry), window.geometry_of_padded(geometry)
    pads = [(a.pad_low, max(a.pad_high, 0)) for a in geometry.axes]
    return onednn_call.call_and_finish(fine, kernel, geometry, pads, numerics.dtype, finish, extras)


# Weights gradients by oneDNN's forward convolution, whose long axis is the fine channels.
#
# dW[t, s, i, o] is a sum over images n, rows y and columns x of fine[n, y + t, x + s, i] times
# coarse[n, y, x, o]. With (n, x) as channels, the coarse tensor is a kernel of as many taps as it
# has rows, which slides over the fine rows, and gives the taps t. The taps s are a batch
# of shifted copies. The fine channels i are a second spatial axis, along which nothing slides. In
# 3-D, all axes but the last are rows. Strided rows are split by residue, which joins the batch.

#: The coarse tensor in one call, which reads it once for each result row: a core's level-2 cache
#: should hold it.
MAX_COARSE_BYTES = 900_000

#: Copies of the fine tensor in one call.
MAX_COPIES_BYTES = 4 << 20

#: Rows in a block, in multiples of the rows of a window, which both neighbours copy.
MIN_BLOCK_WINDOWS = 4

#: Fine, and coarse, channels for which the call is faster than im2col.
MIN_CHANNELS = 16

#: A result of two taps a residue, which is copied into order.
MAX_RESULT_BYTES = 8 << 20


def _beats_im2col(problem: Problem) -> bool:
    """Whether the call is faster than im2col, which is fast in 16 bits and compiles longer.

    The coarse tensor slides over some taps of each residue. With one tap, the call copies as much
    as im2col, and with two taps, a large result is copied once more.
    """
    few = min(problem.fine_channels, problem.coarse_channels) < MIN_CHANNELS
    if problem.bits <= 16 or few:
        return False
    taps = max((-(-a.kernel // a.stride) for a in problem.geometry.axes[:-1]), default=1)
    large = 4 * math.prod(problem.shape("kernel")) > MAX_RESULT_BYTES
    return taps > 2 or (taps == 2 and not large)


def to_kernel(fine: Array, coarse: Array, *, geometry: Geometry, numerics: Numerics) -> Array:
    """Sum over blocks, each of several images or of some rows of one image."""
    fine, geometry = window.pad_fine(fine, geometry), window.geometry_of_padded(geometry)
    axes = geometry.axes
    images, rows = _choose_block(fine.shape, coarse.shape, axes)
    first = axes[0]
    part = replace(first, coarse=rows)
    part = replace(part, fine=part.span - 1 + part.extent)
    row_axes = [_Rows.of(a) for a in (part, *axes[1:-1])]

    def block(n: Index) -> Array:
        blocks = jnp.int32(first.coarse // rows)  # of an image
        image, row = lax.div(jnp.int32(n), blocks), lax.rem(jnp.int32(n), blocks)
        fine_rows = _slice_rows(fine, image * images, images, row * rows * first.stride, part.fine)
        coarse_rows = _slice_rows(coarse, image * images, images, row * rows, rows)
        return _sum_block(fine_rows, coarse_rows, row_axes, geometry)

    count = fine.shape[0] // images * (first.coarse // rows)
    out = sum_over_blocks(block, count, fine, coarse)
    out = out.reshape(axes[-1].kernel, *(r.residues for r in row_axes), *out.shape[1:])
    return _order_taps(out, row_axes)


def _slice_rows(x: Array, image: Index, images: int, row: Index, rows: int) -> Array:
    if (images, rows) == x.shape[:2]:
        return x
    zeros = [jnp.zeros((), jnp.int32)] * (x.ndim - 2)
    return lax.dynamic_slice(
        x, [jnp.int32(image), jnp.int32(row), *zeros], (images, rows, *x.shape[2:])
    )


@dataclass(frozen=True)
class _Rows:
    """An axis of rows, split by residues modulo the stride unless the axis is dilated."""

    residues: int
    #: rows and taps of one residue
    rows: int
    taps: int
    #: the axis of one residue
    axis: Axis
    #: taps of all residues
    kernel: int

    @classmethod
    def of(cls, axis: Axis) -> "_Rows":
        if axis.dilation > 1 or axis.stride == 1:
            return cls(1, axis.fine, axis.kernel, axis, axis.kernel)
        taps = -(-axis.kernel // axis.stride)
        rows = axis.coarse + taps - 1
        return cls(axis.stride, rows, taps, replace(axis, stride=1, kernel=taps), axis.kernel)

    def slide(self) -> Axis:
        """The axis along which the coarse rows slide over the fine rows."""
        a = self.axis
        return Axis(self.rows, a.coarse, self.taps, a.dilation, a.stride, 0)


def _sum_block(fine: Array, coarse: Array, rows: list[_Rows], geometry: Geometry) -> Array:
    """Contract (N, Y, X, i) and (N, y, x, o) to ((s, residues), t, i, o)."""
    rank, last = len(rows), geometry.axes[-1]
    # One transposition to (residues, Y, i, residue of X, N, X): then a tap reads a contiguous slice
    # along the last axis.
    columns = -(-last.fine // last.stride)
    split = [(r.rows, r.residues) for r in rows] + [(columns, last.stride)]
    config = [(0, n * s - x, 0) for (n, s), x in zip(split, fine.shape[1:-1], strict=True)]
    fine = lax.pad(fine, jnp.zeros((), fine.dtype), [(0, 0, 0), *config, (0, 0, 0)])
    for n, pair in reversed(list(enumerate(split))):
        fine = replace_axes(fine, 1 + n, 1, pair)  # N, Y1, r1, Y2, r2, ..., X, r, i
    places, x = [1 + 2 * n for n in range(rank)], 2 * rank + 1
    order = [*(at + 1 for at in places), *places, x + 2, x + 1, 0, x]
    fine = lax.optimization_barrier(lax.transpose(fine, order))
    copies = []
    for tap in range(last.kernel):
        start, residue = divmod(last.dilation * tap, last.stride)
        read = lax.index_in_dim(fine, residue, x, keepdims=False)
        read = lax.slice_in_dim(read, start, start + last.coarse, axis=x + 1)
        copies.append(replace_axes(read, x, 2, (read.shape[x] * read.shape[x + 1],)))
    data = jnp.stack(copies)
    data = replace_axes(data, 0, rank + 1, (math.prod(data.shape[: rank + 1]),))
    # (y, 1, (N, x), o)
    kernel = lax.transpose(coarse, (*range(1, rank + 1), 0, rank + 1, rank + 2))
    kernel = replace_axes(kernel, rank, 2, (1, kernel.shape[rank] * kernel.shape[rank + 1]))
    channels = data.shape[rank + 1]
    slides = (*(r.slide() for r in rows), Axis(channels, 1, channels, 1, 1, 0))
    pads = [(0, 0)] * (rank + 1)
    sliding = replace(geometry, axes=slides)
    return onednn_call.call(data, kernel, sliding, pads, jnp.dtype(jnp.float32))


def _order_taps(out: Array, rows: list[_Rows]) -> Array:
    """Bring (s, r1, r2, ..., m1, m2, ..., i, o) to (t1, t2, ..., s, i, o): t is m*stride + r."""
    rank = len(rows)
    pairs = [at for n in range(rank) for at in (1 + rank + n, 1 + n)]
    out = lax.transpose(out, (*pairs, 0, out.ndim - 2, out.ndim - 1))
    for n, r in enumerate(rows):
        out = replace_axes(out, n, 2, (r.taps * r.residues,))
        out = lax.slice_in_dim(out, 0, r.kernel, axis=n)
    return out


def _choose_block(
    fine: tuple[int, ...], coarse: tuple[int, ...], axes: tuple[Axis, ...]
) -> tuple[int, int]:
    """Choose how many images a call takes, and how many coarse rows of an image."""
    columns, image = axes[-1].kernel * axes[-1].coarse, 4 * math.prod(coarse[1:])
    copies = 4 * math.prod(fine[1:-2]) * columns * fine[-1]
    images = min(MAX_COARSE_BYTES // image, MAX_COPIES_BYTES // copies)
    if images >= 1:
        return find_divisor(fine[0], images), coarse[1]
    first = axes[0]
    rows = min(coarse[1] * MAX_COARSE_BYTES // image, coarse[1] * MAX_COPIES_BYTES // copies)
    least = min(MIN_BLOCK_WINDOWS * -(-first.extent // first.stride), coarse[1])
    found = find_divisor(coarse[1], max(rows, least))
    return 1, found if found >= least else coarse[1]


def may_call(problem: Problem) -> bool:
    """Whether the call may compute a contraction, or the parts of a rewrite."""
    return problem.onednn and onednn_call.is_safe(problem)


def _cannot(problem: Problem) -> bool | str:
    if not may_call(problem) or (problem.result == "kernel" and not problem.dense):
        return True
    slower = problem.result == "kernel" and not _beats_im2col(problem)
    return "im2col is faster" if slower else False


FORM = Form(
    "onednn",
    {"coarse": to_coarse, "kernel": to_kernel},
    cannot=_cannot,
    any_kernel=True,  # oneDNN reorders any kernel to a layout of its own
    isolated=("kernel",),
    finishes=onednn_call.gains_by_finishing,
    contender=True,
)
