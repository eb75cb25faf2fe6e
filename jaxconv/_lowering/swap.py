"""A dense weights gradient of stride 1, its data in each other's place: taps read the narrower one.

The sum over q of fine[q + dilation*t - pad] * coarse[q] is one over p of
coarse[p + dilation*u - pad'] * fine[p], with u = kernel-1-t: the same contraction, its result
reversed and its channels in each other's place. What taps read is written out for each of them, so
that it should have few channels.

The padding is now that of the coarse tensor, and zeros times an infinite fine pixel would make NaN
of taps that do not read it. No product of what is not finite is finite, so that a result which is
finite throughout needs no care; any other is computed anew as it is defined.
"""

from dataclasses import replace

import jax.numpy as jnp
from jax import Array, lax

from jaxconv._geometry import Axis, Geometry
from jaxconv._lowering import convolution
from jaxconv._lowering.plan import Form, Parts
from jaxconv._lowering.problem import Numerics, Problem


def _swapped(problem: Problem) -> tuple[Problem, ...]:
    axes = tuple(
        Axis(a.coarse, a.kernel, a.fine, 1, a.dilation, a.extent - 1 - a.pad_low)
        for a in problem.geometry.axes
    )
    geometry = replace(problem.geometry, axes=axes)
    return (replace(problem, geometry=geometry, fine=problem.coarse, coarse=problem.fine),)


def to_kernel(
    fine: Array, coarse: Array, *, geometry: Geometry, numerics: Numerics, parts: Parts
) -> Array:
    """The reversed kernel of one contraction, its channels in each other's place."""
    (part,) = parts
    out = part(coarse, fine, replace(numerics, precision=numerics.precision[::-1]))
    out = lax.rev(jnp.swapaxes(out, -1, -2), geometry.kernel.spatial)

    def anew() -> Array:
        defined = convolution.to_kernel(fine, coarse, geometry=geometry, numerics=numerics)
        return lax.convert_element_type(defined, out.dtype)

    safe: Array = lax.cond(jnp.isfinite(out).all(), lambda: out, anew)
    return safe


FORM = Form(
    "swap",
    {"kernel": to_kernel},
    cannot=lambda p: not p.dense or p.strided,
    parts=_swapped,
)
