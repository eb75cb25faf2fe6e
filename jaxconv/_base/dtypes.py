"""Accepted types, and the type that each accumulates in: one table."""

from typing import Any

import jax
import jax.numpy as jnp

from jaxconv._base.typing import DType

#: operand type -> the type that holds its sums. 16-bit products are exact in float32.
ACCUMULATION: dict[DType, DType] = {
    jnp.dtype(operand): jnp.dtype(sums)
    for operand, sums in (
        (jnp.bfloat16, jnp.float32),
        (jnp.float16, jnp.float32),
        (jnp.float32, jnp.float32),
        (jnp.float64, jnp.float64),
    )
}

#: Integers that forward convolutions of `jax.lax` may have, and the type that holds their sums.
EIGHT_BITS = (jnp.dtype(jnp.int8), jnp.dtype(jnp.uint8))
INT32 = jnp.dtype(jnp.int32)


def canonical(dtype: Any) -> Any:
    """Find the type that JAX gives to such values: float32 for float64, unless x64 is enabled."""
    return jax.dtypes.canonicalize_dtype(dtype, allow_extended_dtype=True)
