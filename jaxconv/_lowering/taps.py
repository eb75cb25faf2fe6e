"""A few channels a group: shifted multiply-adds, one per tap, that XLA fuses into one loop.

XLA:CPU runs a depthwise or finely grouped convolution as scalar loops, 10 to 1,000
times slower. Multiply-adds also partition on a sharded batch, where a grouped
convolution gathers it (openxla/xla#47945).
"""

from dataclasses import replace
from functools import reduce
from typing import Any

import jax.numpy as jnp
from jax import lax

from jaxconv._attributes import Precision
from jaxconv._dtypes import DType
from jaxconv._geometry import Geometry
from jaxconv._lowering import cores, places, window
from jaxconv._lowering.apart import apart
from jaxconv._lowering.window import Tap
from jaxconv._reshape import merge_groups, replace_axes, split_groups

#: One loop of a weights gradient has all taps and fine channels, if they are so few, or else a
#: row of them.
MOST_FACTORS = 9
#: It has so many products, for each of two or three places. The compiler does not write out a
#: loop over places that has twice as many, and then makes no vectors.
MOST_PRODUCTS = 49
#: What is written out for all factors, for each of two places: it compiles in a second, or in two
#: with several channels a group.
MOST_IN_ALL = 490
#: Where loops add up fewer neighbours, they leave more than is worth it.
FEWEST_PLACES = 4


def to_coarse(
    fine: Any, kernel: Any, *, geometry: Geometry, precision: Precision, dtype: DType
) -> Any:
    """Groups and their channels are one axis again beyond the branch.

    Within, XLA would give that a layout of its own where an axis has one place, and copy what it
    gets: rows split over 2 devices, channels first, 6.8 instead of 3.5 (AMD, AVX-512).
    """
    del precision  # products and sums are in `dtype`
    out = _sum(fine, kernel, geometry=geometry, dtype=dtype)
    return replace_axes(out, geometry.data.channel, 2, (kernel.shape[-1],))


@apart
def _sum(fine: Any, kernel: Any, *, geometry: Geometry, dtype: DType) -> Any:
    """Sum over taps and fine channels i of (N, X, g, 1) times (g, o), or (N, g, 1, X)."""
    fine = _widened(window.padded(fine, geometry), dtype)
    kernel = _widened(kernel, dtype)
    groups, channel = geometry.groups, geometry.data.channel
    other = [axis for axis in range(fine.ndim + 1) if axis not in (channel, channel + 1)]
    terms = []
    for tap in window.taps(geometry):
        read = split_groups(window.read_by(tap, fine, geometry), groups, channel)
        weights = split_groups(window.at(tap, kernel), groups)  # i, g, o
        for i in range(weights.shape[0]):
            one = lax.slice_in_dim(read, i, i + 1, axis=channel + 1)
            terms.append(one * lax.expand_dims(weights[i], other))
    return cores.on_all(added(terms))


def added(terms: list[Any]) -> Any:
    """By two sums, as an addition that waits for the one before takes several times as long."""
    sums = (reduce(lax.add, some) for some in (terms[::2], terms[1::2]) if some)
    return reduce(lax.add, sums)


@apart
def to_kernel(
    fine: Any, coarse: Any, *, geometry: Geometry, precision: Precision, dtype: DType
) -> Any:
    """Over places, the sum of (N, X, g, 1), for each tap and fine channel i, by (N, X, g, o).

    A loop adds up a few places of a few such factors; of what it leaves, which is several times
    less than the data, the sum is taken after.
    """
    del precision
    channel = geometry.data.channel
    fine, coarse = (split_groups(x, geometry.groups, channel) for x in (fine, coarse))
    spatial = tuple(at if at < channel else at + 1 for at in geometry.data.spatial)
    geometry = replace(geometry, data=geometry.data._replace(spatial=spatial))
    # Padded in this shape: XLA would write a padded tensor twice that it finds in two shapes.
    fine, coarse = _widened(window.padded(fine, geometry), dtype), _widened(coarse, dtype)
    factors = [(tap, i) for tap in window.taps(geometry) for i in range(fine.shape[channel + 1])]
    together, every = _unrolled(geometry, len(factors))
    out = []
    for first in range(0, len(factors), together):
        some = factors[first : first + together]
        parts = [
            _sums(fine, coarse, some, box, moves, geometry)
            for box, moves in places.boxes(geometry, every)
        ]
        out += [reduce(lax.add, one) for one in zip(*parts, strict=True)]
    return jnp.stack(out).reshape(*(a.kernel for a in geometry.axes), -1, out[0].shape[-1])


def _unrolled(geometry: Geometry, factors: int) -> tuple[int, int]:
    """How many factors a loop has, and how many neighbours it adds up for each."""
    extent = geometry.axes[places.summed(geometry)[-1]].coarse
    row = geometry.axes[-1].kernel
    row = row if 3 <= row <= MOST_FACTORS else MOST_FACTORS
    for together in (factors, row):
        most = max(1, min(MOST_PRODUCTS // together, MOST_IN_ALL // factors))
        divisors = [n for n in range(1, most + 1) if extent % n == 0]
        if together <= MOST_FACTORS and divisors[-1] >= FEWEST_PLACES:
            return together, divisors[-1]
    return row, min(extent, most)


def _sums(
    fine: Any,
    coarse: Any,
    factors: list[tuple[Tap, int]],
    box: places.Box,
    moves: int,
    geometry: Geometry,
) -> list[Any]:
    """Of each factor, over a box and where it moves to."""
    axes, channel, spatial = geometry.axes, geometry.data.channel, geometry.data.spatial
    boxes = [places.moved(box, places.summed(geometry)[-1], by) for by in range(moves)]
    products = []
    for tap, i in factors:
        one = lax.slice_in_dim(fine, i, i + 1, axis=channel + 1)
        reads = [list(map(places.read_by, tap, box, axes)) for box in boxes]
        terms = [
            places.cut(one, read, spatial) * places.cut(coarse, box, spatial)
            for read, box in zip(reads, boxes, strict=True)
        ]
        products.append(reduce(lax.add, terms))
    along, few = places.few(box, geometry)
    if few > 1:
        # So short a loop is written out, and is none. All factors in one reduction read the
        # data once.
        at = spatial[along]
        products = lax.reduce(
            [replace_axes(x, at, 1, (len(box[along]) // few, few)) for x in products],
            [jnp.zeros((), coarse.dtype)] * len(products),
            lambda one, other: [a + b for a, b in zip(one, other, strict=True)],
            [at + 1],
        )
    return [merge_groups(jnp.sum(x, (0, *spatial))) for x in products]


def _widened(x: Any, dtype: DType) -> Any:
    """In `dtype` once and for all: in the fused loop, each tap would convert again."""
    return x if x.dtype == dtype else lax.optimization_barrier(x.astype(dtype))
