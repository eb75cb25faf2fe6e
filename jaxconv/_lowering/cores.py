"""A loop around what is here runs on all cores.

From 0.11 on, XLA:CPU takes a loop that calls no library for a small one, whatever it holds:
it becomes one function, which runs on one core. A call of anything that such a function cannot
hold is enough to prevent that, and sorting two numbers takes no time.
"""

import math
from typing import Any

import jax.numpy as jnp
from jax import lax

from jaxconv._lowering.problem import NEWER

#: Elements below which one core is as fast.
LITTLE = 1 << 16


def on_all(x: Any) -> Any:
    """`x` by a one that was sorted; little of it is left to one core."""
    known = all(isinstance(n, int) for n in x.shape)
    if not NEWER or (known and math.prod(x.shape) < LITTLE):
        return x
    # Behind a barrier, XLA does not sort beforehand.
    return x * lax.sort(lax.optimization_barrier(jnp.ones(2, x.dtype)))[0]


def step(index: Any) -> Any:
    """The index of a loop, sorted: what does not change XLA would take out of the loop."""
    return lax.sort(jnp.stack([index, index]))[0] if NEWER else index
