"""Places of the coarse tensor, of which a weights gradient is a sum, in boxes.

A box has a range of places along each spatial axis. XLA makes vectors of neighbours in memory
only if there is no loop over places within, so a loop may add up a few places at most.
"""

from collections.abc import Iterator, Sequence
from typing import Any

from jax import lax

from jaxconv._geometry import Axis, Geometry

Box = list[range]


def cover(geometry: Geometry, every: int) -> Iterator[tuple[Box, int]]:
    """Every so many places along the last summed axis, and how often to move them by one.

    All boxes, so often moved, are all places. Each has pairs of places, or threes, if it can.
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
        if few(box, geometry)[1] > 1 or len(box[at]) == 1:
            yield box, step
        else:
            yield _with(box, at, box[at][:-3]), step
            yield _with(box, at, box[at][-3:]), step


def few(box: Box, geometry: Geometry) -> tuple[int, int]:
    """An axis, and how many neighbours along it a loop can add up: 2, 3, or only 1."""
    pairs = ((at, n) for n in (2, 3) for at in range(geometry.rank) if len(box[at]) % n == 0)
    return next(pairs, (0, 1))


def _with(box: Box, at: int, places: range) -> Box:
    return [*box[:at], places, *box[at + 1 :]]


def moved(box: Box, at: int, by: int) -> Box:
    """Along one axis."""
    places = box[at]
    return _with(box, at, range(places.start + by, places.stop + by, places.step))


def read_by(tap: int, places: range, axis: Axis) -> range:
    """What a tap reads of the padded fine tensor along an axis, at some places."""
    start, last = (axis.stride * place + axis.dilation * tap for place in (places[0], places[-1]))
    return range(start, last + 1, axis.stride * places.step)


def cut(x: Any, box: Box, spatial: Sequence[int]) -> Any:
    """A tensor at the places of a box along its spatial axes."""
    starts, limits, strides = [0] * x.ndim, list(x.shape), [1] * x.ndim
    for at, places in zip(spatial, box, strict=True):
        starts[at], limits[at], strides[at] = places[0], places[-1] + 1, places.step
    return lax.slice(x, starts, limits, strides)
