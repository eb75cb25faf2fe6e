"""A contraction as several smaller contractions: by group, by block, or by piece of the kernel.

Data is channels-last. Parts that share a result are summed, and other parts concatenated.
"""

import math
from dataclasses import replace

import jax.numpy as jnp
from jax import Array, lax

from jaxconv._base import meshes
from jaxconv._base.dtypes import ACCUMULATION
from jaxconv._base.geometry import Axis
from jaxconv._base.reshape import reorder
from jaxconv._base.typing import Index
from jaxconv._lowering.form import Call, Form, Part
from jaxconv._lowering.forms import window
from jaxconv._lowering.forms.blocks import (
    concatenate_blocks,
    find_divisor,
    loop_over_groups,
    slice_along,
    sum_over_blocks,
)
from jaxconv._lowering.problem import Numerics, Problem

#: Taps in one piece of a kernel, with one fine channel a group, and with more. With twice as many,
#: depthwise 31 x 31 takes twice as long; with half as many, 17 x 17 with 16 channels a group.
MAX_DEPTHWISE_TAPS, MAX_TAPS = 32, 64


# By group: XLA:CPU runs a group alone twice as fast as within a grouped convolution. A weights
# gradient in 16 bits is one in float32, since to transpose a group costs more than to widen it.

#: Weights gradients that XLA may compute at a time: it copies a group while oneDNN multiplies.
GROUPS_SIDE_BY_SIDE = 4


def split_groups(problem: Problem) -> tuple[Problem, ...]:
    one = replace(problem, geometry=replace(problem.geometry, groups=1))
    wide = problem.result == "kernel"
    return (replace(one, dtype=ACCUMULATION[problem.dtype]) if wide else one,)


def groups_to_result(first: Array, second: Array, call: Call) -> Array:
    """Compute one group after the other."""
    problem, (part,) = call.problem, call.parts
    dtype = split_groups(problem)[0].dtype

    def widened(first: Array, second: Array, numerics: Numerics) -> Array:
        return part(first.astype(dtype), second.astype(dtype), numerics)

    side = GROUPS_SIDE_BY_SIDE if problem.result == "kernel" else 1
    return _compute_groups(1, widened, first, second, call, side)


def _compute_groups(
    most: int, part: Part, first: Array, second: Array, call: Call, side_by_side: int = 1
) -> Array:
    """Compute the part, of at most `most` groups at a time."""

    def of_groups(_: int, first: Array, second: Array) -> Array:
        return part(first, second, call.numerics)

    return loop_over_groups(most, of_groups, first, second, call.geometry.groups, side_by_side)


GROUPS = Form(
    "by group",
    {"coarse": groups_to_result, "kernel": groups_to_result},
    cannot=lambda p: p.dense,
    gathers=True,
    parts=split_groups,
    contender=True,
)


# By block: as much data at a time as a cache holds, in buffers that the C library does not map
# anew. Data that is not channels-last is transposed block by block.

#: Data in a block of images, or of groups of one image; and in a block that is transposed, if all
#: data fill two blocks.
MAX_BLOCK_BYTES, MAX_TRANSPOSED_BYTES = 4 << 20, 3 << 19

#: Data that a data gradient takes at once; and for larger data, data in a block, and images in a
#: block of any size.
MAX_FINE_BYTES, MAX_FINE_BLOCK_BYTES, MIN_FINE_BLOCK_IMAGES = 20 << 20, 8 << 20, 2

#: Groups of which a few at a time fill whole vectors.
MIN_GROUPS = 64

#: Data, and data of one image, that a contraction to coarse takes at once.
MAX_COARSE_BYTES = 32 << 20

#: Data of one image that a weights gradient of few taps takes at once: groups would be slivers.
MAX_IMAGE_BYTES, MAX_IMAGE_TAPS = 8 << 20, 9


