"""One contraction in sizes, and the records that forms and tables are made of.

A choice looks at a `Problem` and at the processor, and at nothing that is traced. A form computes a
contraction, or rewrites it as others; a line of a table says which form when.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Literal

from jax import Array

from jaxconv._base.dtypes import ACCUMULATION
from jaxconv._base.environment import Target
from jaxconv._base.finish import Finish
from jaxconv._base.geometry import OPERANDS, Axis, Geometry, Slot
from jaxconv._base.typing import DType, Precision, Shape, Typed
from jaxconv._lowering import onednn_here

#: Elements of a padded image, in multiples of the elements of the tensors.
MAX_PADDED_RATIO = 1000


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
    #: whether the program may call oneDNN; `may_call` of `forms/onednn.py` looks at the sizes
    onednn: bool = False
    #: whether the result is interleaved with the results of other contractions
    phase: bool = False
    #: what follows the sum
    finish: Finish | None = None

    def of_axes(self, axes: Sequence[Axis]) -> "Problem":
        """The same contraction over other axes."""
        return replace(self, geometry=replace(self.geometry, axes=tuple(axes)))

    def shape(self, slot: Slot) -> Shape:
        """The shape of the tensor in a slot."""
        groups = self.geometry.groups
        fine, coarse = groups * self.fine_channels, groups * self.coarse_channels
        if slot == "kernel":
            return self.geometry.shape_of(slot, coarse, self.fine_channels)
        return self.geometry.shape_of(slot, self.batch, fine if slot == "fine" else coarse)

    @property
    def channels_first(self) -> bool:
        """Whether images and channels of data stand before the spatial axes."""
        return self.geometry.data.spec[:2] == (0, 1)

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
        """Whether nothing is summed: no images, or, as `normalise` tells, taps in padding alone."""
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

    @property
    def reaches_far(self) -> bool:
        """Whether windows reach over little else than padding, by strides and dilations.

        A padded image would exceed the memory; and XLA counts extents in 31 bits, and is silently
        wrong about larger ones.
        """
        axes = self.geometry.axes
        reach = [a.reach for a in axes]
        tensors = math.prod(a.fine for a in axes) + self.positions + self.taps
        return max(reach) >= 2**31 or math.prod(reach) > MAX_PADDED_RATIO * tensors


def problem_of(
    result: Slot,
    first: Typed,
    second: Typed,
    geometry: Geometry,
    dtype: DType,
    target: Target,
    finish: Finish | None = None,
) -> Problem:
    """Describe the contraction of two arrays, or of their types, to a result of this type."""
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
        dtype if dtype.itemsize == 8 else first.dtype,  # float64 sums need float64 operands
        devices=target.devices,
        onednn=target.may_call_onednn and onednn_here.why_unavailable() is None,
        finish=finish,
    )


#: Computes a part of a rewrite from two operands.
Part = Callable[[Array, Array], Array]


@dataclass(frozen=True)
class Call:
    """What a form is told beside its two operands, which are in the layouts of the problem."""

    #: with a `finish` if the form, or the part that it is, adds what follows the sum
    problem: Problem
    numerics: Numerics
    #: the parts of a rewrite, planned for this problem, which take `numerics`, too
    planned: tuple[Callable[..., Array], ...] = ()
    #: the bias and the residual of the `finish`, as far as they are there
    extras: tuple[Array, ...] = ()

    @property
    def geometry(self) -> Geometry:
        """The geometry of the problem."""
        return self.problem.geometry

    @property
    def parts(self) -> tuple[Part, ...]:
        """The parts of a rewrite, with results in the numerics of this call."""
        return tuple(partial(part, numerics=self.numerics) for part in self.planned)

    @property
    def part(self) -> Part:
        """The part of a rewrite that has one."""
        (part,) = self.parts
        return part

    @property
    def wide(self) -> "Call":
        """The same call to a result in the type of sums."""
        return replace(self, numerics=replace(self.numerics, dtype=self.numerics.sums))

    def of(self, geometry: Geometry) -> "Call":
        """The same call of other sizes or layouts."""
        return replace(self, problem=replace(self.problem, geometry=geometry))


#: How a form computes one result from two operands.
Emit = Callable[[Array, Array, Call], Array]


@dataclass(frozen=True)
class Form:
    """One way to compute contractions: the record of a file of `forms/`."""

    name: str
    #: a function for each slot that the form can fill
    emit: Mapping[Slot, Emit] = field(hash=False)
    #: whether the form cannot compute a contraction to one of these slots; tables say what is fast
    cannot: Callable[[Problem], bool] = lambda p: False
    #: the parts of a rewrite: the contractions that the form makes of a contraction
    parts: Callable[[Problem], tuple[Problem, ...]] = lambda p: ()
    #: takes any sizes; for other forms, normal.py leaves out what contributes nothing
    any_sizes: bool = False
    #: data (N, X, C), or (N, C, X) if "channels first", and a kernel (X, fine, coarse);
    #: "any kernel" takes the kernel as it is, and "any" takes all tensors so
    layouts: Literal["channels last", "channels first", "any kernel", "any"] = "channels last"
    #: takes 8-bit integers, too, summed in int32
    eight_bits: bool = False
    #: cuts or merges axes that XLA may split over devices, which would gather the data of all
    #: devices; so no line gives the form a program that XLA splits
    gathers: bool = False
    #: whether XLA:CPU must not fuse the operations of the form with their neighbours
    isolated: bool = True
    #: whether the form adds what follows a sum itself
    finishes: Callable[[Problem], bool] = lambda p: False
    #: whether the result is that of the form's only part, which may then add what follows
    is_its_part: bool = False
    #: was the fastest for some layer that a table gives to another form: `measure` times the form
    contender: bool = False

    def fills(self, problem: Problem) -> bool:
        """Whether the form can compute a contraction."""
        if problem.result not in self.emit or (problem.bits == 8 and not self.eight_bits):
            return False
        return not self.cannot(problem)

    def arrange(self, problem: Problem) -> Problem:
        """The same contraction in the layouts that the form takes."""
        if self.layouts == "any":
            return problem
        geometry = problem.geometry.canonical(self.layouts == "channels first")
        if self.layouts == "any kernel" and problem.result != "kernel":
            geometry = replace(geometry, kernel=problem.geometry.kernel)
        return replace(problem, geometry=geometry)


def wherever_it_can(problem: Problem) -> bool:
    """Always: a line decides about all that its form can compute, as `Form.cannot` says."""
    return True


@dataclass(frozen=True)
class Line:
    """A line of a table: where `when` holds, `form` computes, for the reason `why`."""

    name: str
    form: Form
    #: asked before the form is (see `holds`), about a problem in the layouts of the caller, or of
    #: the form whose part it is
    when: Callable[[Problem], bool]
    why: str

    def holds(self, problem: Problem) -> bool:
        """Whether the line decides about a contraction, unless an earlier line does.

        It does if `when` holds, and its form can compute the contraction; but not in a program that
        XLA splits over devices if the form `gathers`.
        """
        gathers = self.form.gathers and problem.partitioned
        return self.when(problem) and not gathers and self.form.fills(problem)


#: The lines for one slot, in order; and the tables of a platform.
Table = tuple[Line, ...]
Tables = Mapping[Slot, Table]
