"""A few channels a group: shifted multiply-adds, one per tap, that XLA fuses into one loop.

XLA:CPU runs a depthwise or finely grouped convolution as scalar loops, 10 to 1,000
times slower. Multiply-adds also partition on a sharded batch, where a grouped
convolution gathers it (openxla/xla#47945).
"""

from functools import reduce
from typing import Any

import jax.numpy as jnp
from jax import lax

from jaxconv._attributes import Precision
from jaxconv._dtypes import DType
from jaxconv._geometry import Geometry
from jaxconv._lowering import window
from jaxconv._reshape import merge_groups, split_groups


def to_coarse(
    fine: Any, kernel: Any, *, geometry: Geometry, precision: Precision, dtype: DType
) -> Any:
    """Sum over taps and fine channels i of (N, X, g, 1) times (g, o)."""
    del precision  # products and sums are in `dtype`
    fine = window.padded(fine, geometry)
    terms = []
    for tap in window.taps(geometry):
        read = split_groups(window.read_by(tap, fine, geometry).astype(dtype), geometry.groups)
        weights = split_groups(window.at(tap, kernel).astype(dtype), geometry.groups)  # i, g, o
        for i in range(weights.shape[0]):
            one = lax.slice_in_dim(read, i, i + 1, axis=read.ndim - 1)
            terms.append(one * _like(read, lax.index_in_dim(weights, i, keepdims=False)))
    return merge_groups(reduce(lax.add, terms))


def to_kernel(
    fine: Any, coarse: Any, *, geometry: Geometry, precision: Precision, dtype: DType
) -> Any:
    """One reduction over batch and extents for each tap and fine channel i."""
    del precision
    fine = window.padded(fine, geometry)
    coarse = split_groups(coarse.astype(dtype), geometry.groups)
    rows = tuple(range(geometry.rank + 1))
    sums = []
    for tap in window.taps(geometry):
        read = split_groups(window.read_by(tap, fine, geometry).astype(dtype), geometry.groups)
        for i in range(read.shape[-1]):
            one = lax.slice_in_dim(read, i, i + 1, axis=read.ndim - 1)
            sums.append(merge_groups(jnp.sum(one * coarse, rows)))
    return jnp.stack(sums).reshape(*(a.kernel for a in geometry.axes), -1, sums[0].shape[0])


def _like(data: Any, weights: Any) -> Any:
    """Weights (g, o) with leading axes to broadcast over data (N, X, g, ...)."""
    return lax.expand_dims(weights, tuple(range(data.ndim - 2)))