def _choose_block(problem: Problem) -> tuple[int, int]:
    """Choose how many images and groups a block has: divisors of the batch and the groups."""
    batch, groups = problem.batch or 1, problem.geometry.groups
    data = problem.bytes_of_data
    image = data // batch
    if problem.result == "fine":
        images = max(MAX_FINE_BLOCK_BYTES // max(image, 1), MIN_FINE_BLOCK_IMAGES)
        return find_divisor(batch, images if data > MAX_FINE_BYTES else batch), groups
    whole = MAX_IMAGE_BYTES if problem.taps <= MAX_IMAGE_TAPS else MAX_BLOCK_BYTES
    if problem.result == "coarse":
        whole = MAX_COARSE_BYTES
    if image > whole and groups >= MIN_GROUPS:
        return 1, find_divisor(groups, MAX_BLOCK_BYTES * groups // image)
    most = MAX_BLOCK_BYTES
    if not problem.channels_last:
        most = MAX_TRANSPOSED_BYTES if data > 2 * MAX_BLOCK_BYTES else data
    return find_divisor(batch, most // max(image, 1)), groups


def _split_blocks(problem: Problem) -> tuple[Problem, ...]:
    images, groups = _choose_block(problem)
    geometry = problem.geometry if problem.result == "fine" else problem.geometry.canonical()
    return (replace(problem, batch=images, geometry=geometry.with_groups(groups)),)


def blocks_to_kernel(fine: Array, coarse: Array, call: Call) -> Array:
    """Sum over blocks of images, for some groups at a time."""
    geometry, (part,) = call.geometry, call.parts
    images, groups = _choose_block(call.problem)
    batch, last = geometry.data.batch, geometry.canonical()

    def block(n: Index) -> Array:
        first, second = (
            reorder(slice_along(x, n * images, images, batch), geometry.data.spec, last.data.spec)
            for x in (fine, coarse)
        )
        return _compute_groups(groups, part, first, second, call.wide)

    out = sum_over_blocks(block, fine.shape[batch] // images, fine, coarse)
    return reorder(out, last.kernel.spec, geometry.kernel.spec)


def blocks_to_coarse(fine: Array, kernel: Array, call: Call) -> Array:
    """Compute some images and groups after the other."""
    geometry, (part,) = call.geometry, call.parts
    images, groups = _choose_block(call.problem)
    batch, last = geometry.data.batch, geometry.canonical()
    kernel = reorder(kernel, geometry.kernel.spec, last.kernel.spec)

    def block(start: Index) -> Array:
        data = reorder(slice_along(fine, start, images, batch), geometry.data.spec, last.data.spec)
        out = _compute_groups(groups, part, data, kernel, call)
        return reorder(out, last.data.spec, geometry.data.spec)

    extent = fine.shape[batch]
    return concatenate_blocks(block, images, extent, batch, fine, kernel, apart=True)


def blocks_to_fine(coarse: Array, kernel: Array, call: Call) -> Array:
    """Compute some images after the other."""
    (part,), batch = call.parts, call.geometry.data.batch
    images, _ = _choose_block(call.problem)

    def block(start: Index) -> Array:
        return part(slice_along(coarse, start, images, batch), kernel, call.numerics)

    return concatenate_blocks(block, images, coarse.shape[batch], batch, coarse, kernel)


BLOCKS = Form(
    "by block",
    {"kernel": blocks_to_kernel, "fine": blocks_to_fine, "coarse": blocks_to_coarse},
    cannot=lambda p: not p.counted or _choose_block(p) == (p.batch, p.geometry.groups),
    layouts="any",
    gathers=True,
    parts=_split_blocks,
)


# By piece: a loop over pieces of the kernel. A program with a piece for each of many taps would
# take too long to compile, and one fused loop over very many multiply-adds is slow.


def _choose_piece(problem: Problem) -> tuple[int, int]:
    """Choose the kernel axis that pieces split, and the taps of that axis in a piece."""
    most = MAX_DEPTHWISE_TAPS if problem.fine_channels == 1 else MAX_TAPS
    kernel = [a.kernel for a in problem.geometry.axes]
    at = next((n for n, k in enumerate(kernel) if k > 1), 0)
    return at, min(max(most * kernel[at] // math.prod(kernel), 1), kernel[at])


def _problem_of_piece(problem: Problem, size: int) -> Problem:
    at, _ = _choose_piece(problem)
    axes = list(window.geometry_of_padded(problem.geometry).axes)
    axis = replace(axes[at], kernel=size)
    axes[at] = replace(axis, fine=axis.span - 1 + axis.extent)
    return replace(problem, geometry=replace(problem.geometry, axes=tuple(axes)))


def _split_pieces(problem: Problem) -> tuple[Problem, ...]:
    at, size = _choose_piece(problem)
    left = problem.geometry.axes[at].kernel % size
    if problem.result == "kernel" or not left:
        return (_problem_of_piece(problem, size),)
    return _problem_of_piece(problem, size), _problem_of_piece(problem, left)


def pieces_to_coarse(fine: Array, kernel: Array, call: Call) -> Array:
    """Sum over pieces of the kernel."""
    problem, numerics = call.problem, call.numerics
    geometry = problem.geometry
    at, size = _choose_piece(problem)
    shape = geometry.shape("coarse", fine.shape, kernel.shape)
    fine = window.pad_fine(fine, geometry)

    def piece(part: Part, start: Index, size: int) -> Array:
        taps = lax.dynamic_slice_in_dim(kernel, start, size, axis=at)
        return part(_read_taps(fine, geometry.axes[at], at, start, size), taps, numerics.wide)

    count, left = divmod(geometry.axes[at].kernel, size)

    def step(n: Index, out: Array) -> Array:
        return out + piece(call.parts[0], n * size, size)

    zeros, *_ = meshes.vary_alike(jnp.zeros(shape, numerics.sums), fine, kernel)
    out: Array = lax.fori_loop(0, count, step, zeros)
    return out + piece(call.parts[1], count * size, left) if left else out


def pieces_to_kernel(fine: Array, coarse: Array, call: Call) -> Array:
    """Compute one piece of the kernel after the other; the last may overlap its neighbour."""
    problem, numerics = call.problem, call.numerics
    geometry = problem.geometry
    (part,) = call.parts
    at, size = _choose_piece(problem)
    axis = geometry.axes[at]
    fine = window.pad_fine(fine, geometry)

    def piece(start: Index) -> Array:
        return part(_read_taps(fine, axis, at, start, size), coarse, numerics)

    return concatenate_blocks(piece, size, axis.kernel, at, fine, coarse)


def _read_taps(fine: Array, axis: Axis, at: int, start: Index, size: int) -> Array:
    """Slice the pixels of the padded fine tensor that `size` taps along an axis read."""
    piece = replace(axis, kernel=size)
    extent = piece.span - 1 + piece.extent
    return lax.dynamic_slice_in_dim(fine, axis.dilation * start, extent, axis=1 + at)


PIECES = Form(
    "by piece", {"coarse": pieces_to_coarse, "kernel": pieces_to_kernel}, parts=_split_pieces
)
