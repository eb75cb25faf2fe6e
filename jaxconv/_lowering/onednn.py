"""By oneDNN: to coarse by its forward convolution, to kernel by the same with roles changed."""

from dataclasses import replace
from typing import Any

from jax import lax

from jaxconv._geometry import UNIT, Geometry
from jaxconv._lowering import onednn_call, onednn_weights, window
from jaxconv._lowering.plan import Form
from jaxconv._lowering.problem import Numerics, Problem


def to_coarse(fine: Any, kernel: Any, *, geometry: Geometry, numerics: Numerics) -> Any:
    """One call, in which the padding is, unless that would make oneDNN choose its fallback."""
    depthwise = kernel.shape[-2] == 1 and geometry.groups == kernel.shape[-1] > 1
    if depthwise and geometry.rank == 1:
        plane = replace(geometry, axes=(UNIT, *geometry.axes)).canonical()
        fine, kernel = lax.expand_dims(fine, (1,)), lax.expand_dims(kernel, (0,))
        out = to_coarse(fine, kernel, geometry=plane, numerics=numerics)
        return lax.squeeze(out, (1,))
    axes = geometry.axes
    deep = any(max(a.pad_low, a.pad_high) >= a.extent for a in axes)
    flat = any(a.kernel == 1 for a in axes)
    if deep or (depthwise and (flat or any(a.dilation > 1 for a in axes))):
        fine, geometry = window.padded(fine, geometry), window.of_padded(geometry)
    pads = [(a.pad_low, max(a.pad_high, 0)) for a in geometry.axes]
    return onednn_call.call(fine, kernel, geometry.axes, pads, geometry.groups, numerics.dtype)


def _cannot(problem: Problem) -> bool:
    if not problem.onednn or not onednn_call.safe(problem):
        return True
    return problem.result == "kernel" and not onednn_weights.worth(problem)


FORM = Form(
    "onednn",
    {"coarse": to_coarse, "kernel": onednn_weights.to_kernel},
    cannot=_cannot,
    isolated=("kernel",),
)
