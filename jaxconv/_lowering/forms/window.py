"""Views of the fine tensor: the pixels that each tap of the kernel reads."""

from collections.abc import Iterator, Sequence
from itertools import product

from jax import Array, lax

from jaxconv._base.geometry import Geometry
from jaxconv._base.reshape import pad

Tap = tuple[int, ...]


def pad_fine(fine: Array, geometry: Geometry) -> Array:
    """Pad the fine tensor: from the first pixel that any window reads to the last.

    Axis by axis: XLA takes three times as long to compile a pad of two axes.
    """
    for n in range(geometry.rank):
        fine = pad_axis(fine, geometry, n)
    return fine


def pad_axis(fine: Array, geometry: Geometry, n: int) -> Array:
    """Pad the fine tensor along one spatial axis."""
    axis = geometry.axes[n]
    return pad(fine, {geometry.data.spatial[n]: (axis.pad_low, axis.pad_high, 0)})


def taps(geometry: Geometry) -> Iterator[Tap]:
    """Yield all taps of the kernel, in the order of its axes."""
    return product(*(range(a.kernel) for a in geometry.axes))


def read_tap(tap: Tap, fine: Array, geometry: Geometry) -> Array:
    """Slice the pixels that a tap reads of the padded fine tensor: one for each coarse pixel."""
    box = [
        range(a.dilation * t, a.dilation * t + a.span, a.stride)
        for a, t in zip(geometry.axes, tap, strict=True)
    ]
    return slice_box(fine, box, geometry.data.spatial)


def slice_box(x: Array, box: Sequence[range], spatial: Sequence[int]) -> Array:
    """Slice places along each spatial axis out of a tensor.

    One place has no stride: where XLA splits the axis over devices, it takes another place, or
    refuses the program (JAX 0.10.2 and 0.12).
    """
    starts, limits, strides = [0] * x.ndim, list(x.shape), [1] * x.ndim
    for at, places in zip(spatial, box, strict=True):
        starts[at], limits[at] = places[0], places[-1] + 1
        strides[at] = places.step if len(places) > 1 else 1
    return lax.slice(x, starts, limits, strides)


def shift_fine(tap: Tap, fine: Array, geometry: Geometry) -> Array:
    """Shift the unpadded fine tensor over zeros, to the pixels that a tap reads with stride 1."""
    ends = {}
    for at, a, t in zip(geometry.data.spatial, geometry.axes, tap, strict=True):
        low = a.pad_low - a.dilation * t
        ends[at] = (low, a.coarse - low - a.fine, 0)
    return pad(fine, ends)


def weights_of_tap(tap: Tap, kernel: Array) -> Array:
    """Slice the weights of one tap; the other axes of the kernel follow the taps."""
    rest = kernel.shape[len(tap) :]
    starts, limits = (*tap, *(0 for _ in rest)), (*(t + 1 for t in tap), *rest)
    return lax.slice(kernel, starts, limits).reshape(rest)
