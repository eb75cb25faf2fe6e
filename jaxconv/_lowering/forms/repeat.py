"""Channel multipliers: each fine channel is repeated, and the contraction becomes depthwise.

oneDNN has vector code for one coarse channel a group. To repeat the data costs less than
multiply-adds, which read the result's channels in steps of the multiplier, and take up to 14 times
as long where the channels are a power of 2: then all pixels fall into the same cache sets.
"""

from dataclasses import replace

import jax.numpy as jnp
from jax import Array

from jaxconv._lowering.form import Call, Form
from jaxconv._lowering.problem import Problem


def split_multiplier(problem: Problem) -> tuple[Problem, ...]:
    groups = problem.geometry.groups * problem.coarse_channels
    geometry = problem.geometry.with_groups(groups)
    return (replace(problem, geometry=geometry, coarse_channels=1),)


def to_coarse(fine: Array, kernel: Array, call: Call) -> Array:
    """Repeat each fine channel for each coarse channel of its group."""
    problem, numerics = call.problem, call.numerics
    (part,) = call.parts
    return part(jnp.repeat(fine, problem.coarse_channels, axis=-1), kernel, numerics)


FORM = Form(
    "repeat",
    {"coarse": to_coarse},
    cannot=lambda p: p.dense or not p.fine_channels == 1 < p.coarse_channels,
    parts=split_multiplier,
    layouts="any kernel",
    isolated=(),
    one_part=True,
    contender=True,
)
