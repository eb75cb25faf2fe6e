"""The activations that an operation may apply: how each is computed, and its derivative."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax


@dataclass(frozen=True)
class Activation:
    """An activation by its name in `FUNCTIONS`; alpha is 0 where the function has none."""

    name: str
    alpha: float = 0.0


class Function(NamedTuple):
    """How an activation is computed from a sum and alpha, and how its derivative is found."""

    compute: Callable[[Array, float], Array]
    #: the derivative as a factor, from dst and alpha; None if dst does not say enough
    factor: Callable[[Array, float], Array] | None = None


def _elu(x: Array, alpha: float) -> Array:
    # Neither branch of a where may overflow, or the derivative is NaN.
    return jnp.where(x > 0, x, alpha * jnp.expm1(jnp.minimum(x, 0)))


#: A factor of bools selects, since zero times infinity is NaN.
FUNCTIONS = {
    "relu": Function(lambda x, _: jnp.maximum(x, 0), lambda dst, _: dst > 0),
    "relu6": Function(lambda x, _: jnp.clip(x, 0, 6), lambda dst, _: (dst > 0) & (dst < 6)),
    "leaky_relu": Function(
        lambda x, alpha: jnp.where(x > 0, x, alpha * x),
        lambda dst, alpha: jnp.where(dst > 0, jnp.ones_like(dst), alpha),
    ),
    "elu": Function(_elu, lambda dst, alpha: jnp.where(dst > 0, jnp.ones_like(dst), dst + alpha)),
    "tanh": Function(lambda x, _: jnp.tanh(x), lambda dst, _: (1 - dst) * (1 + dst)),
    "sigmoid": Function(lambda x, _: lax.logistic(x), lambda dst, _: dst * (1 - dst)),
    "gelu_erf": Function(lambda x, _: jax.nn.gelu(x, approximate=False)),
    "gelu_tanh": Function(lambda x, _: jax.nn.gelu(x, approximate=True)),
    "silu": Function(lambda x, _: x * lax.logistic(x)),
}

#: The functions with an alpha, and its value where none is given; None where it must be given,
#: since libraries differ: 0.01, 0.2 and 0.3 are in use for a leaky ReLU.
ALPHAS = {"leaky_relu": None, "elu": 1.0}
