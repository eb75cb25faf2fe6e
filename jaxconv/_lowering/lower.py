"""From a primitive's parameters to a problem, to a plan, and to lax."""

from typing import Any

import jax
from jax import Array, lax

from jaxconv._base.dtypes import ACCUMULATION
from jaxconv._base.finish import Finish
from jaxconv._base.geometry import Geometry, Slot
from jaxconv._base.typing import DType, Precision, Typed
from jaxconv._lowering import onednn_here, xla_here
from jaxconv._lowering.plan import Forced, choose_plan, emit_plan
from jaxconv._lowering.problem import Numerics, Problem


def lower(
    result: Slot,
    first: Array,
    second: Array,
    *extras: Array,
    platform: str | None,
    geometry: Geometry,
    precision: Precision,
    dtype: DType,
    early_rounding: bool = False,
    finish: Finish | None = None,
    forced: Forced,
    devices: int,
    exported: bool,
) -> Array:
    """Compute the third tensor, summed in a wide type, finished, and rounded once.

    An accelerator accumulates a 16-bit convolution in float32 by itself. For a float32 result,
    XLA:GPU would convert both operands first. So a sum that is rounded after a bias is added, say,
    here (`finish`) or by the caller (`early_rounding`), has 16 bits there. Only such a sum is
    rounded twice.
    """
    if _may_call(platform, devices, exported):
        onednn_here.warn_once()
    program: Any = {"devices": devices, "exported": exported, "finish": finish}
    problem = problem_of(result, first, second, geometry, dtype, platform, **program)
    first, second = (lax.convert_element_type(x, problem.dtype) for x in (first, second))
    plan = choose_plan(problem, platform, forced)
    summed = dtype if finish is None or plan.finished else ACCUMULATION[dtype]
    early = early_rounding or summed != dtype
    native = first.dtype if early and platform != "cpu" else summed
    out = emit_plan(plan, first, second, Numerics(precision, native), extras)
    if platform != "gpu":  # XLA:GPU takes additions in 16 bits into cuDNN's call, which rounds once
        out = lax.convert_element_type(out, summed)
    if finish is None or plan.finished:
        return lax.convert_element_type(out, summed)
    return finish.apply(out, extras, geometry.data.channel, dtype)


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
    finish: Finish | None = None,
) -> Problem:
    """Describe the contraction of two arrays, or of their types, to a result of this type.

    Float64 sums need float64 operands. Programs that are exported, or split over devices by XLA, do
    not call oneDNN.
    """
    if dtype.itemsize == 8:
        first, second = (jax.ShapeDtypeStruct(x.shape, dtype) for x in (first, second))
    calls = _may_call(platform, devices, exported) and onednn_here.unavailable() is None
    program: Any = {"devices": devices, "onednn": calls, "fast_dense": xla_here.fast_dense()}
    return Problem.of(result, first, second, geometry, finish=finish, **program)


def _may_call(platform: str | None, devices: int, exported: bool) -> bool:
    """Whether a program may call oneDNN, if this process may."""
    return platform == "cpu" and devices == 1 and not exported
