"""What a choice of spelling may look at of one contraction, and what makes a choice."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax

from jaxconv._dtypes import DType
from jaxconv._geometry import OPERANDS, Geometry, Slot

#: XLA:CPU changed between the supported versions: a float32 convolution now uses all cores
#: for few channels too, but takes twice as long for small images, and a loop may run on one core.
NEWER = jax.__version_info__ >= (0, 11)

#: So few multiply-adds are little work.
TINY = 24e6

#: As many taps as may each have a piece of the program, a slice of the windows or a dot; and as
#: many phases.
MOST_TAPS, MOST_PHASES = 256, 15


@dataclass(frozen=True)
class Problem:
    """A contraction with the sizes that decide which spelling is fast."""

    result: Slot
    geometry: Geometry
    #: None where it is symbolic
    batch: int | None
    #: channels of one group
    fine: int
    coarse: int
    #: of the operands
    dtype: DType
    #: over how many of them XLA will split the program by itself
    devices: int = 1
    #: one of several, which run side by side
    phase: bool = False

    @classmethod
    def of(
        cls, result: Slot, first: Any, second: Any, geometry: Geometry, devices: int
    ) -> "Problem":
        """Of the two operands, in the order of `OPERANDS`."""
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
            devices,
        )

    def shape(self, slot: Slot) -> tuple[Any, ...]:
        """Of the tensor in a slot."""
        geometry, groups = self.geometry, self.geometry.groups
        sizes: dict[Slot, tuple[Any, ...]] = {
            "fine": (self.batch, groups * self.fine, *(a.fine for a in geometry.axes)),
            "coarse": (self.batch, groups * self.coarse, *(a.coarse for a in geometry.axes)),
            "kernel": (groups * self.coarse, self.fine, *(a.kernel for a in geometry.axes)),
        }
        at = dict(zip(geometry.layout(slot), sizes[slot], strict=True))
        return tuple(at[axis] for axis in range(len(at)))

    @property
    def partitioned(self) -> bool:
        """Whether XLA will split the program over several devices."""
        return self.devices > 1

    @property
    def summed(self) -> int:
        """Channels of a group that one result sums over."""
        return self.coarse if self.result == "fine" else self.fine

    @property
    def taps(self) -> int:
        """Elements of the kernel per pair of channels."""
        return math.prod(a.kernel for a in self.geometry.axes)

    @property
    def pixels(self) -> int:
        """Places of an image."""
        return math.prod(a.fine for a in self.geometry.axes)

    @property
    def windows(self) -> float:
        """Elements of all windows, of a symbolic batch any number of them."""
        batch = math.inf if self.batch is None else self.batch
        return batch * self.positions * self.taps * self.geometry.groups * self.fine

    @property
    def work(self) -> float:
        """Multiply-adds, of a symbolic batch any number of them."""
        return self.windows * self.coarse

    @property
    def tiny(self) -> bool:
        """So little work that the pieces of a program cost more; never of a symbolic batch."""
        return self.work < TINY

    @property
    def large(self) -> bool:
        """So much of the coarse tensor that no cache holds it; never of a symbolic batch."""
        channels = self.geometry.groups * self.coarse
        return self.batch is not None and self.batch * self.positions * channels >= 2 << 20

    @property
    def counted(self) -> bool:
        """There is a number of images: neither symbolic nor 0."""
        return bool(self.batch)

    @property
    def dense(self) -> bool:
        """One group."""
        return self.geometry.groups == 1

    @property
    def depthwise(self) -> bool:
        """Each group has one fine channel."""
        return not self.dense and self.fine == 1

    @property
    def channels_first(self) -> bool:
        """The channels stand before the spatial axes."""
        return self.geometry.data.channel == 1

    @property
    def positions(self) -> int:
        """Places of the windows."""
        return math.prod(a.coarse for a in self.geometry.axes)

    @property
    def long_rows(self) -> bool:
        """In two dimensions or more, enough places along the last axis to make vectors of."""
        return self.rank > 1 and self.geometry.axes[-1].coarse >= 16

    @property
    def strided(self) -> bool:
        """Some stride is not 1."""
        return any(a.stride > 1 for a in self.geometry.axes)

    @property
    def many_phases(self) -> bool:
        """A data gradient with more residues by its strides than may each have their piece."""
        phases = math.prod(a.stride for a in self.geometry.axes)
        return self.result == "fine" and phases > MOST_PHASES

    @property
    def pointwise(self) -> bool:
        """The kernel has one tap."""
        return self.taps == 1

    @property
    def patches(self) -> bool:
        """The windows neither overlap nor leave gaps, so that they are a reshape."""
        return all(a.kernel == a.stride and a.dilation == 1 for a in self.geometry.axes)

    @property
    def foldable(self) -> bool:
        """The strides, to the kernel the last one, divide the kernel and can become channels."""
        axes = self.geometry.axes if self.result == "fine" else self.geometry.axes[-1:]
        divided = all(a.stride == 1 or (a.kernel % a.stride == 0 and a.dilation == 1) for a in axes)
        return divided and any(a.stride > 1 for a in axes)

    @property
    def tiled(self) -> bool:
        """As patches, and there is more than one of them."""
        return self.patches and any(a.coarse > 1 < a.kernel for a in self.geometry.axes)

    @property
    def rank(self) -> int:
        """Spatial axes."""
        return self.geometry.rank

    @property
    def bits(self) -> int:
        """Of one element of the operands."""
        return 8 * self.dtype.itemsize

    @property
    def along_first(self) -> bool:
        """The kernel has taps along the first axis only."""
        return all(a.kernel == 1 for a in self.geometry.axes[1:])

    @property
    def few_results(self) -> bool:
        """Very few result channels, whose products with all taps are not much data."""
        products = self.coarse * self.taps
        return (
            self.dense
            and not self.strided
            and self.coarse <= 4
            and products <= 4 * self.fine
            and self.pixels <= 4096
        )

    @property
    def small_images(self) -> bool:
        """In two dimensions or more, many channels, and few rows or taps far apart."""
        axes = [a for a in self.geometry.axes if a.kernel > 1]
        small = any(a.coarse <= 14 or a.dilation > 4 for a in axes)
        return self.rank > 1 and self.fine >= 64 and small

    @property
    def heavy(self) -> bool:
        """Weights that outgrow a core's cache by much, and are read for each tile of an image."""
        return self.taps * self.fine * self.coarse >= 2 << 20


@dataclass(frozen=True)
class Rule:
    """Use `spelling` `when` this holds, because of `why`."""

    spelling: str
    when: Callable[[Problem], bool]
    why: str
    #: in data of this layout, or, with None, of either
    channels_first: bool | None = False
