"""8-bit integers as float32, which holds the sums of many of their products exactly.

XLA:CPU multiplies 8-bit integers in scalar loops, except in dense convolutions.
"""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxconv._lowering.form import Call, Form
from jaxconv._lowering.problem import Numerics, Problem

#: float32 holds all integers up to this one.
MAX_EXACT = 2**24

IN_FLOAT32 = Numerics((lax.Precision.HIGHEST,) * 2, np.dtype(np.float32))


def _may_round(problem: Problem) -> bool:
    """Whether a sum may be an integer that float32 does not hold."""
    if problem.bits != 8:
        return True
    ends = jnp.iinfo(problem.dtype)
    largest = max(abs(int(ends.min)), int(ends.max)) ** 2
    return problem.taps * problem.summed * largest > MAX_EXACT


def _in_float32(problem: Problem) -> tuple[Problem, ...]:
    return (replace(problem, dtype=IN_FLOAT32.dtype),)


def to_coarse(fine: Array, kernel: Array, call: Call) -> Array:
    """Convert the operands, and the sums back."""
    (part,) = call.parts
    fine, kernel = (x.astype(IN_FLOAT32.dtype) for x in (fine, kernel))
    return part(fine, kernel, IN_FLOAT32).astype(call.numerics.dtype)


FORM = Form(
    "in float32",
    {"coarse": to_coarse},
    cannot=_may_round,
    parts=_in_float32,
    layouts="any",
    eight_bits=True,
    isolated=(),
)
