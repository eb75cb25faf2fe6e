"""One dot for each tap: where its product is cheaper to add than windows are to write out."""

from functools import reduce
from typing import Any

import jax.numpy as jnp
from jax import lax

from jaxconv._attributes import Precision
from jaxconv._dtypes import DType
from jaxconv._geometry import Geometry
from jaxconv._lowering import rows, window


def to_coarse(
    fine: Any, kernel: Any, *, geometry: Geometry, precision: Precision, dtype: DType
) -> Any:
    """The sum over taps of what the tap reads times its weights."""
    bits = window.padded(rows.as_bits(fine), geometry)
    products = [
        rows.by_weights(
            rows.as_numbers(window.read_by(tap, bits, geometry), fine.dtype),
            window.at(tap, kernel),
            geometry.groups,
            precision,
            dtype,
        )
        for tap in window.taps(geometry)
    ]
    return reduce(lax.add, products)


def to_kernel(
    fine: Any, coarse: Any, *, geometry: Geometry, precision: Precision, dtype: DType
) -> Any:
    """For each tap, what it reads times the coarse tensor, over all rows."""
    bits = window.padded(rows.as_bits(fine), geometry)
    products = [
        rows.by_rows(
            rows.as_numbers(window.read_by(tap, bits, geometry), fine.dtype),
            coarse,
            geometry.groups,
            precision,
            dtype,
        )
        for tap in window.taps(geometry)
    ]
    return jnp.stack(products).reshape(*(a.kernel for a in geometry.axes), *products[0].shape)
