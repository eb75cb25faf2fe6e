"""Narrow types as float32, which holds their products exactly.

Of 8-bit integers, float32 also holds the sums of many products exactly. XLA:CPU multiplies these
integers in scalar loops, except in dense convolutions. What the processor cannot multiply in 16
bits, XLA:CPU widens at each dot: the windows, not the data.
"""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxconv._lowering.form import Call, Form
from jaxconv._lowering.problem import Numerics, Problem

FLOAT32 = np.dtype(np.float32)

#: float32 holds all integers up to this one.
MAX_EXACT = 2**24


def _cannot(problem: Problem) -> bool:
    """Whether the type is as wide, or a sum may be an integer that float32 does not hold."""
    if problem.bits != 8:
        return problem.bits != 16
    ends = jnp.iinfo(problem.dtype)
    largest = max(abs(int(ends.min)), int(ends.max)) ** 2
    return problem.result != "coarse" or problem.taps * problem.summed * largest > MAX_EXACT


def _in_float32(problem: Problem) -> tuple[Problem, ...]:
    return (replace(problem, dtype=FLOAT32),)


def compute(first: Array, second: Array, call: Call) -> Array:
    """Convert the operands; the plan's emission converts the sums back."""
    (part,) = call.parts
    numerics = call.numerics
    if call.problem.bits == 8:
        numerics = Numerics((lax.Precision.HIGHEST,) * 2, FLOAT32)
    return part(first.astype(FLOAT32), second.astype(FLOAT32), numerics)


FORM = Form(
    "in float32",
    {"coarse": compute, "fine": compute, "kernel": compute},
    cannot=_cannot,
    parts=_in_float32,
    layouts="any",
    eight_bits=True,
    isolated=(),
    one_part=True,
)
