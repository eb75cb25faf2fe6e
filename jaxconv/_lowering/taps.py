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
from jaxconv._lowering.apart import apart
from jaxconv._reshape import merge_groups, replace_axes, split_groups


@apart
def to_coarse(
    fine: Any, kernel: Any, *, geometry: Geometry, precision: Precision, dtype: DType
) -> Any:
    """Sum over taps and fine channels i of (N, X, g, 1) times (g, o), or (N, g, 1, X)."""
    del precision  # products and sums are in `dtype`
    fine = _widened(window.padded(fine, geometry), dtype)
    kernel = _widened(kernel, dtype)
    groups, channel = geometry.groups, geometry.data.channel
    other = [axis for axis in range(fine.ndim + 1) if axis not in (channel, channel + 1)]
    terms = []
    for tap in window.taps(geometry):
        read = window.read_by(tap, fine, geometry)
        read = replace_axes(read, channel, 1, (groups, read.shape[channel] // groups))
        weights = split_groups(window.at(tap, kernel), groups)  # i, g, o
        for i in range(weights.shape[0]):
            one = lax.slice_in_dim(read, i, i + 1, axis=channel + 1)
            terms.append(one * lax.expand_dims(weights[i], other))
    return replace_axes(reduce(lax.add, terms), channel, 2, (kernel.shape[-1],))


@apart
def to_kernel(
    fine: Any, coarse: Any, *, geometry: Geometry, precision: Precision, dtype: DType
) -> Any:
    """All taps and fine channels i in one pass: a reduction with as many results.

    It leaves the last spatial axis, so that its inner loop runs over neighbours in memory;
    what it leaves is small, and summed after.
    """
    del precision
    fine = _widened(window.padded(fine, geometry), dtype)
    coarse = split_groups(_widened(coarse, dtype), geometry.groups)
    products = []
    for tap in window.taps(geometry):
        read = split_groups(window.read_by(tap, fine, geometry), geometry.groups)
        for i in range(read.shape[-1]):
            products.append(lax.slice_in_dim(read, i, i + 1, axis=read.ndim - 1) * coarse)
    sums = lax.reduce(
        products,
        [jnp.zeros((), dtype)] * len(products),
        lambda one, other: [a + b for a, b in zip(one, other, strict=True)],
        range(1, max(geometry.rank, 2)),
    )
    out = jnp.stack([merge_groups(jnp.sum(s, tuple(range(s.ndim - 2)))) for s in sums])
    return out.reshape(*(a.kernel for a in geometry.axes), -1, out.shape[-1])


def _widened(x: Any, dtype: DType) -> Any:
    """In `dtype` once and for all: in the fused loop, each tap would convert again."""
    return x if x.dtype == dtype else lax.optimization_barrier(x.astype(dtype))
