"""One image after the other: a weights gradient is the sum of those of each image.

As a convolution, it has the batch as its channels, and newer XLA:CPU is fast with one.
"""

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
from jax import lax

from jaxconv import _sharding
from jaxconv._geometry import Geometry


def to_kernel(
    fine: Any,
    coarse: Any,
    *,
    geometry: Geometry,
    contract: Callable[..., Any],
    devices: int,
    **params: Any,
) -> Any:
    """The sum over images."""
    at = geometry.data.batch

    def step(image: Any, out: Any) -> Any:
        one = (lax.dynamic_slice_in_dim(x, image, 1, axis=at) for x in (fine, coarse))
        return out + contract("kernel", *one, geometry=geometry, devices=devices, **params)

    shape = geometry.shape("kernel", fine.shape, coarse.shape)
    out, *_ = _sharding.vary_alike(jnp.zeros(shape, params["dtype"]), fine, coarse)
    return lax.fori_loop(0, fine.shape[at], step, out)
