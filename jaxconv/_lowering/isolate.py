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
from typing import Any

import jax
from jax.experimental.xla_metadata import set_xla_metadata

#: Elements of both operands below which a function of its own is not worth the time to compile it.
LITTLE = 1 << 12


def isolated(form: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The same form as a function that XLA does not inline."""

    def kept(first: Any, second: Any) -> Any:
        if _little(first, second):
            return form(first, second)
        return apart(form, first, second)

    return kept


def apart(function: Callable[..., Any], *operands: Any) -> Any:
    """The function's one result, which XLA computes once, from operands that it has computed."""
    # JAX writes this at the operation that makes the value, which is the call.
    return set_xla_metadata(jax.jit(function)(*operands), inlineable="false")


def _little(*operands: Any) -> bool:
    """Never of a symbolic batch."""
    known = all(isinstance(n, int) for x in operands for n in x.shape)
    return known and sum(math.prod(x.shape) for x in operands) < LITTLE
