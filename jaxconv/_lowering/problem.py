"""One contraction in sizes: what the choice of a form depends on, besides the processor.

Nothing in it is traced.
"""

import math
from dataclasses import dataclass, replace

from jaxconv._base.dtypes import ACCUMULATION
from jaxconv._base.finish import Finish
from jaxconv._base.geometry import OPERANDS, Geometry, Slot
from jaxconv._base.target import Target
from jaxconv._base.typing import DType, Precision, Shape, Typed
from jaxconv._lowering import onednn_here


@dataclass(frozen=True)
class Numerics:
    """The precision of products, and the types of the result and of the sums."""

    precision: Precision
    #: type of the result
    dtype: DType

    @property
    def sums(self) -> DType:
        """The type of partial sums."""
        return ACCUMULATION.get(self.dtype, self.dtype)  # of 8-bit integers, int32 itself

    @property
    def wide(self) -> "Numerics":
        """The numerics of a part whose result is a partial sum."""
        return replace(self, dtype=self.sums)


@dataclass(frozen=True)
class Problem:
    """A contraction and the sizes that decide which form is fast."""

    result: Slot
    geometry: Geometry
    #: number of images; None if it is symbolic
    batch: int | None
    #: channels of one group
    fine_channels: int
    coarse_channels: int
    #: type of the operands
    dtype: DType
    #: number of devices over which XLA itself splits the program
    devices: int = 1
    #: whether the program may call oneDNN; `onednn_call.is_safe` looks at the sizes
    onednn: bool = False
    #: whether the result is interleaved with the results of other contractions
    phase: bool = False
    #: what follows the sum
    finish: Finish | None = None

    def shape(self, slot: Slot) -> Shape:
        """The shape of the tensor in a slot."""
        geometry, axes = self.geometry, self.geometry.axes
        fine, coarse = (n * geometry.groups for n in (self.fine_channels, self.coarse_channels))
        sizes: dict[Slot, Shape] = {
            "fine": (self.batch, fine, *(a.fine for a in axes)),
            "coarse": (self.batch, coarse, *(a.coarse for a in axes)),
            "kernel": (coarse, self.fine_channels, *(a.kernel for a in axes)),
        }
        at = dict(zip(geometry.layout(slot), sizes[slot], strict=True))
        return tuple(at[axis] for axis in range(len(at)))

    def canonical(self, channels_first: bool = False) -> "Problem":
        """The same contraction with data (N, X, C) or (N, C, X), and a kernel (X, fine, coarse)."""
        return replace(self, geometry=self.geometry.canonical(channels_first))

    @property
    def channels_first(self) -> bool:
        """Whether the channels of data stand before the spatial axes."""
        return self.geometry.data.channel == 1

    @property
    def channels_last(self) -> bool:
        """Whether the channels of data are its last axis."""
        return self.geometry.data.channel == self.geometry.rank + 1

    @property
    def rank(self) -> int:
        """The number of spatial axes."""
        return self.geometry.rank

    @property
    def bits(self) -> int:
        """Bits of one element of the operands."""
        return 8 * self.dtype.itemsize

    @property
    def partitioned(self) -> bool:
        """Whether XLA itself splits the program over several devices."""
        return self.devices > 1

    @property
    def counted(self) -> bool:
        """Whether the number of images is known."""
        return self.batch is not None

    @property
    def empty(self) -> bool:
        """Whether nothing is summed: there are no images, or all taps read padding alone."""
        axes = self.geometry.axes
        return self.batch == 0 or any(0 in (a.fine, a.kernel, a.coarse) for a in axes)

    @property
    def dense(self) -> bool:
        """Whether there is one group."""
        return self.geometry.groups == 1

    @property
    def depthwise(self) -> bool:
        """Whether there are several groups, of one fine and one coarse channel each."""
        return not self.dense and self.fine_channels == self.coarse_channels == 1

    @property
    def summed(self) -> int:
        """Channels that one element of a result to fine or coarse sums over."""
        return self.coarse_channels if self.result == "fine" else self.fine_channels

    @property
    def pairs(self) -> int:
        """Pairs of a fine and a coarse channel in one group."""
        return self.fine_channels * self.coarse_channels

    @property
    def taps(self) -> int:
        """Taps of the kernel: its elements for each pair of channels."""
        return math.prod(a.kernel for a in self.geometry.axes)

    @property
    def positions(self) -> int:
        """Pixels of a coarse image."""
        return math.prod(a.coarse for a in self.geometry.axes)

    @property
    def pixels(self) -> float:
        """Pixels of all coarse images; infinite where the batch is symbolic."""
        return (math.inf if self.batch is None else self.batch) * self.positions

    @property
    def work(self) -> float:
        """Multiply-adds; infinite where the batch is symbolic."""
        return self.pixels * self.taps * self.geometry.groups * self.pairs

    @property
    def bytes_of_data(self) -> int:
        """Bytes of both tensors of data in float32, of a batch that is known."""
        return 4 * sum(math.prod(self.shape(slot)) for slot in ("fine", "coarse"))

    @property
    def strided(self) -> bool:
        """Whether some stride is not 1."""
        return any(a.stride > 1 for a in self.geometry.axes)

    @property
    def dilated(self) -> bool:
        """Whether some dilation is not 1."""
        return any(a.dilation > 1 for a in self.geometry.axes)

    @property
    def pointwise(self) -> bool:
        """Whether the kernel has one tap."""
        return self.taps == 1

    @property
    def tiles(self) -> bool:
        """Whether windows neither overlap nor leave gaps, as in a reshape of the data."""
        return all(a.kernel == a.stride and a.dilation == 1 for a in self.geometry.axes)


def problem_of(
    result: Slot,
    first: Typed,
    second: Typed,
    geometry: Geometry,
    dtype: DType,
    target: Target,
    finish: Finish | None = None,
) -> Problem:
    """Describe the contraction of two arrays, or of their types, to a result of this type.

    Float64 sums need float64 operands.
    """
    shapes = dict(zip(OPERANDS[result], (first.shape, second.shape), strict=True))
    shapes[result] = geometry.shape(result, first.shape, second.shape)
    data, groups = geometry.data, geometry.groups
    batch = shapes["fine"][data.batch]
    return Problem(
        result,
        geometry,
        batch if isinstance(batch, int) else None,
        shapes["fine"][data.channel] // groups,
        shapes["coarse"][data.channel] // groups,
        dtype if dtype.itemsize == 8 else first.dtype,
        devices=target.devices,
        onednn=target_allows_onednn(target) and onednn_here.unavailable() is None,
        finish=finish,
    )


def target_allows_onednn(target: Target) -> bool:
    """Whether a program for this target may call oneDNN; `onednn_here` says if this process may."""
    return target.platform == "cpu" and target.alone
