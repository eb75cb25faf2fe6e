"""One contraction as several smaller ones: by group, by block, or by piece of the kernel.

Data is channels-last. Parts are summed or concatenated, which follows from what is split.
"""

import math
from dataclasses import replace

import jax.numpy as jnp
from jax import Array, lax

from jaxconv._base import meshes
from jaxconv._base.geometry import Axis, Geometry
from jaxconv._base.reshape import reorder
from jaxconv._base.typing import Index
from jaxconv._lowering.form import Form, Part, Parts
from jaxconv._lowering.forms import window
from jaxconv._lowering.forms.blocks import (
    concatenate_blocks,
    divisor,
    loop_over_groups,
    slice_along,
    sum_over_blocks,
)
from jaxconv._lowering.problem import Numerics, Problem

#: Most taps in one piece of a kernel: with one fine channel a group, and with more. With twice as
#: many, depthwise 31 x 31 takes twice as long; with half as many, 17 x 17 with 16 channels a group.
DEPTHWISE, OTHERS = 32, 64


# By group: XLA:CPU runs one group twice as fast as one of several in a grouped convolution.


def _one_group(problem: Problem) -> tuple[Problem, ...]:
    return (replace(problem, geometry=replace(problem.geometry, groups=1)),)


def by_group(
    first: Array, second: Array, *, problem: Problem, numerics: Numerics, parts: Parts
) -> Array:
    """One group after the other."""
    geometry = problem.geometry
    return _some_groups(1, parts, first, second, geometry, numerics)


def _some_groups(
    most: int, parts: Parts, first: Array, second: Array, geometry: Geometry, numerics: Numerics
) -> Array:
    """The one part, of at most so many groups at a time."""
    (part,) = parts

    def of_groups(_: int, first: Array, second: Array) -> Array:
        return part(first, second, numerics)

    return loop_over_groups(most, of_groups, first, second, geometry.groups)


GROUPS = Form(
    "by group",
    {"coarse": by_group, "kernel": by_group},
    cannot=lambda p: p.dense,
    gathers=True,
    parts=_one_group,
    contender=True,
)


# By block: as much data at a time as a cache holds, in buffers that the C library does not map
# anew. Data that is not channels-last is transposed block by block.

#: Most bytes of data in a block, of several images or of some groups of one image; and in a block
#: that is transposed, unless all data is less than two other blocks.
TOGETHER, TRANSPOSED = 4 << 20, 3 << 19

#: Most bytes of data that a data gradient takes at once; where it has more, most bytes of a block,
#: and the images that a block has however large they are.
MUCH, IMAGES, FEWEST_IMAGES = 20 << 20, 8 << 20, 2

#: Fewest groups of which a few at a time are still whole vectors.
MANY_GROUPS = 64

#: Most bytes of data, and of one image's, that a contraction to coarse takes at once.
HUGE = 32 << 20


