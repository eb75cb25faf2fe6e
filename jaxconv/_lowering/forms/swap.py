"""A dense weights gradient of stride 1 with its operands exchanged: taps read fewer channels.

The sum over q of fine[q + dilation*t - pad] * coarse[q] is a sum over p of
coarse[p + dilation*u - pad'] * fine[p], with u = kernel-1-t: the same contraction, with its result
reversed and its channels exchanged. The tensor that taps read is copied for each tap, so taps
should read the tensor of fewer channels.

The padding now surrounds the coarse tensor. Its zeros times an infinite fine pixel would be NaN, in
taps that do not read the pixel. No product with a factor that is not finite is finite. So a result
that is finite throughout is right; any other result is computed again by the definition.
"""

from dataclasses import replace

import jax.numpy as jnp
from jax import Array, lax

from jaxconv._lowering.form import Call, Form
from jaxconv._lowering.forms import convolution
from jaxconv._lowering.problem import Problem


def exchange_operands(problem: Problem) -> tuple[Problem, ...]:
    axes = tuple(a.reversed() for a in problem.geometry.axes)
    geometry = replace(problem.geometry, axes=axes)
    return (
        replace(
            problem,
            geometry=geometry,
            fine_channels=problem.coarse_channels,
            coarse_channels=problem.fine_channels,
        ),
    )


def to_kernel(fine: Array, coarse: Array, call: Call) -> Array:
    """Compute the part; reverse its result, and exchange its channels."""
    problem, numerics = call.problem, call.numerics
    geometry = problem.geometry
    (part,) = call.parts
    out = part(coarse, fine, replace(numerics, precision=numerics.precision[::-1]))
    out = lax.rev(jnp.swapaxes(out, -1, -2), geometry.kernel.spatial)

    def by_definition() -> Array:
        defined = convolution.to_kernel(fine, coarse, call)
        return lax.convert_element_type(defined, out.dtype)

    safe: Array = lax.cond(jnp.isfinite(out).all(), lambda: out, by_definition)
    return safe


FORM = Form(
    "swap",
    {"kernel": to_kernel},
    cannot=lambda p: not p.dense or p.strided,
    gathers=True,
    parts=exchange_operands,
)
