"""Forms that XLA:CPU must not fuse with the program around them.

A form of several XLA operations is fast as it is written: what it reads is in memory, and one loop
writes its result. XLA's fusion knows nothing of that. It puts the normalisation or activation
before a convolution inside the convolution's loop, where it is computed again for every tap, and
the whole sum inside each of its consumers: training steps took up to four times as long. A barrier
does not help, since XLA:CPU drops barriers before it fuses. A function that is not inlined does:
fusion never crosses its border. This is for CPU only.
"""

import math
from collections.abc import Callable

import jax
from jax import Array

from jaxconv._base.jax_names import set_xla_metadata

Operation = Callable[[Array, Array], Array]

#: Fewest elements of both operands with which a function of its own is worth the time to compile.
LITTLE = 1 << 12


def isolated(form: Operation) -> Operation:
    """The same form as a function that XLA does not inline."""

    def kept(first: Array, second: Array) -> Array:
        if _little(first, second):
            return form(first, second)
        return apart(form, first, second)

    return kept


def apart(function: Callable[..., Array], *operands: Array) -> Array:
    """The function's one result, which XLA computes once, from operands that it has computed."""
    # JAX writes this at the operation that makes the value, which is the call.
    out: Array = set_xla_metadata(jax.jit(function)(*operands), inlineable="false")
    return out


def _little(*operands: Array) -> bool:
    """Whether operands are too small for that; not if the batch is symbolic."""
    known = all(isinstance(n, int) for x in operands for n in x.shape)
    return known and sum(math.prod(x.shape) for x in operands) < LITTLE