def _block(problem: Problem) -> tuple[int, int]:
    """How many images, and how many of their groups, make a block; both divide all there are."""
    batch, groups = problem.batch or 1, problem.geometry.groups
    data = 4 * sum(math.prod(problem.shape(slot)) for slot in ("fine", "coarse"))
    image = data // batch
    if problem.result == "fine":
        images = max(IMAGES // max(image, 1), FEWEST_IMAGES)
        return divisor(batch, images if data > MUCH else batch), groups
    if problem.result == "coarse" and data <= HUGE:
        return batch, groups
    if image > (HUGE if problem.result == "coarse" else TOGETHER) and groups >= MANY_GROUPS:
        return 1, divisor(groups, TOGETHER * groups // image)
    most = TOGETHER
    if not problem.channels_last:
        most = TRANSPOSED if data > 2 * TOGETHER else data
    return divisor(batch, most // max(image, 1)), groups


def _one_block(problem: Problem) -> tuple[Problem, ...]:
    images, groups = _block(problem)
    geometry = problem.geometry if problem.result == "fine" else problem.geometry.canonical()
    return (replace(problem, batch=images, geometry=geometry.with_groups(groups)),)


def blocks_to_kernel(
    fine: Array, coarse: Array, *, problem: Problem, numerics: Numerics, parts: Parts
) -> Array:
    """For some groups at a time, the sum over blocks of images."""
    geometry = problem.geometry
    images, groups = _block(problem)
    batch, last = geometry.data.batch, geometry.canonical()

    def block(n: Index) -> Array:
        first, second = (
            reorder(slice_along(x, n * images, images, batch), geometry.data.spec, last.data.spec)
            for x in (fine, coarse)
        )
        return _some_groups(groups, parts, first, second, geometry, numerics.wide)

    out = sum_over_blocks(block, fine.shape[batch] // images, fine, coarse)
    return reorder(out, last.kernel.spec, geometry.kernel.spec)


def blocks_to_coarse(
    fine: Array, kernel: Array, *, problem: Problem, numerics: Numerics, parts: Parts
) -> Array:
    """Some images, and some of their groups, after the other."""
    geometry = problem.geometry
    images, groups = _block(problem)
    batch, last = geometry.data.batch, geometry.canonical()
    kernel = reorder(kernel, geometry.kernel.spec, last.kernel.spec)

    def block(start: Index) -> Array:
        data = reorder(slice_along(fine, start, images, batch), geometry.data.spec, last.data.spec)
        out = _some_groups(groups, parts, data, kernel, geometry, numerics)
        return reorder(out, last.data.spec, geometry.data.spec)

    return concatenate_blocks(block, images, fine.shape[batch], batch, fine, kernel)


def blocks_to_fine(
    coarse: Array, kernel: Array, *, problem: Problem, numerics: Numerics, parts: Parts
) -> Array:
    """Some images after the other."""
    geometry = problem.geometry
    (part,) = parts
    images, _ = _block(problem)
    batch = geometry.data.batch

    def block(start: Index) -> Array:
        return part(slice_along(coarse, start, images, batch), kernel, numerics)

    return concatenate_blocks(block, images, coarse.shape[batch], batch, coarse, kernel)


BLOCKS = Form(
    "by block",
    {"kernel": blocks_to_kernel, "fine": blocks_to_fine, "coarse": blocks_to_coarse},
    cannot=lambda p: not p.counted or _block(p) == (p.batch, p.geometry.groups),
    any_layout=True,
    gathers=True,
    parts=_one_block,
)


# By piece: a loop over pieces of the kernel. A program with a piece for each of many taps would
# take too long to compile, and one fused loop over very many multiply-adds is slow.


def _pieces(problem: Problem) -> tuple[int, int]:
    """The kernel axis that pieces split, and how many of its taps one piece has."""
    most = DEPTHWISE if problem.fine_channels == 1 else OTHERS
    kernel = [a.kernel for a in problem.geometry.axes]
    at = next((n for n, k in enumerate(kernel) if k > 1), 0)
    return at, min(max(most * kernel[at] // math.prod(kernel), 1), kernel[at])


def _piece(problem: Problem, size: int) -> Problem:
    at, _ = _pieces(problem)
    axes = list(window.geometry_of_padded(problem.geometry).axes)
    axis = replace(axes[at], kernel=size)
    axes[at] = replace(axis, fine=axis.span - 1 + axis.extent)
    return replace(problem, geometry=replace(problem.geometry, axes=tuple(axes)))


def _some_taps(problem: Problem) -> tuple[Problem, ...]:
    at, size = _pieces(problem)
    left = problem.geometry.axes[at].kernel % size
    if problem.result == "kernel" or not left:
        return (_piece(problem, size),)
    return _piece(problem, size), _piece(problem, left)


def pieces_to_coarse(
    fine: Array, kernel: Array, *, problem: Problem, numerics: Numerics, parts: Parts
) -> Array:
    """The sum over pieces of the kernel."""
    geometry = problem.geometry
    at, size = _pieces(problem)
    shape = geometry.shape("coarse", fine.shape, kernel.shape)
    fine = window.pad_fine(fine, geometry)

    def piece(part: Part, start: Index, size: int) -> Array:
        taps = lax.dynamic_slice_in_dim(kernel, start, size, axis=at)
        return part(_read(fine, geometry.axes[at], at, start, size), taps, numerics.wide)

    count, left = divmod(geometry.axes[at].kernel, size)

    def step(n: Index, out: Array) -> Array:
        return out + piece(parts[0], n * size, size)

    zeros, *_ = meshes.vary_alike(jnp.zeros(shape, numerics.sums), fine, kernel)
    out: Array = lax.fori_loop(0, count, step, zeros)
    return out + piece(parts[1], count * size, left) if left else out


def pieces_to_kernel(
    fine: Array, coarse: Array, *, problem: Problem, numerics: Numerics, parts: Parts
) -> Array:
    """The pieces of the kernel one after the other; the last may overlap its neighbour."""
    geometry = problem.geometry
    (part,) = parts
    at, size = _pieces(problem)
    axis = geometry.axes[at]
    fine = window.pad_fine(fine, geometry)

    def piece(start: Index) -> Array:
        return part(_read(fine, axis, at, start, size), coarse, numerics)

    return concatenate_blocks(piece, size, axis.kernel, at, fine, coarse)


def _read(fine: Array, axis: Axis, at: int, start: Index, size: int) -> Array:
    """What `size` taps along an axis read of the padded fine tensor."""
    piece = replace(axis, kernel=size)
    extent = piece.span - 1 + piece.extent
    return lax.dynamic_slice_in_dim(fine, axis.dilation * start, extent, axis=1 + at)


PIECES = Form(
    "by piece", {"coarse": pieces_to_coarse, "kernel": pieces_to_kernel}, parts=_some_taps
)
