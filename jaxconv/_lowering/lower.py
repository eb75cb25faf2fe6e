"""From a primitive's parameters to a plan, and from the plan to lax: one way for all platforms."""

from dataclasses import replace

import jax
from jax import Array, lax

from jaxconv._attributes import Precision
from jaxconv._geometry import Geometry, Slot
from jaxconv._lowering import cpu, gpu, onednn_here, tpu, xla_here
from jaxconv._lowering.force import FORMS, PORTABLE
from jaxconv._lowering.measured import Measured
from jaxconv._lowering.plan import Plan, Regime, Table, emit, plan
from jaxconv._lowering.problem import Numerics, Problem
from jaxconv._typing import DType, Typed

#: `None` is every platform without a table of its own; JAX takes "gpu" for CUDA and ROCm.
TABLES: dict[str | None, Table] = {None: tpu.TABLE, "cpu": cpu.TABLE, "gpu": gpu.TABLE}

Forced = str | Measured | None


def lower(
    result: Slot,
    first: Array,
    second: Array,
    *,
    platform: str | None,
    geometry: Geometry,
    precision: Precision,
    dtype: DType,
    early_rounding: bool,
    forced: Forced,
    devices: int,
    exported: bool,
) -> Array:
    """The third tensor, summed in a wide type and rounded once.

    An accelerator accumulates a 16-bit convolution in float32 by itself. For a float32 result,
    XLA:GPU would convert both operands first. So a result that the caller rounds anyway, after
    adding a bias (`early_rounding`), has 16 bits there. Only here is a sum rounded twice.
    """
    chosen = plan_of(
        result, first, second, geometry, dtype, platform, forced, devices=devices, exported=exported
    )
    if dtype.itemsize == 8:  # float64 sums need float64 operands
        first, second = (lax.convert_element_type(x, dtype) for x in (first, second))
    native = first.dtype if early_rounding and platform != "cpu" else dtype
    out = emit(chosen, first, second, Numerics(precision, native))
    return lax.convert_element_type(out, dtype)


def plan_of(
    result: Slot,
    first: Typed,
    second: Typed,
    geometry: Geometry,
    dtype: DType,
    platform: str | None,
    forced: Forced = None,
    *,
    devices: int = 1,
    exported: bool = False,
) -> Plan:
    """The plan for a contraction of two arrays, or of their types, to a result of this type.

    Programs that are exported, or split over devices by XLA, do not call oneDNN.
    """
    if dtype.itemsize == 8:
        first, second = (jax.ShapeDtypeStruct(x.shape, dtype) for x in (first, second))
    local = platform == "cpu" and devices == 1 and not exported
    calls = local and onednn_here.unavailable() is None
    program = {"devices": devices, "onednn": calls, "fast_dense": xla_here.fast_dense()}
    problem = Problem.of(result, first, second, geometry, **program)
    return planned(problem, platform, forced)


def planned(problem: Problem, platform: str | None, forced: Forced = None) -> Plan:
    """The plan for a contraction; other forms than the reference are forced on CPU only."""
    table = TABLES.get(platform, TABLES[None])
    inside = platform != "cpu"  # elsewhere nothing is isolated: XLA:GPU fuses well
    why = "forced"
    if isinstance(forced, Measured):
        forced, why = forced.form(problem) if platform == "cpu" else (None, "")
    if forced == PORTABLE:
        return plan(replace(problem, onednn=False), table, inside=inside)
    if forced is None or (platform != "cpu" and forced != "reference"):
        return plan(problem, table, inside=inside)
    found = None
    if form := FORMS.get(forced):  # another version may have measured a form that is gone
        found = plan(problem, table, Regime(forced, form, lambda p: True, why), inside)
    if found and (found.problem.empty or any(reason == why for _, reason in found.steps())):
        return found
    if why != "forced":
        return plan(problem, table, inside=inside)
    raise ValueError(f"forced: {forced!r} cannot compute this contraction: {problem}")
