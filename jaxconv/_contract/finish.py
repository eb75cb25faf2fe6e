"""What follows a sum: a bias, a residual and an activation, then the one rounding.

    dst = activation(sums + bias + residual)

The derivative of an activation follows from dst where dst says enough, as for ReLU, and otherwise
from the sum. In both cases it is one factor, in the type of dst; no other tensor is kept for it.
"""

from functools import partial

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxconv._base import meshes
from jaxconv._base.activations import FUNCTIONS, Activation
from jaxconv._base.typing import DType


def finish(
    sums: Array,
    bias: Array | None,
    residual: Array | None,
    *,
    activation: Activation | None,
    channel: int,
    dtype: DType,
) -> Array:
    """Add a bias along the axis `channel`, and a residual; activate, and round to `dtype`."""
    if bias is not None:
        bias = meshes.shard_alike(lax.convert_element_type(bias, sums.dtype), sums, channel)
        bias = lax.expand_dims(bias, [axis for axis in range(sums.ndim) if axis != channel])
        sums = jnp.add(sums, bias)
    if residual is not None:
        residual = meshes.shard_alike(lax.convert_element_type(residual, sums.dtype), sums)
        sums = jnp.add(sums, residual)
    if activation is None:
        return lax.convert_element_type(sums, dtype)
    return _activate(sums, activation, dtype)


@partial(jax.custom_jvp, nondiff_argnums=(1, 2))
def _activate(sums: Array, activation: Activation, dtype: DType) -> Array:
    compute = FUNCTIONS[activation.name].compute
    return lax.convert_element_type(compute(sums, activation.alpha), dtype)


@_activate.defjvp
def _differentiate(
    activation: Activation, dtype: DType, primals: tuple[Array], tangents: tuple[Array]
) -> tuple[Array, Array]:
    [sums], [tangent] = primals, tangents
    function, out = FUNCTIONS[activation.name], _activate(sums, activation, dtype)
    if function.factor is None:
        compute, alpha = function.compute, activation.alpha
        _, factor = jax.jvp(lambda x: compute(x, alpha), (sums,), (jnp.ones_like(sums),))
    else:
        factor = function.factor(lax.convert_element_type(out, sums.dtype), activation.alpha)
    # In the type of dst: JAX keeps a factor in the type in which it is multiplied.
    change = lax.convert_element_type(tangent, dtype)
    if factor.dtype == bool:
        return out, lax.select(factor, change, jnp.zeros_like(change))
    return out, lax.convert_element_type(factor, dtype) * change
