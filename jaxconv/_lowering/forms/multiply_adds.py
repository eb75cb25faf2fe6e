"""A few channels a group: shifted multiply-adds, one per tap, that XLA fuses into one loop.

XLA:CPU runs a depthwise or finely grouped convolution as scalar loops, 10 to 1,000 times slower.
Multiply-adds also partition on a sharded batch, where a grouped convolution gathers it
(openxla/xla#47945).
"""

from collections.abc import Iterator, Sequence
from functools import reduce

import jax.numpy as jnp
from jax import Array, lax

from jaxconv._base.geometry import Axis, Geometry
from jaxconv._base.reshape import merge_groups, replace_axes, split_groups
from jaxconv._base.typing import DType
from jaxconv._lowering.form import Form
from jaxconv._lowering.forms import window
from jaxconv._lowering.forms.window import Tap
from jaxconv._lowering.problem import Numerics

Box = list[range]

#: Most factors (a tap and a fine channel each) in one loop of a weights gradient. If there are
#: more, a loop has one row of them.
MOST_FACTORS = 9
#: Most products written out for a pixel, and most in a loop over two or three pixels: LLVM does not
#: unroll a loop of more, and then makes no vectors.
MOST_PRODUCTS, MOST_IN_LOOP = 49, 105
#: Most products written out for all factors, for each of two pixels: they compile in 1 s.
MOST_IN_ALL = 490
#: Fewest neighbours that a loop should add up: fewer leave too much for the reduction.
FEWEST_PLACES = 4


def to_coarse(fine: Array, kernel: Array, *, geometry: Geometry, numerics: Numerics) -> Array:
    """Sum over taps and fine channels i of (N, X, g, 1) times (g, o); or with channels first."""
    fine = _widened(window.pad_fine(fine, geometry), numerics.sums)
    kernel = _widened(kernel, numerics.sums)
    groups, channel = geometry.groups, geometry.data.channel
    other = [axis for axis in range(fine.ndim + 1) if axis not in (channel, channel + 1)]
    terms = []
    for tap in window.taps(geometry):
        read = split_groups(window.read_tap(tap, fine, geometry), groups, channel)
        weights = split_groups(window.weights_of_tap(tap, kernel), groups)  # i, g, o
        for i in range(weights.shape[0]):
            one = lax.slice_in_dim(read, i, i + 1, axis=channel + 1)
            terms.append(one * lax.expand_dims(weights[i], other))
    return replace_axes(_added(terms), channel, 2, (kernel.shape[-1],))


def _added(terms: list[Array]) -> Array:
    """The sum of terms by two sums: additions that wait for each other are several times slower."""
    sums = (reduce(lax.add, half) for half in (terms[::2], terms[1::2]) if half)
    return reduce(lax.add, sums)


def to_kernel(fine: Array, coarse: Array, *, geometry: Geometry, numerics: Numerics) -> Array:
    """For each tap and fine channel i, the sum of (N, X, g, 1) times (N, X, g, o) over pixels.

    A loop adds up a few neighbouring pixels for a few such factors. A reduction then sums what the
    loops leave, several times less than the data.
    """
    fine, coarse = (split_groups(x, geometry.groups) for x in (fine, coarse))
    # Padded in this shape: XLA would write a padded tensor twice if it is read in two shapes.
    fine = _widened(window.pad_fine(fine, geometry), numerics.sums)
    coarse = _widened(coarse, numerics.sums)
    channels = fine.shape[-1]
    taps = list(window.taps(geometry))
    together, every = _unrolled(geometry, len(taps) * channels)
    boxes = list(_cover(geometry, every))

    def of_channel(fine: Array) -> Array:
        """For each tap, the sums of one fine channel a group."""
        out = []
        for first in range(0, len(taps), together):
            chunk = taps[first : first + together]
            parts = [_sums(fine, coarse, chunk, box, moves, geometry) for box, moves in boxes]
            out += [reduce(lax.add, sums) for sums in zip(*parts, strict=True)]
        return jnp.stack(out)

    if channels == 1:
        out = of_channel(fine)
    else:  # in a loop: XLA would compile a piece of the program for each channel
        out = lax.map(
            lambda i: of_channel(lax.dynamic_slice_in_dim(fine, i, 1, axis=fine.ndim - 1)),
            jnp.arange(channels),
        )
        out = jnp.moveaxis(out, 0, 1)
    return out.reshape(*(a.kernel for a in geometry.axes), channels, out.shape[-1])


