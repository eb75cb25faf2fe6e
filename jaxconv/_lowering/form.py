"""A form computes a contraction, or rewrites a contraction as others; a table says which when."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from jax import Array

from jaxconv._base.geometry import Geometry, Slot
from jaxconv._lowering.problem import Numerics, Problem

#: Computes a part of a rewrite from two operands.
Part = Callable[[Array, Array, Numerics], Array]


@dataclass(frozen=True)
class Call:
    """What a form is told beside its two operands, which are in the layouts of the problem."""

    #: with a `finish` if the form, or its one part, adds what follows the sum
    problem: Problem
    numerics: Numerics
    #: the parts of a rewrite, planned for this problem
    parts: tuple[Part, ...] = ()
    #: the bias and the residual of the `finish`, as far as they are there
    extras: tuple[Array, ...] = ()

    @property
    def geometry(self) -> Geometry:
        """The geometry of the problem."""
        return self.problem.geometry

    @property
    def wide(self) -> "Call":
        """The same call to a result in the type of sums."""
        return replace(self, numerics=self.numerics.wide)

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
    parts: Callable[[Problem], tuple[Problem, ...]] | None = None
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
    #: slots for which the form has several operations, which XLA must not fuse with neighbours
    isolated: tuple[Slot, ...] = ("fine", "kernel", "coarse")
    #: whether the form adds what follows a sum itself
    finishes: Callable[[Problem], bool] = lambda p: False
    #: whether the result is that of the form's only part, which may then add what follows
    one_part: bool = False
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
        inner = problem.canonical(self.layouts == "channels first")
        if self.layouts == "any kernel" and problem.result != "kernel":
            return replace(inner, geometry=replace(inner.geometry, kernel=problem.geometry.kernel))
        return inner


@dataclass(frozen=True)
class Line:
    """A line of a table: where `when` holds, `form` computes, for the reason `why`."""

    name: str
    form: Form
    #: asked only about problems that the form can compute: see `holds`
    when: Callable[[Problem], bool]
    why: str
    #: a problem about which this line decides, and which another form would compute without it
    witness: Problem | None = None

    def holds(self, problem: Problem) -> bool:
        """Whether the line decides about a contraction, unless an earlier line does."""
        gathers = self.form.gathers and problem.partitioned
        return self.form.fills(problem) and not gathers and self.when(problem)


#: The lines for one slot, in order; and the tables of a platform.
Table = tuple[Line, ...]
Tables = Mapping[Slot, Table]
