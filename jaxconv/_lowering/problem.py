"""What a choice of spelling may look at: one contraction, channels-last."""

import math
from dataclasses import dataclass

from jaxconv._dtypes import DType
from jaxconv._geometry import Geometry, Slot


@dataclass(frozen=True)
class Problem:
    """A contraction on CPU, with the sizes that decide which spelling is fast."""

    result: Slot
    geometry: Geometry
    #: None where it is symbolic: then no choice may depend on it
    batch: int | None
    #: channels of one group
    fine: int
    coarse: int
    #: of the operands
    dtype: DType
    #: whether XLA will split the program over several devices by itself
    partitioned: bool = False

    @property
    def taps(self) -> int:
        """Elements of the kernel per pair of channels."""
        return math.prod(a.kernel for a in self.geometry.axes)

    @property
    def dense(self) -> bool:
        """One group."""
        return self.geometry.groups == 1

    @property
    def depthwise(self) -> bool:
        """Each group has one fine channel."""
        return not self.dense and self.fine == 1

    @property
    def strided(self) -> bool:
        """Some stride is not 1."""
        return any(a.stride > 1 for a in self.geometry.axes)

    @property
    def pointwise(self) -> bool:
        """The kernel has one tap."""
        return self.taps == 1

    @property
    def patches(self) -> bool:
        """The windows neither overlap nor leave gaps, so that they are a reshape."""
        return all(a.kernel == a.stride and a.dilation == 1 for a in self.geometry.axes)
