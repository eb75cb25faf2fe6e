"""From a primitive's parameters to a plan, and to lax.

A plan says as data how a contraction is computed; emission follows it, and chooses no other form.

Each platform has a table, whose first line that holds decides (`Line.holds`). A form computes a
contraction, or rewrites the contraction as others, its parts, which the same table plans. So a plan
is a tree. The plan follows from sizes alone, before anything is traced: `explain` prints the plan,
`forced` and `measure` make other plans.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial

import jax
from jax import Array, lax

from jaxconv._base.dtypes import ACCUMULATION
from jaxconv._base.environment import Target
from jaxconv._base.finish import Finish
from jaxconv._base.geometry import OPERANDS, Geometry, Slot, reorder
from jaxconv._base.typing import DType, Precision
from jaxconv._lowering import cpu, gpu, onednn_here, tpu
from jaxconv._lowering.force import FORMS, PORTABLE, Forced, Measured, name_problem
from jaxconv._lowering.forms import reference
from jaxconv._lowering.forms.blocks import are_small, call_isolated
from jaxconv._lowering.normal import Trim, normalise
from jaxconv._lowering.problem import Call, Form, Numerics, Problem, Tables, problem_of

#: `None` stands for every other platform; JAX takes "gpu" for CUDA, ROCm and oneAPI.
TABLES: dict[str | None, Tables] = {
    None: tpu.OTHERS, "cpu": cpu.TABLES, "gpu": gpu.TABLES, "tpu": tpu.TABLES
}  # fmt: skip


@dataclass(frozen=True)
class Plan:
    """How one contraction is computed."""

    form: Form
    why: str = field(compare=False)
    #: the problem of the form: normal sizes, in layouts that the form takes, and with a `finish` if
    #: the form, or the part that it is, computes what follows the sum
    problem: Problem
    #: the same geometry in the layouts of the operands
    outer: Geometry
    trim: Trim | None = None
    parts: tuple["Plan", ...] = ()
    isolated: bool = False
    #: what decided: the slot and the name of a line, or "symbolic"; empty if nothing had to
    line: str = field(default="", compare=False)

    def steps(self) -> Iterator[tuple[str, str]]:
        """Yield the name of each form in use and the reason, the outermost first."""
        adds = "; with what follows the sum" if self.problem.finish and not self.parts else ""
        yield self.form.name, self.why + adds
        for part in self.parts:
            yield from part.steps()

    def any_by_name(self) -> bool:
        """Whether the form of the contraction, or of one of its parts, was asked for by name."""
        by_name = not self.line and not self.problem.empty
        return by_name or any(part.any_by_name() for part in self.parts)


def lower(
    result: Slot,
    first: Array,
    second: Array,
    *extras: Array,
    target: Target,
    geometry: Geometry,
    precision: Precision,
    dtype: DType,
    early_rounding: bool = False,
    finish: Finish | None = None,
    forced: Forced,
    tell: Callable[[Plan], None] | None = None,
) -> Array:
    """Compute the third tensor: sum in a wide type, finish, and round once.

    On GPU and TPU, a sum of 16-bit operands that is finished and then rounded to 16 bits, here
    (`finish`) or by the caller (`early_rounding`), leaves the form in 16 bits and is rounded twice:
    sums are float32 inside anyway, and for a float32 result XLA:GPU would first convert both
    operands. `tell` is called with the plan.
    """
    if target.may_call_onednn:
        onednn_here.warn_once()
    platform = target.platform
    problem = problem_of(result, first, second, geometry, dtype, target, finish)
    first, second = (lax.convert_element_type(x, problem.dtype) for x in (first, second))
    plan = choose_plan(problem, platform, forced)
    if tell:
        tell(plan)
    # What follows is computed in the type of sums, unless the form does it.
    rest = None if plan.problem.finish else finish
    sum_dtype = dtype if rest is None else ACCUMULATION[dtype]
    may_round = platform != "cpu" and (early_rounding or sum_dtype != dtype)
    form_dtype = first.dtype if may_round else sum_dtype
    out = emit_plan(plan, first, second, Numerics(precision, form_dtype), extras)
    if rest is None:
        return lax.convert_element_type(out, dtype)
    if platform != "gpu":  # XLA:GPU takes additions in 16 bits into cuDNN's call, which rounds once
        out = lax.convert_element_type(out, sum_dtype)
    return rest.apply(out, extras, geometry.data.channel, dtype)


def choose_plan(
    problem: Problem, platform: str | None, forced: Forced = None, without: str = ""
) -> Plan:
    """Plan a contraction; other forms than the reference are forced on CPU only.

    Benchmarks plan `without` a line of the table, to learn what the line is worth.
    """
    if without:
        return _plan(problem, platform, without=without)
    on_cpu = platform == "cpu"
    if isinstance(forced, Measured):
        name, why = forced.form(problem) if on_cpu else (None, "")
    else:
        name, why = forced, "forced"
    if name == PORTABLE:
        return _plan(replace(problem, onednn=False), platform)
    if name is None or not (on_cpu or name == "reference"):
        return _plan(problem, platform)
    # Another version may have measured a form that is gone.
    found = _plan(problem, platform, FORMS[name], why) if name in FORMS else None
    if found and (found.problem.empty or found.any_by_name()):
        return found
    if isinstance(forced, Measured):
        return _plan(problem, platform)
    rule = f"forced: `form` must be one that can compute {name_problem(problem)}"
    raise ValueError(f"{rule}; got {forced!r}. 'portable' and None can compute all")


@lru_cache(maxsize=4096)
def _plan(
    problem: Problem,
    platform: str | None,
    asked: Form | None = None,
    why_asked: str = "",
    inside: bool = False,
    without: str = "",
) -> Plan:
    """Plan a contraction by the first line that holds.

    A form that is asked for computes the outermost contractions that it can compute. `inside` an
    isolated form, no part is isolated again. Forms are isolated on CPU only: XLA:GPU fuses well.
    """
    taken, trim = normalise(problem)
    if asked is not None and not taken.empty and asked.fills(taken):
        form, why, name = asked, why_asked, ""
        asked = None  # the tables plan the parts
    else:
        form, why, name = _choose_form(taken, platform, without)
    if form.any_sizes:
        taken, trim = problem, None
    inner = form.arrange(taken)
    isolate = form.isolated and not inside and platform == "cpu"
    may_finish = _may_finish(taken, inner, trim)
    inner_parts = form.parts(inner)
    if not (form.is_its_part and may_finish):
        inner_parts = tuple(replace(part, finish=None) for part in inner_parts)
    parts = tuple(
        _plan(part, platform, asked, why_asked, inside or isolate, without) for part in inner_parts
    )
    by_part = form.is_its_part and parts[0].problem.finish
    if not (may_finish and (form.finishes(inner) or by_part)):
        inner = replace(inner, finish=None)
    return Plan(form, why, inner, taken.geometry, trim, parts, isolate, name)


def _choose_form(normal: Problem, platform: str | None, without: str) -> tuple[Form, str, str]:
    """Choose a form; say why, and which line decided, if one did."""
    if normal.empty:
        return reference.ZEROS, "nothing is summed", ""
    counts = normal.geometry.groups, normal.fine_channels, normal.coarse_channels
    if not all(isinstance(n, int) for n in counts):
        return reference.FORM, "a symbolic number of channels or groups, by vmap", "symbolic"
    for line in TABLES.get(platform, TABLES[None])[normal.result]:
        name = f"{normal.result}: {line.name}"
        if name != without and line.holds(normal):
            return line.form, line.why, name
    raise AssertionError("the last line of each table holds for all contractions")


def _may_finish(taken: Problem, inner: Problem, trim: Trim | None) -> bool:
    """Whether there is a finish, the result is whole, and a residual lies as the result does."""
    moved = taken.geometry.data != inner.geometry.data
    still = inner.finish is not None and not (inner.finish.residual and moved)
    return still and not (trim and trim.leaves_out(inner.result))


def emit_plan(
    plan: Plan, first: Array, second: Array, numerics: Numerics, extras: Sequence[Array] = ()
) -> Array:
    """Compute the plan's contraction of two operands, in the layouts that the caller has.

    If the problem of the plan has a `finish`, `extras` are the bias and the residual.
    """

    def run(first: Array, second: Array) -> Array:
        with jax.named_scope(plan.form.name):  # for profiles
            return _emit(plan, numerics, first, second, extras if plan.problem.finish else ())

    if plan.isolated and not are_small(first, second):
        return call_isolated(run, first, second)
    return run(first, second)


def _emit(
    plan: Plan, numerics: Numerics, first: Array, second: Array, extras: Sequence[Array]
) -> Array:
    result, outer, inner = plan.problem.result, plan.outer, plan.problem.geometry
    if plan.trim:
        first, second = map(plan.trim.crop, OPERANDS[result], (first, second))
        extras = [plan.trim.crop(result, x) if x.ndim > 1 else x for x in extras]
    if outer != inner:
        first, second = (
            reorder(x, outer.layout(slot), inner.layout(slot))
            for slot, x in zip(OPERANDS[result], (first, second), strict=True)
        )
    parts = tuple(partial(emit_plan, part, extras=extras) for part in plan.parts)
    call = Call(plan.problem, numerics, parts, tuple(extras))
    out = plan.form.emit[result](first, second, call)
    out = lax.convert_element_type(out, numerics.dtype)  # before the transposition: fewer bytes
    if outer != inner:
        out = reorder(out, inner.layout(result), outer.layout(result))
    return plan.trim.pad_result(result, out) if plan.trim else out
