"""The geometry of a contraction: frozen integers, no strings, no batch, no channels; its layouts.

Per spatial axis, with a fine tensor of extent f, a coarse tensor of extent c and a
kernel of k taps,

    T(fine, K, coarse) = sum  fine[n, g, i, stride*q + dilation*t - pad_low]
                              * K[g, o, i, t] * coarse[n, g, o, q]

where `fine` reads as zero outside 0..f-1.
"""

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from jax import Array, lax

from jaxconv._base.typing import Extent, Shape

Slot = Literal["fine", "kernel", "coarse"]

#: A contraction fills one slot of the sum from the other two, in this order.
OPERANDS: dict[Slot, tuple[Slot, Slot]] = {
    "coarse": ("fine", "kernel"),
    "fine": ("coarse", "kernel"),
    "kernel": ("fine", "coarse"),
}


@dataclass(frozen=True)
class Axis:
    """One spatial axis of the sum."""

    fine: int
    kernel: int
    coarse: int
    stride: int
    dilation: int
    pad_low: int

    @property
    def extent(self) -> int:
        """The extent of the dilated kernel, from its first tap to its last."""
        return self.dilation * (self.kernel - 1) + 1

    @property
    def span(self) -> int:
        """The extent of the first tap's positions over the fine axis, from first to last."""
        return self.stride * (self.coarse - 1) + 1

    @property
    def reach(self) -> int:
        """The pixels and the padding from the first that any window reads to the last."""
        return self.span - 1 + self.extent

    @property
    def pad_high(self) -> int:
        """The padding after the fine axis that makes the geometry exact; negative crops."""
        return self.reach - self.fine - self.pad_low

    def padded(self) -> "Axis":
        """The axis of the tensor that is padded already."""
        return replace(self, fine=self.reach, pad_low=0)

    def reversed(self) -> "Axis":
        """The axis with fine and coarse exchanged, and taps in reverse order; only for stride 1."""
        pad = self.extent - 1 - self.pad_low
        return Axis(self.coarse, self.kernel, self.fine, 1, self.dilation, pad)

    def exchanged(self) -> "Axis":
        """The axis on which the coarse pixels are the taps, and the taps the coarse pixels."""
        return Axis(self.fine, self.coarse, self.kernel, self.dilation, self.stride, self.pad_low)


#: An axis of one pixel and one tap; put first, it makes an image of one row of a signal.
UNIT = Axis(fine=1, kernel=1, coarse=1, stride=1, dilation=1, pad_low=0)


class DataLayout(NamedTuple):
    """The axes of a fine or a coarse tensor, in the order of lax's dimension spec."""

    batch: int
    channel: int
    spatial: tuple[int, ...]

    @property
    def spec(self) -> tuple[int, ...]:
        """The axes in the order of `lax.ConvDimensionNumbers`."""
        return (self.batch, self.channel, *self.spatial)


class KernelLayout(NamedTuple):
    """The axes of a kernel.

    The coarse axis holds all coarse channels, group by group; the fine axis holds the
    fine channels of one group.
    """

    coarse: int
    fine: int
    spatial: tuple[int, ...]

    @property
    def spec(self) -> tuple[int, ...]:
        """The axes in the order of `lax.ConvDimensionNumbers`, if the output is coarse."""
        return (self.coarse, self.fine, *self.spatial)


def reorder(x: Array, source: tuple[int, ...], target: tuple[int, ...]) -> Array:
    """Move each axis from its place in one layout to its place in another."""
    place = dict(zip(target, source, strict=True))
    return lax.transpose(x, [place[axis] for axis in range(x.ndim)])


@dataclass(frozen=True)
class Geometry:
    """All that the three contractions of one sum share."""

    axes: tuple[Axis, ...]
    groups: int
    data: DataLayout
    kernel: KernelLayout

    @property
    def rank(self) -> int:
        """The number of spatial axes."""
        return len(self.axes)

    def layout(self, slot: Slot) -> tuple[int, ...]:
        """The axes of the tensor in a slot."""
        return self.kernel.spec if slot == "kernel" else self.data.spec

    def shape(self, slot: Slot, first: Shape, second: Shape) -> Shape:
        """Find the shape of the tensor in a slot from the shapes of the other two."""
        data, kernel = self.data, self.kernel
        if slot == "kernel":
            return self.shape_of(slot, second[data.channel], first[data.channel] // self.groups)
        if slot == "coarse":
            return self.shape_of(slot, first[data.batch], second[kernel.coarse])
        return self.shape_of(slot, first[data.batch], second[kernel.fine] * self.groups)

    def shape_of(self, slot: Slot, first: Extent, second: Extent) -> Shape:
        """The shape of the tensor in a slot, by the extents of the first two axes of its layout."""
        extents = (first, second, *(getattr(axis, slot) for axis in self.axes))
        at = dict(zip(self.layout(slot), extents, strict=True))
        return tuple(at[axis] for axis in range(self.rank + 2))

    def with_groups(self, groups: int) -> "Geometry":
        """The same geometry over another number of groups."""
        return replace(self, groups=groups)

    def padded(self) -> "Geometry":
        """The same geometry over a fine tensor that is padded already."""
        return replace(self, axes=tuple(a.padded() for a in self.axes))

    def canonical(self, channels_first: bool = False) -> "Geometry":
        """The same geometry with data (N, X, C), or (N, C, X), and kernel (X, fine, coarse)."""
        spatial = tuple(range(self.rank))
        before, channel = (2, 1) if channels_first else (1, self.rank + 1)
        return replace(
            self,
            data=DataLayout(0, channel, tuple(a + before for a in spatial)),
            kernel=KernelLayout(self.rank + 1, self.rank, spatial),
        )
