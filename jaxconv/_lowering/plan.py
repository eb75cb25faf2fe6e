"""A plan says as data how a contraction is computed; emission follows it and decides nothing.

A platform has a table of regimes, read from the top: the first that holds, and whose form can
compute the contraction, decides. A form computes a contraction, or rewrites it as other ones, its
parts, which are planned by the same table. So a plan is a tree, made of sizes alone before anything
is traced: `explain` prints it, `forced` and `measure` make others.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from typing import Protocol

from jax import Array, lax

from jaxconv._geometry import OPERANDS, Geometry, Slot
from jaxconv._lowering.isolate import isolated
from jaxconv._lowering.normal import Trim, normalise
from jaxconv._lowering.problem import Numerics, Problem
from jaxconv._reshape import reorder

#: A part of a rewrite, planned: it contracts two operands.
Part = Callable[[Array, Array, Numerics], Array]
Parts = tuple[Part, ...]


class Emit(Protocol):
    """How a form computes one result from two operands in the layouts of the geometry."""

    def __call__(
        self, first: Array, second: Array, /, *, geometry: Geometry, numerics: Numerics
    ) -> Array: ...


class Rewrite(Protocol):
    """The same, by its parts."""

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
    #: by the slot that it fills; a slot that is not here it cannot fill
    emit: Mapping[Slot, Emit | Rewrite] = field(hash=False)
    #: what else it cannot do
    cannot: Callable[[Problem], bool] = lambda p: False
    #: of a rewrite: the contractions that it makes
    parts: Callable[[Problem], tuple[Problem, ...]] | None = None
    #: of the sizes at hand; else what contributes nothing is left out before
    any_sizes: bool = False
    #: in the layouts at hand; else data is transposed to channels-last, the kernel to (X, i, o)
    any_layout: bool = False
    #: with the channels first instead
    channels_first: bool = False
    #: of a kernel in the layout at hand
    any_kernel: bool = False
    #: results of several operations, which XLA must not fuse with the program around them
    isolated: tuple[Slot, ...] = ("fine", "kernel", "coarse")

    def fills(self, problem: Problem) -> bool:
        """Whether it can compute this contraction."""
        return problem.result in self.emit and not self.cannot(problem)


@dataclass(frozen=True)
class Regime:
    """A line of a table: where `when` holds, compute by `form` if it can, because of `why`."""

    name: str
    form: Form
    when: Callable[[Problem], bool]
    why: str

    def holds(self, problem: Problem) -> bool:
        """Whether it decides about this contraction, if none before it does."""
        return self.form.fills(problem) and self.when(problem)


Table = tuple[Regime, ...]


@dataclass(frozen=True)
class Plan:
    """How one contraction is computed."""

    form: Form
    why: str
    #: what the form is given: normal, and in a layout that it knows
    problem: Problem
    #: the geometry in the layouts at hand, where it differs
    here: Geometry
    trim: Trim | None = None
    parts: tuple["Plan", ...] = ()
    isolated: bool = False

    def steps(self) -> Iterator[tuple[str, str]]:
        """The names of the forms in use and why, the outermost first."""
        yield self.form.name, self.why
        for part in self.parts:
            yield from part.steps()


@lru_cache(maxsize=4096)
def plan(
    problem: Problem, table: Table, forced: Regime | None = None, inside: bool = False
) -> Plan:
    """By the first regime that holds.

    What is `forced` takes the place of the first form that it can replace. `inside` another form
    that is isolated, nothing is isolated once more.
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
    """Compute the plan's contraction of two operands in the layouts at hand."""
    run = partial(_emit, plan, numerics)
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
    out = lax.convert_element_type(out, numerics.dtype)  # before it is moved: there is less of it
    if here != there:
        out = reorder(out, there.layout(result), here.layout(result))
    return plan.trim.result(result, out) if plan.trim else out