def _unrolled(geometry: Geometry, factors: int) -> tuple[int, int]:
    """How many factors one loop has, and how many neighbours it adds up for each."""
    extent = geometry.axes[-1].coarse
    row = geometry.axes[-1].kernel
    row = row if 3 <= row <= MOST_FACTORS else MOST_FACTORS
    choices = []
    for together in (n for n in (factors, row) if n <= MOST_FACTORS):
        most = max(1, min(MOST_PRODUCTS // together, MOST_IN_ALL // factors, extent))
        choices += [(together, every) for every in range(most, FEWEST_PLACES - 1, -1)]
    short = [choice for choice in choices if _in_loop(*choice, geometry) <= MOST_IN_LOOP]
    whole = [(together, every) for together, every in short if extent % every == 0]
    return next(iter(whole or short), (row, most))


def _in_loop(together: int, every: int, geometry: Geometry) -> int:
    """The most products in a loop that adds up so many neighbours for so many factors."""
    boxes = _cover(geometry, every)
    return max(together * moves * _few_neighbours(box, geometry)[1] for box, moves in boxes)


def _sums(
    fine: Array,
    coarse: Array,
    taps: list[Tap],
    box: Box,
    moves: int,
    geometry: Geometry,
) -> list[Array]:
    """The sum for each tap, over a box and the boxes that it moves to."""
    axes, spatial = geometry.axes, geometry.data.spatial
    places = [_moved(box, geometry.rank - 1, by) for by in range(moves)]
    products = []
    for tap in taps:
        reads = [list(map(_read_by, tap, box, axes)) for box in places]
        terms = [
            _cut(fine, read, spatial) * _cut(coarse, box, spatial)
            for read, box in zip(reads, places, strict=True)
        ]
        products.append(reduce(lax.add, terms))
    along, few = _few_neighbours(box, geometry)
    if few > 1:
        # LLVM unrolls so short a loop. One reduction for all factors reads the data once.
        at = spatial[along]
        products = lax.reduce(
            [replace_axes(x, at, 1, (len(box[along]) // few, few)) for x in products],
            [jnp.zeros((), coarse.dtype)] * len(products),
            lambda one, other: [a + b for a, b in zip(one, other, strict=True)],
            [at + 1],
        )
    return [merge_groups(jnp.sum(x, (0, *spatial))) for x in products]


# A box is a range of coarse pixels along each spatial axis. XLA makes vectors of neighbours in
# memory only if no loop over pixels is inside, so a loop adds up a few pixels, written out.


def _cover(geometry: Geometry, every: int) -> Iterator[tuple[Box, int]]:
    """Boxes of every `every`-th pixel along the last axis, and how often to move them by one.

    Moved so often, they cover each pixel once. An axis of each has 2n or 3n pixels, if possible.
    """
    axes = range(geometry.rank)
    whole = [range(a.coarse) for a in geometry.axes]
    end = len(whole[-1])
    even = end - end % every
    for start, stop, step in ((0, even, every), (even, end, end - even)):
        if start == stop:
            continue
        box = _with(whole, axes[-1], range(start, stop, step))
        at = next((at for at in axes if len(box[at]) > 1), 0)
        if _few_neighbours(box, geometry)[1] > 1 or len(box[at]) == 1:
            yield box, step
        else:
            yield _with(box, at, box[at][:-3]), step
            yield _with(box, at, box[at][-3:]), step


def _few_neighbours(box: Box, geometry: Geometry) -> tuple[int, int]:
    """An axis, and how many neighbours along it a loop can add up: 2, 3, or only 1."""
    pairs = ((at, n) for n in (2, 3) for at in range(geometry.rank) if len(box[at]) % n == 0)
    return next(pairs, (0, 1))


def _with(box: Box, at: int, places: range) -> Box:
    return [*box[:at], places, *box[at + 1 :]]


def _moved(box: Box, at: int, by: int) -> Box:
    """The box moved by `by` pixels along one axis."""
    places = box[at]
    return _with(box, at, range(places.start + by, places.stop + by, places.step))


def _read_by(tap: int, places: range, axis: Axis) -> range:
    """The pixels of the padded fine tensor that a tap reads along an axis, for some places."""
    start, last = (axis.stride * place + axis.dilation * tap for place in (places[0], places[-1]))
    return range(start, last + 1, axis.stride * places.step)


def _cut(x: Array, box: Box, spatial: Sequence[int]) -> Array:
    """The part of a tensor in a box."""
    starts, limits, strides = [0] * x.ndim, list(x.shape), [1] * x.ndim
    for at, places in zip(spatial, box, strict=True):
        starts[at], limits[at], strides[at] = places[0], places[-1] + 1, places.step
    return lax.slice(x, starts, limits, strides)


def _widened(x: Array, dtype: DType) -> Array:
    """`x` in `dtype`, converted once: inside the fused loop, each tap would convert again."""
    return x if x.dtype == dtype else lax.optimization_barrier(x.astype(dtype))


FORM = Form("multiply-adds", {"coarse": to_coarse, "kernel": to_kernel}, contender=True)
CHANNELS_FIRST = Form(
    "multiply-adds, channels first", {"coarse": to_coarse}, gathers=True, channels_first=True
)
