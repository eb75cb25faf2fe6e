"""A few channels a group: shifted multiply-adds for each tap, which XLA fuses into one loop.

XLA:CPU runs a depthwise or finely grouped convolution as scalar loops, 10 to 1,000 times slower.
Multiply-adds also partition on a sharded batch, which a grouped convolution gathers
(openxla/xla#47945).
"""

import math
from collections.abc import Iterator
from functools import reduce

import jax.numpy as jnp
from jax import Array, lax

from jaxconv._base.geometry import Axis, Geometry
from jaxconv._base.reshape import replace_axes, split_groups
from jaxconv._base.typing import DType, Index
from jaxconv._lowering.forms import blocks, window
from jaxconv._lowering.forms.window import Tap
from jaxconv._lowering.problem import Call, Form

Box = list[range]

#: Factors (pairs of a tap and a fine channel) in one loop of a weights gradient. If there are more,
#: a loop has those of one row of the kernel.
MAX_FACTORS = 9
#: Products written out for a pixel, and in a loop over two or three pixels: LLVM does not unroll a
#: longer loop, and then makes no vectors.
MAX_PRODUCTS, MAX_LOOP_PRODUCTS = 49, 105
#: Products written out for all factors of a pixel, twice in a program: 1 s to compile.
MAX_PIXEL_PRODUCTS = 490
#: Neighbours that a loop should add up: fewer leave too much for the reduction.
MIN_NEIGHBOURS = 4
#: Data in a block of planes.
MAX_BLOCK_BYTES = 4 << 20


def to_coarse(fine: Array, kernel: Array, call: Call) -> Array:
    """Sum (N, X, g, 1) times (g, o) over taps and fine channels i; or with channels first."""
    geometry, numerics = call.geometry, call.numerics
    fine = window.pad_fine(fine, geometry)
    kernel = _lay_out(kernel, numerics.sums)
    # A tap of strides reads a part of the data, which the fused loop converts in no time.
    fine = fine.astype(numerics.sums) if call.problem.strided else _widen(fine, numerics.sums)
    groups, channel = geometry.groups, geometry.data.channel
    other = [axis for axis in range(fine.ndim + 1) if axis not in (channel, channel + 1)]
    terms = []
    for tap in window.taps(geometry):
        read = split_groups(window.read_tap(tap, fine, geometry), groups, channel)
        weights = split_groups(window.weights_of_tap(tap, kernel), groups)  # i, g, o
        for i in range(weights.shape[0]):
            one = lax.slice_in_dim(read, i, i + 1, axis=channel + 1)
            terms.append(one * lax.expand_dims(weights[i], other))
    return replace_axes(_add_terms(terms), channel, 2, (kernel.shape[-1],))


def _lay_out(kernel: Array, dtype: DType) -> Array:
    """Write a kernel in `dtype`, as the loop reads it.

    XLA would leave the caller's weights where they lie, and the loop would read them one by one,
    which takes 2 to 6 times as long. As integers: XLA drops a function that does nothing (0.12).
    """
    return blocks.call_isolated(
        lambda x: blocks.as_floats(x, kernel.dtype).astype(dtype), blocks.as_integers(kernel)
    )


def _add_terms(terms: list[Array]) -> Array:
    """Add terms in two sums: additions that wait for each other are several times slower."""
    sums = (reduce(lax.add, half) for half in (terms[::2], terms[1::2]) if half)
    return reduce(lax.add, sums)


