"""A policy for `jax.checkpoint` that knows the contractions of this library."""

from typing import Any

from jaxconv._contract.contractions import SLOTS


def contractions_saveable(primitive: Any, *_: Any, **__: Any) -> bool:
    """A policy for `jax.checkpoint`: save every contraction, recompute the rest.

    `primitive` is the operation to save or not. The policy stands beside
    `jax.checkpoint_policies.dots_saveable`, which knows only JAX's own products: of matrices, and
    the convolutions of `jax.lax`, which stay lax's under `jaxconv.install`.
    `jax.checkpoint_policies.save_from_both_policies` joins the two.

    Example:
      >>> from functools import partial
      >>> import jax, jax.numpy as jnp, jaxconv
      >>> @partial(jax.checkpoint, policy=jaxconv.contractions_saveable)
      ... def layer(src, weights):
      ...     return jnp.tanh(jaxconv.convolution(src, weights)).sum()
      >>> src, weights = jnp.ones((2, 5, 5, 3)), jnp.ones((3, 3, 3, 4))
      >>> jax.grad(layer, argnums=1)(src, weights).shape
      (3, 3, 3, 4)
    """
    return primitive in SLOTS
