"""Floats as integers of the same size: XLA:CPU moves 16-bit floats by way of float32."""

import jax.numpy as jnp
from jax import Array, lax

from jaxconv._base.typing import DType
from jaxconv._lowering import xla_here

_BITS = {2: jnp.uint16, 4: jnp.uint32, 8: jnp.uint64}


def movable(x: Array) -> Array:
    """Cast 16-bit floats to integers."""
    return of_floats(x) if x.dtype.itemsize == 2 else x


def sliceable(x: Array) -> Array:
    """Cast 16-bit floats to integers where XLA:CPU would convert all of `x` before a loop.

    Elsewhere a loop of multiply-adds takes up to four times as long with integers.
    """
    return x if xla_here.slices_floats() else movable(x)


def of_floats(x: Array) -> Array:
    """Cast floats to integers of the same size."""
    return lax.bitcast_convert_type(x, _BITS[x.dtype.itemsize])


def to_floats(x: Array, dtype: DType) -> Array:
    """Undo the other functions."""
    return x if x.dtype == dtype else lax.bitcast_convert_type(x, dtype)
