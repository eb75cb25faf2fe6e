"""One dot for all taps, whose products are then shifted and added: for very few result channels.

A dot or convolution to three channels hardly uses the machine; one to three channels
times the taps does, and what it gives is little.
"""

from functools import reduce
from typing import Any

import jax.numpy as jnp
from jax import lax

from jaxconv._attributes import Precision
from jaxconv._dtypes import DType
from jaxconv._geometry import Geometry
from jaxconv._lowering import rows, window
from jaxconv._lowering.apart import apart


@apart
def to_coarse(
    fine: Any, kernel: Any, *, geometry: Geometry, precision: Precision, dtype: DType
) -> Any:
    """The products of each fine element with all taps, added where the taps read it."""
    fine = rows.as_numbers(window.padded(rows.movable(fine), geometry), fine.dtype)
    weights = jnp.moveaxis(kernel, -2, 0).reshape(kernel.shape[-2], -1)  # i, (taps, o)
    products = lax.optimization_barrier(rows.by_weights(fine, weights, precision, dtype))
    last, width = products.ndim - 1, kernel.shape[-1]
    reads = [
        window.read_by(
            tap, lax.slice_in_dim(products, n * width, (n + 1) * width, axis=last), geometry
        )
        for n, tap in enumerate(window.taps(geometry))
    ]
    return reduce(lax.add, reads)
