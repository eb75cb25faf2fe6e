"""A plan says as data how a contraction is computed; emission follows it and decides nothing.

Each platform has a table of regimes. The first regime that holds, and whose form can compute the
contraction, decides. A form computes a contraction, or rewrites it as others, its parts, which the
same table plans. So a plan is a tree. It follows from sizes alone, before anything is traced:
`explain` prints it, `forced` and `measure` make others.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Protocol

import jax
from jax import Array, lax

from jaxconv._geometry import OPERANDS, Geometry, Slot
from jaxconv._lowering.isolate import isolated
from jaxconv._lowering.normal import Trim, normalise
from jaxconv._lowering.problem import Numerics, Problem
from jaxconv._reshape import reorder

#: Computes one part of a rewrite from two operands.
Part = Callable[[Array, Array, Numerics], Array]
Parts = tuple[Part, ...]


class Emit(Protocol):
    """How a form computes one result from two operands in the layouts of the geometry."""

    def __call__(
        self, first: Array, second: Array, /, *, geometry: Geometry, numerics: Numerics
    ) -> Array: ...


class Rewrite(Protocol):
    """How a form computes one result by its parts."""

    def __call__(
        self,
        first: Array,
        second: Array,
        /,
        *,
        geometry: Geometry,
        numerics: Numerics,
        parts: Parts,
    ) -> Array: ...


@dataclass(frozen=True)
class Form:
    """One way to compute contractions: the record of a file of this folder."""

    name: str
    #: a function for each slot that the form can fill
    emit: Mapping[Slot, Emit | Rewrite] = field(hash=False)
    #: which contractions to these slots the form cannot compute
    cannot: Callable[[Problem], bool] = lambda p: False
    #: the contractions that a rewrite makes of one
    parts: Callable[[Problem], tuple[Problem, ...]] | None = None
    #: takes any sizes; for other forms, normal.py leaves out what contributes nothing
    any_sizes: bool = False
    #: takes any layouts; for other forms, data becomes channels-last, a kernel (X, i, o)
    any_layout: bool = False
    #: takes data with the channels first instead
    channels_first: bool = False
    #: takes a kernel in any layout
    any_kernel: bool = False
    #: slots for which the form has several operations, which XLA must not fuse with others
    isolated: tuple[Slot, ...] = ("fine", "kernel", "coarse")

    def fills(self, problem: Problem) -> bool:
        """Whether this form can compute a contraction."""
        return problem.result in self.emit and not self.cannot(problem)


@dataclass(frozen=True)
class Regime:
    """A line of a table: where `when` holds, `form` computes what it can; `why` says the reason."""

    name: str
    form: Form
    when: Callable[[Problem], bool]
    why: str

    def holds(self, problem: Problem) -> bool:
        """Whether this line decides about a contraction, unless an earlier line does."""
        return self.form.fills(problem) and self.when(problem)


Table = tuple[Regime, ...]


@dataclass(frozen=True)
class Plan:
    """How one contraction is computed."""

    form: Form
    why: str
    #: what the form computes: normal sizes, in layouts that the form takes
    problem: Problem
    #: the same geometry in the layouts of the operands
    here: Geometry
    trim: Trim | None = None
    parts: tuple["Plan", ...] = ()
    isolated: bool = False

    def steps(self) -> Iterator[tuple[str, str]]:
        """The name of each form in use and why it was chosen, the outermost first."""
        yield self.form.name, self.why
        for part in self.parts:
            yield from part.steps()


@lru_cache(maxsize=4096)
def plan(
    problem: Problem, table: Table, forced: Regime | None = None, inside: bool = False
) -> Plan:
    """The plan by the first regime that holds.

    `forced` decides instead about the outermost contractions that its form can compute. `inside`
    an isolated form, no part is isolated again.
    """
    normal, trim = normalise(problem)
    if forced is not None and forced.holds(normal) and not normal.empty:
        regime, forced = forced, None
    else:
        regime = next(r for r in table if r.holds(normal))
    form = regime.form
    if form.any_sizes:
        normal, trim = problem, None
    inner = normal if form.any_layout else normal.canonical(form.channels_first)
    if form.any_kernel and normal.result != "kernel":
        inner = replace(inner, geometry=replace(inner.geometry, kernel=normal.geometry.kernel))
    isolate = inner.result in form.isolated and not inside
    inner_parts = form.parts(inner) if form.parts else ()
    parts = tuple(plan(p, table, forced, inside or isolate) for p in inner_parts)
    return Plan(form, regime.why, inner, normal.geometry, trim, parts, isolate)


def emit(plan: Plan, first: Array, second: Array, numerics: Numerics) -> Array:
    """Compute the plan's contraction of two operands, in the layouts that the caller has."""

    def run(first: Array, second: Array) -> Array:
        with jax.named_scope(plan.form.name):  # what profiles show
            return _emit(plan, numerics, first, second)

    return (isolated(run) if plan.isolated else run)(first, second)


def _emit(plan: Plan, numerics: Numerics, first: Array, second: Array) -> Array:
    result, here, there = plan.problem.result, plan.here, plan.problem.geometry
    if plan.trim:
        first, second = plan.trim.operands(result, first, second)
    if here != there:
        first, second = (
            reorder(x, here.layout(slot), there.layout(slot))
            for slot, x in zip(OPERANDS[result], (first, second), strict=True)
        )
    form: Callable[..., Array] = plan.form.emit[result]
    if plan.form.parts:
        form = partial(form, parts=tuple(partial(emit, part) for part in plan.parts))
    out = form(first, second, geometry=there, numerics=numerics)
    out = lax.convert_element_type(out, numerics.dtype)  # before the transposition: fewer bytes
    if here != there:
        out = reorder(out, there.layout(result), here.layout(result))
    return plan.trim.result(result, out) if plan.trim else out
