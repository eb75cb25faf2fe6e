"""A contraction without taps, pixels and axes that add nothing, and with plain strides.

Left out, axis by axis:

- taps that read nothing but padding, at either end of the kernel;
- coarse pixels whose windows read nothing but padding, at either end;
- fine pixels that no window reads, at either end. So padding is never negative, except by less
  than a stride at the high end, where the last pixels make no further window;
- whole axes of one fine pixel, one tap and one coarse pixel.

The dilation of a single tap becomes 1. The stride of a single window becomes 1, or the number of
taps if all axes tile then. Operands are cropped; results are padded with zeros.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TypeVar

from jax import Array, lax

from jaxconv._base.geometry import OPERANDS, UNIT, Axis, DataLayout, Geometry, KernelLayout, Slot
from jaxconv._base.reshape import pad
from jaxconv._lowering.problem import Problem

Cut = tuple[int, int]


@dataclass(frozen=True)
class Trim:
    """The elements that are left out of the tensors of a contraction."""

    #: the contraction with these elements
    geometry: Geometry
    #: elements left out at each end of each spatial axis, by slot
    ends: Mapping[Slot, tuple[Cut, ...]] = field(hash=False)
    #: spatial axes of one element everywhere
    units: tuple[int, ...]

    def leaves_out(self, slot: Slot) -> bool:
        """Whether elements of the tensor in a slot are left out.

        An operand is cropped, and a result is padded again.
        """
        return any(low or high for low, high in self.ends[slot])

    def crop(self, slot: Slot, x: Array) -> Array:
        """Crop the tensor in a slot."""
        spatial, ends = self.geometry.layout(slot)[2:], self.ends[slot]
        for at, (low, high) in zip(spatial, ends, strict=True):
            if low or high:
                x = lax.slice_in_dim(x, low, x.shape[at] - high, axis=at)
        return lax.squeeze(x, [spatial[n] for n in self.units])

    def pad_result(self, slot: Slot, x: Array) -> Array:
        """Pad the result to full size with zeros."""
        spatial, ends = self.geometry.layout(slot)[2:], self.ends[slot]
        if self.units:
            x = lax.expand_dims(x, sorted(spatial[n] for n in self.units))
        if self.leaves_out(slot):
            x = pad(x, {at: (*pair, 0) for at, pair in zip(spatial, ends, strict=True)})
        return x


def normalise(problem: Problem) -> tuple[Problem, Trim | None]:
    """Find the contraction that remains, and the trim; None if nothing is left out."""
    geometry = problem.geometry
    trimmed = [_trim_axis(axis) for axis in geometry.axes]
    axes = [axis for axis, _ in trimmed]
    units = tuple(n for n, a in enumerate(axes) if a == UNIT)
    units = units[: geometry.rank - 1]  # one axis stays
    ends = {slot: tuple(left_out[slot] for _, left_out in trimmed) for slot in OPERANDS}
    trim = Trim(geometry, ends, units)
    normal = replace(problem, geometry=_replace_axes(geometry, _tile_axes(axes), units))
    return normal, trim if units or any(map(trim.leaves_out, OPERANDS)) else None


def _trim_axis(axis: Axis) -> tuple[Axis, dict[Slot, Cut]]:
    """Trim an axis; also count the elements that are left out at the ends of each tensor."""
    taps, coarse = _find_readers(axis), _find_readers(axis.exchanged())
    if not taps:  # nor coarse: only padding is read
        nothing = Axis(0, 0, 0, stride=1, dilation=1, pad_low=0)
        return nothing, {slot: (0, getattr(axis, slot)) for slot in OPERANDS}
    pad_low = axis.pad_low - axis.dilation * taps[0] - axis.stride * coarse[0]
    inner = replace(
        axis,
        kernel=len(taps),
        coarse=len(coarse),
        stride=axis.stride if len(coarse) > 1 else 1,
        dilation=axis.dilation if len(taps) > 1 else 1,
        pad_low=pad_low,
    )
    low = max(-pad_low, 0)
    high = max(1 - inner.stride - inner.pad_high, 0)
    inner = replace(inner, fine=inner.fine - low - high, pad_low=pad_low + low)
    return inner, {
        "fine": (low, high),
        "kernel": (taps[0], axis.kernel - 1 - taps[-1]),
        "coarse": (coarse[0], axis.coarse - 1 - coarse[-1]),
    }


def _find_readers(axis: Axis) -> range:
    """Find the taps that read a fine pixel in any window, from the first to the last."""
    # Tap t and window q read position dilation*t + stride*q - pad, which must be in 0..fine-1.
    first = max(-(-(axis.pad_low - (axis.span - 1)) // axis.dilation), 0)
    last = min((axis.fine - 1 + axis.pad_low) // axis.dilation, axis.kernel - 1)
    # A tap in this range may still miss a fine tensor that is shorter than the stride.
    while first <= last and not _reads_pixel(axis, first):
        first += 1
    while first <= last and not _reads_pixel(axis, last):
        last -= 1
    return range(first, last + 1)


def _reads_pixel(axis: Axis, tap: int) -> bool:
    start = axis.dilation * tap - axis.pad_low
    nearest = max(-(start // axis.stride), 0)  # the first q with start + stride*q >= 0
    return nearest < axis.coarse and start + axis.stride * nearest < axis.fine


def _tile_axes(axes: list[Axis]) -> list[Axis]:
    """Give axes of a single window the number of taps as stride, if all axes tile then."""
    tiled = [replace(a, stride=a.kernel) if a.coarse == 1 and a.dilation == 1 else a for a in axes]
    return tiled if all(a.kernel == a.stride and a.dilation == 1 for a in tiled) else axes


def _replace_axes(geometry: Geometry, axes: list[Axis], units: tuple[int, ...]) -> Geometry:
    """Put these axes into a geometry, but leave out the `units`, axes of one element."""
    return replace(
        geometry,
        axes=tuple(a for n, a in enumerate(axes) if n not in units),
        data=_renumber_axes(geometry.data, units),
        kernel=_renumber_axes(geometry.kernel, units),
    )


Layout = TypeVar("Layout", DataLayout, KernelLayout)


def _renumber_axes(layout: Layout, units: tuple[int, ...]) -> Layout:
    gone = [layout.spatial[n] for n in units]
    left = (axis - sum(g < axis for g in gone) for axis in layout.spec if axis not in gone)
    one, other, *spatial = left
    return type(layout)(one, other, tuple(spatial))
