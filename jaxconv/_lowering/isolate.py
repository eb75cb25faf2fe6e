"""Forms that XLA:CPU must not fuse with the program around them.

A form of several XLA operations is fast as written: operands are in memory, and one loop writes the
result. XLA's fusion would put the normalisation or activation before a convolution inside the
convolution's loop, to be computed again for every tap, and the whole sum inside each consumer of
the sum: training steps took up to four times as long. A barrier does not help, since XLA:CPU drops
barriers before fusion. A function that is not inlined helps: fusion never crosses the border of a
function. Forms are isolated on CPU only.
"""

import math
from collections.abc import Callable

import jax
from jax import Array

from jaxconv._base.jax_names import set_xla_metadata

#: Elements of both operands that are worth the time to compile another function.
MIN_ELEMENTS = 1 << 12


def call_apart(function: Callable[..., Array], *operands: Array | int) -> Array:
    """Call a function of one result that XLA does not inline."""
    # JAX writes the attribute at the operation that makes the value: the call.
    out: Array = set_xla_metadata(jax.jit(function)(*operands), inlineable="false")
    return out


def are_small(*operands: Array) -> bool:
    """Whether operands are too small for another function; not if the batch is symbolic."""
    known = all(isinstance(n, int) for x in operands for n in x.shape)
    return known and sum(math.prod(x.shape) for x in operands) < MIN_ELEMENTS