def to_kernel(fine: Array, coarse: Array, call: Call) -> Array:
    """Sum (N, X, g, 1) times (N, X, g, o) over pixels, for each factor: a tap and a channel i."""
    geometry, numerics = call.geometry, call.numerics
    fine, coarse = (split_groups(x, geometry.groups) for x in (fine, coarse))
    # Padded in this shape: XLA would write a padded tensor twice that is read in two shapes.
    fine = _widen(window.pad_fine(fine, geometry), numerics.sums)
    coarse = _widen(coarse, numerics.sums)
    channels = fine.shape[-1]
    if channels == 1:
        out = _sum_pixels(fine, coarse, geometry)
    else:  # in a loop: XLA would compile a piece of the program for each channel

        def of_channel(i: Array) -> Array:
            one = lax.dynamic_slice_in_dim(fine, i, 1, axis=fine.ndim - 1)
            return _sum_pixels(one, coarse, geometry, channels)

        out = jnp.moveaxis(lax.map(of_channel, jnp.arange(channels)), 0, 1)
    return out.reshape(*(a.kernel for a in geometry.axes), channels, -1)


def planes_to_kernel(fine: Array, coarse: Array, call: Call) -> Array:
    """Sum (N, g, X) times (N, g, X) over pixels, for each tap, in blocks that a cache holds."""
    geometry, numerics = call.geometry, call.numerics
    batch, groups = fine.shape[0], geometry.groups
    plane = fine.itemsize * (math.prod(fine.shape[2:]) + math.prod(coarse.shape[2:]))
    images = blocks.find_divisor(batch, MAX_BLOCK_BYTES // (plane * groups))
    size = min(max(MAX_BLOCK_BYTES // (plane * images), 1), groups)

    def of_groups(start: Index) -> Array:
        def of_images(n: Index) -> Array:
            first, second = (
                blocks.slice_along(blocks.slice_along(x, n * images, images, 0), start, size, 1)
                for x in (fine, coarse)
            )
            first = _widen(window.pad_fine(first, geometry), numerics.sums)
            return _sum_pixels(first, _widen(second, numerics.sums), geometry)

        return blocks.sum_over_blocks(of_images, batch // images, fine, coarse)

    out = blocks.concatenate_blocks(of_groups, size, groups, 1, fine, coarse)
    return out.reshape(*(a.kernel for a in geometry.axes), 1, groups)


def _sum_pixels(fine: Array, coarse: Array, geometry: Geometry, channels: int = 1) -> Array:
    """Sum over images and pixels for each tap.

    A loop adds up a few neighbouring pixels for a few factors. A reduction then sums the results of
    the loops, several times less than the data.
    """
    taps = list(window.taps(geometry))
    together, every = _choose_loop(geometry, len(taps) * channels)
    boxes = list(_cover_pixels(geometry, every))
    out = []
    for first in range(0, len(taps), together):
        chunk = taps[first : first + together]
        parts = [_sum_box(fine, coarse, chunk, box, moves, geometry) for box, moves in boxes]
        out += [reduce(lax.add, sums) for sums in zip(*parts, strict=True)]
    return jnp.stack(out)


def _choose_loop(geometry: Geometry, factors: int) -> tuple[int, int]:
    """Choose how many factors a loop has, and how many neighbours a loop adds up for each."""
    extent = geometry.axes[_count_loop_axes(geometry) - 1].coarse
    row = geometry.axes[-1].kernel
    row = row if 3 <= row <= MAX_FACTORS else MAX_FACTORS

    def most(together: int) -> int:
        return max(1, min(MAX_PRODUCTS // together, MAX_PIXEL_PRODUCTS // factors, extent))

    choices = [
        (together, every)
        for together in (factors, row)
        if together <= MAX_FACTORS
        for every in range(most(together), MIN_NEIGHBOURS - 1, -1)
    ]
    short = [each for each in choices if _count_products(*each, geometry) <= MAX_LOOP_PRODUCTS]
    whole = [(together, every) for together, every in short if extent % every == 0]
    return next(iter(whole or short), (row, most(row)))


def _count_products(together: int, every: int, geometry: Geometry) -> int:
    """Count the products of the longest loop that adds up neighbours for so many factors."""
    boxes = _cover_pixels(geometry, every)
    return max(together * moves * _find_neighbours(box, geometry)[1] for box, moves in boxes)


def _sum_box(
    fine: Array, coarse: Array, taps: list[Tap], box: Box, moves: int, geometry: Geometry
) -> list[Array]:
    """Sum for each tap over a box and the places that the box moves to."""
    axes, spatial = geometry.axes, geometry.data.spatial
    last = _count_loop_axes(geometry) - 1
    pixels = box[last]
    moved = (range(pixels.start + by, pixels.stop + by, pixels.step) for by in range(moves))
    places = [_replace_range(box, last, each) for each in moved]
    products = []
    for tap in taps:
        reads = [list(map(_pixels_of_tap, tap, place, axes)) for place in places]
        terms = [
            window.slice_box(fine, read, spatial) * window.slice_box(coarse, place, spatial)
            for read, place in zip(reads, places, strict=True)
        ]
        products.append(reduce(lax.add, terms))
    along, few = _find_neighbours(box, geometry)
    if few > 1:
        # LLVM unrolls so short a loop. One reduction of all factors reads the data once.
        axis = spatial[along]
        products = lax.reduce(
            [replace_axes(x, axis, 1, (len(box[along]) // few, few)) for x in products],
            [jnp.zeros((), coarse.dtype)] * len(products),
            lambda one, other: list(map(lax.add, one, other)),
            [axis + 1],
        )
    return [jnp.sum(x, (0, *spatial)) for x in products]


# A box is a range of coarse pixels along each spatial axis. XLA makes vectors of neighbours in
# memory only if no loop over these is inside, so a loop adds up a few pixels, written out.
# Neighbours are channels or, with channels first, the pixels of the last axis.


def _count_loop_axes(geometry: Geometry) -> int:
    """Count the first axes, along which a loop may add up pixels: with channels first, one less."""
    return geometry.rank - (geometry.data.channel == 1)


def _cover_pixels(geometry: Geometry, every: int) -> Iterator[tuple[Box, int]]:
    """Yield boxes of every n-th pixel of the last such axis, and how often to move a box by one.

    The moved boxes cover each pixel once. An axis of each box has 2m or 3m pixels, if possible.
    """
    axes = range(_count_loop_axes(geometry))
    whole = [range(a.coarse) for a in geometry.axes]
    end = len(whole[axes[-1]])
    even = end - end % every
    for start, stop, step in ((0, even, every), (even, end, end - even)):
        if start == stop:
            continue
        box = _replace_range(whole, axes[-1], range(start, stop, step))
        at = next((at for at in axes if len(box[at]) > 1), 0)
        if _find_neighbours(box, geometry)[1] > 1 or len(box[at]) == 1:
            yield box, step
        else:
            yield _replace_range(box, at, box[at][:-3]), step
            yield _replace_range(box, at, box[at][-3:]), step


def _find_neighbours(box: Box, geometry: Geometry) -> tuple[int, int]:
    """Find an axis along which a loop can add up neighbours, and how many: 2, 3, or only 1."""
    axes = range(_count_loop_axes(geometry))
    return next(((at, n) for n in (2, 3) for at in axes if len(box[at]) % n == 0), (0, 1))


def _replace_range(box: Box, at: int, places: range) -> Box:
    return [*box[:at], places, *box[at + 1 :]]


def _pixels_of_tap(tap: int, places: range, axis: Axis) -> range:
    """Find the pixels of the padded fine tensor that a tap reads for some coarse pixels."""
    start, last = (axis.stride * place + axis.dilation * tap for place in (places[0], places[-1]))
    return range(start, last + 1, axis.stride * places.step)


def _widen(x: Array, dtype: DType) -> Array:
    """Convert `x` to `dtype` once: inside the fused loop, each tap would convert again."""
    return x if x.dtype == dtype else lax.optimization_barrier(x.astype(dtype))


FORM = Form("multiply-adds", {"coarse": to_coarse, "kernel": to_kernel}, contender=True)
CHANNELS_FIRST = Form(
    "multiply-adds, channels first",
    {"coarse": to_coarse, "kernel": planes_to_kernel},
    cannot=lambda p: p.result == "kernel" and (not p.depthwise or p.rank == 1 or not p.counted),
    gathers=True,
    layouts="channels first",
)
