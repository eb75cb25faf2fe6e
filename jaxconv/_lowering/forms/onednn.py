"""oneDNN's forward convolution."""

from dataclasses import replace

from jax import Array, lax

from jaxconv._base.geometry import UNIT, KernelLayout
from jaxconv._lowering.form import Call, Form
from jaxconv._lowering.forms import onednn_call, window
from jaxconv._lowering.problem import Problem


def to_coarse(fine: Array, kernel: Array, call: Call) -> Array:
    """Call oneDNN once; pad before the call where oneDNN would choose its fallback."""
    geometry = call.geometry
    layout = geometry.kernel
    depthwise = kernel.shape[layout.fine] == 1 < geometry.groups == kernel.shape[layout.coarse]
    if depthwise and geometry.rank == 1:
        layout = KernelLayout(layout.coarse + 1, layout.fine + 1, (0, layout.spatial[0] + 1))
        plane = replace(replace(geometry, axes=(UNIT, *geometry.axes)).canonical(), kernel=layout)
        fine, kernel = lax.expand_dims(fine, (1,)), lax.expand_dims(kernel, (0,))
        extras = tuple(lax.expand_dims(x, (1,)) if x.ndim > 1 else x for x in call.extras)
        out = to_coarse(fine, kernel, replace(call.of(plane), extras=extras))
        return lax.squeeze(out, (1,))
    axes = geometry.axes
    deep = any(max(a.pad_low, a.pad_high) >= a.extent for a in axes)
    flat = any(a.kernel == 1 for a in axes)
    if deep or (depthwise and (flat or any(a.dilation > 1 for a in axes))):
        fine, geometry = window.pad_fine(fine, geometry), window.geometry_of_padded(geometry)
    pads = [(a.pad_low, max(a.pad_high, 0)) for a in geometry.axes]
    return onednn_call.call_and_finish(fine, kernel, pads, call.of(geometry))


def may_call(problem: Problem) -> bool:
    """Whether the call may compute a contraction, or the parts of a rewrite."""
    return problem.onednn and onednn_call.is_safe(problem)


FORM = Form(
    "onednn",
    {"coarse": to_coarse},
    cannot=lambda p: not may_call(p),
    layouts="any kernel",  # oneDNN reorders any kernel to a layout of its own
    isolated=(),
    finishes=onednn_call.gains_by_finishing,
    contender=True,
)
