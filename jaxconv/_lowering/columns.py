"""All windows written out side by side (im2col), then one dot.

Worth its copies where the dot is much faster than a convolution: in 16 bits, whose
convolutions XLA:CPU widens to float32 first, and in float64.
"""

from typing import Any

import jax.numpy as jnp

from jaxconv._attributes import Precision
from jaxconv._dtypes import DType
from jaxconv._geometry import Geometry
from jaxconv._lowering import dots, window
from jaxconv._reshape import merge_groups, split_groups


def to_coarse(
    fine: Any, kernel: Any, *, geometry: Geometry, precision: Precision, dtype: DType
) -> Any:
    """Windows by the whole kernel."""
    weights = kernel.reshape(-1, kernel.shape[-1])
    return dots.rows_by_weights(_windows(fine, geometry), weights, geometry, precision, dtype)


def to_kernel(
    fine: Any, coarse: Any, *, geometry: Geometry, precision: Precision, dtype: DType
) -> Any:
    """Windows by the coarse tensor, over all rows."""
    out = dots.rows_by_rows(_windows(fine, geometry), coarse, geometry, precision, dtype)
    return out.reshape(*(a.kernel for a in geometry.axes), -1, out.shape[-1])


def _windows(fine: Any, geometry: Geometry) -> Any:
    """(N, X, (g, taps, i))."""
    fine = window.padded(fine, geometry)
    read = [
        split_groups(window.read_by(tap, fine, geometry), geometry.groups)
        for tap in window.taps(geometry)
    ]
    return merge_groups(jnp.concatenate(read, -1))
