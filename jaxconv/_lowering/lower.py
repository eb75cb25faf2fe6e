"""From a primitive's parameters to a problem, to a plan, and to lax."""

import jax
from jax import Array, lax

from jaxconv._base.geometry import Geometry, Slot
from jaxconv._base.typing import DType, Precision, Typed
from jaxconv._lowering import onednn_here, xla_here
from jaxconv._lowering.plan import Forced, choose_plan, emit_plan
from jaxconv._lowering.problem import Numerics, Problem


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
    """Compute the third tensor, summed in a wide type and rounded once.

    An accelerator accumulates a 16-bit convolution in float32 by itself. For a float32 result,
    XLA:GPU would convert both operands first. So a result that the caller rounds anyway, after
    adding a bias (`early_rounding`), has 16 bits there. Only such a sum is rounded twice.
    """
    if _may_call(platform, devices, exported):
        onednn_here.warn_once()
    problem = problem_of(
        result, first, second, geometry, dtype, platform, devices=devices, exported=exported
    )
    first, second = (lax.convert_element_type(x, problem.dtype) for x in (first, second))
    native = first.dtype if early_rounding and platform != "cpu" else dtype
    plan = choose_plan(problem, platform, forced)
    out = emit_plan(plan, first, second, Numerics(precision, native))
    return lax.convert_element_type(out, dtype)


def problem_of(
    result: Slot,
    first: Typed,
    second: Typed,
    geometry: Geometry,
    dtype: DType,
    platform: str | None,
    *,
    devices: int = 1,
    exported: bool = False,
) -> Problem:
    """Describe the contraction of two arrays, or of their types, to a result of this type.

    Float64 sums need float64 operands. Programs that are exported, or split over devices by XLA, do
    not call oneDNN.
    """
    if dtype.itemsize == 8:
        first, second = (jax.ShapeDtypeStruct(x.shape, dtype) for x in (first, second))
    calls = _may_call(platform, devices, exported) and onednn_here.unavailable() is None
    program = {"devices": devices, "onednn": calls, "fast_dense": xla_here.fast_dense()}
    return Problem.of(result, first, second, geometry, **program)


def _may_call(platform: str | None, devices: int, exported: bool) -> bool:
    """Whether a program may call oneDNN, if this process may."""
    return platform == "cpu" and devices == 1 and not exported
