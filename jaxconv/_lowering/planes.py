"""Channels first, a dot for each image and group, and nothing is transposed: kernels of one tap.

A weights gradient may have several taps, and writes out what they read. Data is (N, C, X) here, not
channels-last. The weights are copied for each image, so that the dots are one with a batch: XLA
moves the batch of images last otherwise.
"""

import math
from typing import Any

import jax.numpy as jnp
from jax import lax

from jaxconv._attributes import Precision
from jaxconv._dtypes import DType
from jaxconv._geometry import Geometry
from jaxconv._lowering import rows, window
from jaxconv._lowering.apart import apart
from jaxconv._reshape import merge_groups, split_groups


@apart
def to_coarse(
    fine: Any, kernel: Any, *, geometry: Geometry, precision: Precision, dtype: DType
) -> Any:
    """(n, g, o, i) by (n, g, i, X) to (n, g, o, X)."""
    bits = jnp.moveaxis(_matrices(rows.as_bits(kernel), geometry), -1, -2)
    weights = rows.as_numbers(bits, kernel.dtype)  # XLA would turn the dot around, see rows
    out = _dots(weights, _split(_read(fine, geometry), geometry), 2, precision, dtype)
    return out.reshape(geometry.shape("coarse", fine.shape, kernel.shape))


@apart
def to_fine(
    coarse: Any, kernel: Any, *, geometry: Geometry, precision: Precision, dtype: DType
) -> Any:
    """(n, g, i, o) by (n, g, o, X) to (n, g, i, X), with zeros where nothing is read."""
    out = _dots(_matrices(kernel, geometry), _split(coarse, geometry), 2, precision, dtype)
    batch, _, *extents = coarse.shape
    out = out.reshape(batch, geometry.groups * kernel.shape[-2], *extents)
    spread = [(-a.pad_low, -a.pad_high, a.stride - 1) for a in geometry.axes]
    return lax.pad(out, jnp.zeros((), out.dtype), [(0, 0, 0), (0, 0, 0), *spread])


@apart
def to_kernel(
    fine: Any, coarse: Any, *, geometry: Geometry, precision: Precision, dtype: DType
) -> Any:
    """(n, g, t, X) by (n, g, o, X) to (n, g, t, o), and the sum over n; t is each tap's i."""
    source = window.padded(fine, geometry)
    reads = (window.read_by(tap, source, geometry) for tap in window.taps(geometry))
    windows = jnp.concatenate([_split(x, geometry) for x in reads], 2)
    out = _dots(windows, _split(coarse, geometry), 3, precision, dtype).sum(0)
    out = merge_groups(jnp.moveaxis(out, 0, 1))  # t, (g, o)
    taps, channels = (a.kernel for a in geometry.axes), fine.shape[1] // geometry.groups
    return out.reshape(*taps, channels, out.shape[-1])


def _dots(one: Any, other: Any, axis: int, precision: Precision, dtype: DType) -> Any:
    """For each image and group, over the last axis of `one` and this of `other`."""
    if one.ndim < other.ndim:
        one = jnp.broadcast_to(one, (other.shape[0], *one.shape))
    return lax.dot_general(
        one,
        other,
        (((3,), (axis,)), ((0, 1), (0, 1))),
        precision=precision,
        preferred_element_type=dtype,
    )


def _matrices(kernel: Any, geometry: Geometry) -> Any:
    """(g, i, o)."""
    weights = kernel.reshape(kernel.shape[-2:])
    return jnp.moveaxis(split_groups(weights, geometry.groups), 0, 1)


def _split(data: Any, geometry: Geometry) -> Any:
    """(n, g, channels of a group, X)."""
    batch, channels, *extents = data.shape
    groups = geometry.groups
    return data.reshape(batch, groups, channels // groups, math.prod(extents))


def _read(fine: Any, geometry: Geometry) -> Any:
    """What the tap reads, of the coarse extents."""
    return window.read_by((0,) * geometry.rank, window.padded(fine, geometry), geometry)
