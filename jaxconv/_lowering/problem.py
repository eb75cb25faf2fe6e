"""One contraction in sizes: all that a choice of form may look at, and nothing traced."""

import math
from dataclasses import dataclass, replace
from typing import Any

from jaxconv._attributes import Precision
from jaxconv._dtypes import ACCUMULATION
from jaxconv._geometry import OPERANDS, Geometry, Slot
from jaxconv._typing import DType, Shape, Typed


@dataclass(frozen=True)
class Numerics:
    """How a contraction is to be computed."""

    precision: Precision
    #: of the result
    dtype: DType

    @property
    def sums(self) -> DType:
        """What partial sums are kept in."""
        return ACCUMULATION[self.dtype]

    @property
    def wide(self) -> "Numerics":
        """The same for a partial sum."""
        return replace(self, dtype=self.sums)


@dataclass(frozen=True)
class Problem:
    """A contraction with the sizes that decide which form is fast."""

    result: Slot
    geometry: Geometry
    #: images; None where their number is symbolic
    batch: int | None
    #: channels of one group
    fine: int
    coarse: int
    #: of the operands
    dtype: DType
    #: over how many of them XLA will split the program by itself
    devices: int = 1
    #: whether the program may call oneDNN, as far as the program goes
    onednn: bool = False
    #: one of several contractions whose results are interleaved
    phase: bool = False

    @classmethod
    def of(
        cls, result: Slot, first: Typed, second: Typed, geometry: Geometry, **program: Any
    ) -> "Problem":
        """The contraction of two operands, or of their types, in the order of `OPERANDS`."""
        shapes = dict(zip(OPERANDS[result], (first.shape, second.shape), strict=True))
        shapes[result] = geometry.shape(result, first.shape, second.shape)
        data, groups = geometry.data, geometry.groups
        batch = shapes["fine"][data.batch]
        return cls(
            result,
            geometry,
            batch if isinstance(batch, int) else None,
            shapes["fine"][data.channel] // groups,
            shapes["coarse"][data.channel] // groups,
            first.dtype,
            **program,
        )

    def shape(self, slot: Slot) -> Shape:
        """The shape of the tensor in a slot."""
        geometry, groups = self.geometry, self.geometry.groups
        sizes: dict[Slot, Shape] = {
            "fine": (self.batch, groups * self.fine, *(a.fine for a in geometry.axes)),
            "coarse": (self.batch, groups * self.coarse, *(a.coarse for a in geometry.axes)),
            "kernel": (groups * self.coarse, self.fine, *(a.kernel for a in geometry.axes)),
        }
        at = dict(zip(geometry.layout(slot), sizes[slot], strict=True))
        return tuple(at[axis] for axis in range(len(at)))

    def canonical(self, channels_first: bool = False) -> "Problem":
        """The same contraction of data in one of two layouts, and a kernel (X, fine, coarse)."""
        return replace(self, geometry=self.geometry.canonical(channels_first))

    @property
    def channels_first(self) -> bool:
        """Whether the channels of data stand before the spatial axes."""
        return self.geometry.data.channel == 1

    @property
    def rank(self) -> int:
        """Spatial axes."""
        return self.geometry.rank

    @property
    def bits(self) -> int:
        """The size of one element of the operands."""
        return 8 * self.dtype.itemsize

    @property
    def partitioned(self) -> bool:
        """Whether XLA will split the program over several devices."""
        return self.devices > 1

    @property
    def counted(self) -> bool:
        """Whether the number of images is known."""
        return self.batch is not None

    @property
    def empty(self) -> bool:
        """Whether nothing is summed: no images, or no tap reads anything but padding."""
        axes = self.geometry.axes
        return self.batch == 0 or any(0 in (a.fine, a.kernel, a.coarse) for a in axes)

    @property
    def dense(self) -> bool:
        """One group."""
        return self.geometry.groups == 1

    @property
    def depthwise(self) -> bool:
        """Groups of one fine and one coarse channel."""
        return not self.dense and self.fine == self.coarse == 1

    @property
    def summed(self) -> int:
        """Channels of a group that one result to fine or coarse sums over."""
        return self.coarse if self.result == "fine" else self.fine

    @property
    def taps(self) -> int:
        """Elements of the kernel for each pair of channels."""
        return math.prod(a.kernel for a in self.geometry.axes)

    @property
    def positions(self) -> int:
        """Pixels of a coarse image."""
        return math.prod(a.coarse for a in self.geometry.axes)

    @property
    def work(self) -> float:
        """Multiply-adds; infinite where the batch is symbolic."""
        batch = math.inf if self.batch is None else self.batch
        channels = self.geometry.groups * self.fine * self.coarse
        return batch * self.positions * self.taps * channels

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
        """Whether the windows neither overlap nor leave gaps, so that they are a reshape."""
        return all(a.kernel == a.stride and a.dilation == 1 for a in self.geometry.axes)
