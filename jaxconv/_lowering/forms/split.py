"""A contraction as several smaller contractions: by group, block, piece of the kernel, or tap.

Data is channels-last, except by block. Parts that share a result are summed; other parts are
concatenated, or stand side by side.
"""

import math
from dataclasses import replace
from functools import reduce

import jax.numpy as jnp
from jax import Array, lax

from jaxconv._base import meshes
from jaxconv._base.dtypes import ACCUMULATION
from jaxconv._base.geometry import Axis, Geometry, reorder
from jaxconv._base.reshape import pad, replace_axes
from jaxconv._base.typing import Index
from jaxconv._lowering.forms import blocks, window
from jaxconv._lowering.problem import Call, Form, Part, Problem

# By group: XLA:CPU runs a group alone twice as fast as within a grouped convolution. A weights
# gradient in 16 bits is one in float32, since to transpose a group costs more than to widen it.

#: Weights gradients that XLA may compute at a time: it copies a group while oneDNN multiplies.
GROUPS_SIDE_BY_SIDE = 4


def split_by_group(problem: Problem) -> tuple[Problem, ...]:
    one = replace(problem, geometry=replace(problem.geometry, groups=1))
    to_kernel = problem.result == "kernel"
    return (replace(one, dtype=ACCUMULATION[problem.dtype]) if to_kernel else one,)


def groups_to_result(first: Array, second: Array, call: Call) -> Array:
    """Compute one group after the other."""
    dtype = split_by_group(call.problem)[0].dtype

    def widened(first: Array, second: Array) -> Array:
        return call.part(first.astype(dtype), second.astype(dtype))

    side = GROUPS_SIDE_BY_SIDE if call.problem.result == "kernel" else 1
    return blocks.loop_over_groups(1, widened, first, second, call.geometry.groups, side)


