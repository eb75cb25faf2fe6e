"""Rewrites as one contraction of other operands: repeated, exchanged, or in a wider type."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxconv._lowering.forms import convolution
from jaxconv._lowering.forms.blocks import unless_finite
from jaxconv._lowering.problem import Call, Form, Numerics, Problem

# Channel multipliers: each fine channel is repeated, and the contraction becomes depthwise, for
# which oneDNN has vector code. To repeat the data costs less than multiply-adds, which read the
# result's channels in steps of the multiplier, and take up to 14 times as long where the channels
# are a power of 2: then all pixels fall into the same cache sets.


def split_multiplier(problem: Problem) -> tuple[Problem, ...]:
    """The one part: depthwise."""
    geometry = problem.geometry.with_groups(problem.geometry.groups * problem.coarse_channels)
    return (replace(problem, geometry=geometry, coarse_channels=1),)


def repeat(fine: Array, kernel: Array, call: Call) -> Array:
    """Repeat each fine channel for each coarse channel of its group."""
    repeated = jnp.repeat(fine, call.problem.coarse_channels, axis=-1)
    return call.part(repeated, kernel)


REPEAT = Form(
    "repeat",
    {"coarse": repeat},
    cannot=lambda p: p.dense or not p.fine_channels == 1 < p.coarse_channels,
    parts=split_multiplier,
    layouts="any kernel",
    isolated=False,
    is_its_part=True,
    contender=True,
)


# A dense weights gradient of stride 1 with its operands exchanged. The sum over q of
# fine[q + dilation*t - pad] * coarse[q] is a sum over p = q + dilation*t - pad of
# coarse[p + dilation*u - pad'] * fine[p], with u = kernel-1-t and pad' = extent-1-pad: the same
# contraction, with its result reversed and its channels exchanged. The tensor that taps read is
# copied for each tap, so taps should read the one of fewer channels.
#
# The padding now surrounds the coarse tensor. Its zeros times an infinite fine pixel would be NaN,
# in taps that do not read the pixel, so results that are not finite are computed by the definition.


def exchange_operands(problem: Problem) -> tuple[Problem, ...]:
    """The one part: fine and coarse exchanged."""
    exchanged = replace(
        problem, fine_channels=problem.coarse_channels, coarse_channels=problem.fine_channels
    )
    return (exchanged.of_axes([a.reversed() for a in problem.geometry.axes]),)


def swap(fine: Array, coarse: Array, call: Call) -> Array:
    """Compute the part; reverse its result, and exchange its channels."""
    numerics = replace(call.numerics, precision=call.numerics.precision[::-1])
    out = replace(call, numerics=numerics).part(coarse, fine)
    out = lax.rev(jnp.swapaxes(out, -1, -2), call.geometry.kernel.spatial)

    def by_definition() -> Array:
        defined = convolution.to_kernel(fine, coarse, call)
        return lax.convert_element_type(defined, out.dtype)

    return unless_finite(out, by_definition)


SWAP = Form(
    "swap",
    {"kernel": swap},
    cannot=lambda p: not p.dense or p.strided,
    gathers=True,
    parts=exchange_operands,
)


# Narrow types as float32, which holds their products exactly. Of 8-bit integers, float32 also holds
# the sums of many products exactly; XLA:CPU multiplies these integers in scalar loops, except in
# dense convolutions. What the processor cannot multiply in 16 bits, XLA:CPU widens at each dot: the
# windows, not the data.

FLOAT32 = np.dtype(np.float32)

#: float32 holds all integers up to this one.
MAX_EXACT = 2**24


def _cannot_widen(problem: Problem) -> bool:
    """Whether the type is no narrower, or sums may be integers that float32 does not hold."""
    if problem.bits != 8:
        return problem.bits != 16
    ends = jnp.iinfo(problem.dtype)
    largest = max(abs(int(ends.min)), int(ends.max)) ** 2
    return problem.result != "coarse" or problem.taps * problem.summed * largest > MAX_EXACT


def widen(first: Array, second: Array, call: Call) -> Array:
    """Convert the operands; the plan's emission converts the sums back."""
    if call.problem.bits == 8:
        call = replace(call, numerics=Numerics((lax.Precision.HIGHEST,) * 2, FLOAT32))
    return call.part(first.astype(FLOAT32), second.astype(FLOAT32))


WIDEN = Form(
    "in float32",
    {"coarse": widen, "fine": widen, "kernel": widen},
    cannot=_cannot_widen,
    parts=lambda p: (replace(p, dtype=FLOAT32),),
    layouts="any",
    eight_bits=True,
    isolated=False,
    is_its_part=True,
)
