"""Floats as integers of the same size: XLA:CPU moves 16-bit floats by way of float32."""

import re
from functools import cache
from importlib.metadata import version

import jax.numpy as jnp
from jax import Array, lax

from jaxconv._base.typing import DType

#: The first release of jaxlib that was seen to slice 16-bit floats in a loop as they are. Earlier
#: ones convert the whole tensor to float32 before the loop.
SLICES_FLOATS = (0, 11, 2)

_BITS = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32, 8: jnp.uint64}


def movable(x: Array) -> Array:
    """Cast 16-bit floats to integers."""
    return of_floats(x) if x.dtype.itemsize == 2 else x


def sliceable(x: Array) -> Array:
    """Cast 16-bit floats to integers where XLA:CPU would convert all of `x` before a loop.

    Elsewhere a loop of multiply-adds takes up to four times as long with integers.
    """
    return x if slices_floats() else movable(x)


@cache
def slices_floats() -> bool:
    """Whether XLA:CPU slices 16-bit floats in a loop, and does not convert them before."""
    numbers = re.findall(r"\d+", version("jaxlib"))  # also of "0.13.0rc1"
    return tuple(map(int, numbers[: len(SLICES_FLOATS)])) >= SLICES_FLOATS


def of_floats(x: Array) -> Array:
    """Cast floats to integers of the same size."""
    return lax.bitcast_convert_type(x, _BITS[x.dtype.itemsize])


def to_floats(x: Array, dtype: DType) -> Array:
    """Cast integers back to floats of `dtype`; floats stay."""
    return x if x.dtype == dtype else lax.bitcast_convert_type(x, dtype)