GROUPS = Form(
    "by group",
    {"coarse": groups_to_result, "kernel": groups_to_result},
    cannot=lambda p: p.dense,
    gathers=True,
    parts=split_by_group,
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
        images = max(MAX_FINE_BLOCK_BYTES // image, MIN_FINE_BLOCK_IMAGES)
        return blocks.find_divisor(batch, images if data > MAX_FINE_BYTES else batch), groups
    whole = MAX_IMAGE_BYTES if problem.taps <= MAX_IMAGE_TAPS else MAX_BLOCK_BYTES
    if problem.result == "coarse":
        whole = MAX_COARSE_BYTES
    if image > whole and groups >= MIN_GROUPS:
        return 1, blocks.find_divisor(groups, MAX_BLOCK_BYTES * groups // image)
    most = MAX_BLOCK_BYTES
    if not problem.channels_last:
        most = MAX_TRANSPOSED_BYTES if data > 2 * MAX_BLOCK_BYTES else data
    return blocks.find_divisor(batch, most // image), groups


def _split_blocks(problem: Problem) -> tuple[Problem, ...]:
    images, groups = _choose_block(problem)
    geometry = problem.geometry if problem.result == "fine" else problem.geometry.canonical()
    return (replace(problem, batch=images, geometry=geometry.with_groups(groups)),)


def blocks_to_kernel(fine: Array, coarse: Array, call: Call) -> Array:
    """Sum over blocks of images, for some groups at a time."""
    geometry, batch = call.geometry, call.geometry.data.batch
    images, groups = _choose_block(call.problem)
    last = geometry.canonical()

    def block(n: Index) -> Array:
        first, second = (
            reorder(
                blocks.slice_along(x, n * images, images, batch), geometry.data.spec, last.data.spec
            )
            for x in (fine, coarse)
        )
        return blocks.loop_over_groups(groups, call.wide.part, first, second, geometry.groups)

    out = blocks.sum_over_blocks(block, fine.shape[batch] // images, fine, coarse)
    return reorder(out, last.kernel.spec, geometry.kernel.spec)


def blocks_to_data(first: Array, kernel: Array, call: Call) -> Array:
    """Compute some images after the other; to coarse, for some groups at a time."""
    geometry, batch = call.geometry, call.geometry.data.batch
    images, groups = _choose_block(call.problem)
    inner = _split_blocks(call.problem)[0].geometry
    kernel = reorder(kernel, geometry.kernel.spec, inner.kernel.spec)

    def block(start: Index) -> Array:
        data = blocks.slice_along(first, start, images, batch)
        data = reorder(data, geometry.data.spec, inner.data.spec)
        out = blocks.loop_over_groups(groups, call.part, data, kernel, geometry.groups)
        return reorder(out, inner.data.spec, geometry.data.spec)

    extent, last = first.shape[batch], call.problem.result == "coarse"
    return blocks.concatenate_blocks(block, images, extent, batch, first, kernel, isolated=last)


BLOCKS = Form(
    "by block",
    {"kernel": blocks_to_kernel, "fine": blocks_to_data, "coarse": blocks_to_data},
    cannot=lambda p: not p.counted or _choose_block(p) == (p.batch, p.geometry.groups),
    layouts="any",
    gathers=True,
    parts=_split_blocks,
)


# By piece: a loop over pieces of the kernel. A program with a piece for each of many taps would
# take too long to compile, and one fused loop over very many multiply-adds is slow.

#: Taps in one piece of a kernel, with one fine channel a group, and with more. With twice as many,
#: depthwise 31 x 31 takes twice as long; with half as many, 17 x 17 with 16 channels a group.
MAX_DEPTHWISE_PIECE_TAPS, MAX_PIECE_TAPS = 32, 64


def _choose_piece(problem: Problem) -> tuple[int, int]:
    """Choose the kernel axis that pieces split, and the taps of that axis in a piece."""
    most = MAX_DEPTHWISE_PIECE_TAPS if problem.fine_channels == 1 else MAX_PIECE_TAPS
    kernel = [a.kernel for a in problem.geometry.axes]
    at = next((n for n, k in enumerate(kernel) if k > 1), 0)
    return at, min(max(most * kernel[at] // math.prod(kernel), 1), kernel[at])


def _split_pieces(problem: Problem) -> tuple[Problem, ...]:
    at, size = _choose_piece(problem)
    axes = [a.padded() for a in problem.geometry.axes]
    left = axes[at].kernel % size if problem.result == "coarse" else 0
    pieces = (replace(axes[at], kernel=taps).padded() for taps in (size, left) if taps)
    return tuple(problem.of_axes([*axes[:at], piece, *axes[at + 1 :]]) for piece in pieces)


def pieces_to_coarse(fine: Array, kernel: Array, call: Call) -> Array:
    """Sum over pieces of the kernel."""
    geometry, parts = call.geometry, call.wide.parts
    at, size = _choose_piece(call.problem)
    shape = geometry.shape("coarse", fine.shape, kernel.shape)
    fine = window.pad_fine(fine, geometry)

    def piece(part: Part, start: Index, taps: int) -> Array:
        weights = lax.dynamic_slice_in_dim(kernel, start, taps, axis=at)
        return part(_read_taps(fine, geometry.axes[at], at, start, taps), weights)

    count, left = divmod(geometry.axes[at].kernel, size)

    def step(n: Index, out: Array) -> Array:
        return out + piece(parts[0], n * size, size)

    zeros, *_ = meshes.vary_alike(jnp.zeros(shape, call.numerics.sums), fine, kernel)
    out: Array = lax.fori_loop(0, count, step, zeros)
    return out + piece(parts[1], count * size, left) if left else out


def pieces_to_kernel(fine: Array, coarse: Array, call: Call) -> Array:
    """Compute one piece of the kernel after the other; the last may overlap its neighbour."""
    at, size = _choose_piece(call.problem)
    axis = call.geometry.axes[at]
    fine = window.pad_fine(fine, call.geometry)

    def piece(start: Index) -> Array:
        return call.part(_read_taps(fine, axis, at, start, size), coarse)

    return blocks.concatenate_blocks(piece, size, axis.kernel, at, fine, coarse)


def _read_taps(fine: Array, axis: Axis, at: int, start: Index, size: int) -> Array:
    """Slice the pixels of the padded fine tensor that `size` taps along an axis read."""
    extent = replace(axis, kernel=size).reach
    return lax.dynamic_slice_in_dim(fine, axis.dilation * start, extent, axis=1 + at)


PIECES = Form(
    "by piece", {"coarse": pieces_to_coarse, "kernel": pieces_to_kernel}, parts=_split_pieces
)


# By tap: a part has one tap, and only the padding of that tap, for windows that reach far.

#: Parts of one tap that a program may write out one by one.
MAX_PARTS = 256


def _split_taps(problem: Problem) -> tuple[Problem, ...]:
    def of_tap(a: Axis, t: int) -> Axis:
        return replace(a, kernel=1, dilation=1, pad_low=a.pad_low - a.dilation * t)

    axes, taps = problem.geometry.axes, window.taps(problem.geometry)
    return tuple(problem.of_axes(list(map(of_tap, axes, tap))) for tap in taps)


def taps_to_data(data: Array, kernel: Array, call: Call) -> Array:
    """Sum the parts of all taps, to fine or to coarse."""
    one_tap = (1,) * call.geometry.rank + kernel.shape[-2:]
    terms = (
        part(data, window.weights_of_tap(tap, kernel).reshape(one_tap))
        for tap, part in zip(window.taps(call.geometry), call.wide.parts, strict=True)
    )
    return reduce(lax.add, terms)


def taps_to_kernel(fine: Array, coarse: Array, call: Call) -> Array:
    """Put the weights of all taps side by side."""
    shape = call.geometry.shape("kernel", fine.shape, coarse.shape)
    return jnp.stack([part(fine, coarse) for part in call.parts]).reshape(shape)


TAPS = Form(
    "by tap",
    {"coarse": taps_to_data, "fine": taps_to_data, "kernel": taps_to_kernel},
    cannot=lambda p: not 1 < p.taps <= MAX_PARTS,  # of one tap, it would be its own part
    parts=_split_taps,
)


# By first axis, which joins the batch; its taps are summed. XLA:CPU has fast convolutions of two
# spatial axes only, and cuDNN of three at most.


def merge_first_axis(problem: Problem) -> tuple[Problem, ...]:
    batch = None if problem.batch is None else problem.batch * problem.geometry.axes[0].coarse
    rest = replace(problem.geometry, axes=problem.geometry.axes[1:]).canonical()
    return (replace(problem, geometry=rest, batch=batch),)


def axis_to_coarse(fine: Array, kernel: Array, call: Call) -> Array:
    """Sum the part over the taps of the first axis."""
    geometry, part = call.geometry, call.wide.part
    sums = [
        part(slab, lax.index_in_dim(kernel, tap, keepdims=False))
        for tap, slab in enumerate(read_slabs(fine, geometry))
    ]
    return replace_axes(reduce(lax.add, sums), 0, 1, (fine.shape[0], geometry.axes[0].coarse))


def axis_to_kernel(fine: Array, coarse: Array, call: Call) -> Array:
    """Put the weights of the taps of the first axis side by side."""
    coarse, slabs = merge_into_batch(coarse), read_slabs(fine, call.geometry)
    return jnp.stack([call.part(slab, coarse) for slab in slabs])


def read_slabs(fine: Array, geometry: Geometry) -> list[Array]:
    """Read the slab of each tap of the first axis, with that axis in the batch."""
    a = geometry.axes[0]
    fine = pad(fine, {1: (a.pad_low, a.pad_high, 0)})
    first = range(0, a.dilation * a.kernel, a.dilation)
    slabs = (window.slice_box(fine, [range(at, at + a.span, a.stride)], [1]) for at in first)
    return [merge_into_batch(slab) for slab in slabs]


def merge_into_batch(x: Array) -> Array:
    """Reshape (N, X1, ...) to ((N, X1), ...): a batch in front may stay sharded."""
    return replace_axes(x, 0, 2, (x.shape[0] * x.shape[1],))


FIRST_AXIS = Form(
    "by first axis",
    {"coarse": axis_to_coarse, "kernel": axis_to_kernel},
    cannot=lambda p: p.rank < 2,
    parts=merge_first_axis,
)
