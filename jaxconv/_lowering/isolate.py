"""Forms that XLA:CPU must not fuse with the program around them.

A form of several XLA operations is fast as it is written: what it reads is in memory, and one loop
writes its result. XLA's fusion knows nothing of that. It puts the normalisation or activation
before a convolution inside the convolution's loop, where it is computed again for every tap, and
the whole sum inside each of its consumers: training steps took up to four times as long. A barrier
does not help, since XLA:CPU drops barriers before it fuses. A branch does: fusion never crosses its
border. On a GPU a branch would wait for the host, so this is for CPU only.
"""

import math
from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxconv import _sharding

Operation = Callable[[Array, Array], Array]

#: Fewest elements of both operands with which a branch is worth the time to compile it.
LITTLE = 1 << 12


def isolated(form: Operation) -> Operation:
    """The same form as a branch that is always taken."""

    def kept(first: Array, second: Array) -> Array:
        if _little(first, second):
            return form(first, second)
        taken = jax.jit(form)  # traced once, for the shape and for the branch
        result = jax.eval_shape(taken, first, second)

        def never(first: Array, second: Array) -> Array:
            zeros = jnp.zeros(result.shape, result.dtype)
            return _sharding.vary_alike(zeros, first, second)[0]

        # The barrier hides the condition from XLA until it has simplified branches.
        always = lax.optimization_barrier(jnp.array(True))
        out: Array = lax.cond(always, taken, never, first, second)
        return out

    return kept


def _little(*operands: Array) -> bool:
    """Whether operands are too small for a branch; not if the batch is symbolic."""
    known = all(isinstance(n, int) for x in operands for n in x.shape)
    return known and sum(math.prod(x.shape) for x in operands) < LITTLE
