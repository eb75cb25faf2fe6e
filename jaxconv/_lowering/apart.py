"""Kept apart: what XLA:CPU must not fuse with the program around it.

A spelling of several XLA operations is fast as it is written: what it reads is in memory, and
one loop writes its result. XLA's fusion knows nothing of that. It puts the normalisation or
activation before a convolution inside the convolution's loop, where it is computed again for
every tap, and the whole sum inside each of its consumers: training steps took up to four times
as long. A barrier does not help, since XLA:CPU drops barriers before it fuses. A branch does:
fusion never crosses its border. On a GPU a branch would wait for the host, so this is for CPU only.
"""

import math
from collections.abc import Callable
from contextvars import ContextVar
from functools import partial, wraps
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxconv import _sharding

#: Elements of all operands, below which a branch is not worth the time to compile it.
LITTLE = 1 << 12

_within = ContextVar("within", default=False)


def apart(spelling: Callable[..., Any]) -> Callable[..., Any]:
    """The same spelling as a branch that is always taken; one within another is not kept apart.

    So the sums of phases, each a spelling, are written by the one loop that interleaves them.
    """

    def alone(*operands: Any, **params: Any) -> Any:
        before = _within.set(True)
        try:
            return spelling(*operands, **params)
        finally:
            _within.reset(before)

    @wraps(spelling)
    def kept(*operands: Any, **params: Any) -> Any:
        if _within.get() or _little(operands):
            return spelling(*operands, **params)
        taken = jax.jit(partial(alone, **params))  # traced once, for its shape and as branch
        result = jax.eval_shape(taken, *operands)

        def never(*operands: Any) -> Any:
            return _sharding.vary_alike(jnp.zeros(result.shape, result.dtype), *operands)[0]

        # Behind a barrier, nobody knows the condition until branches have been simplified.
        return lax.cond(lax.optimization_barrier(jnp.array(True)), taken, never, *operands)

    return kept


def _little(operands: tuple[Any, ...]) -> bool:
    """Never of a symbolic batch."""
    known = all(isinstance(n, int) for x in operands for n in x.shape)
    return known and sum(math.prod(x.shape) for x in operands) < LITTLE
