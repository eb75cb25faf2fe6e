"""One tap, channels first: a dot for each image and group, and no data is transposed.

Data is (N, C, X). The weights are copied for each image, so that the dots are one with a batch: XLA
moves the batch of images last otherwise.
"""

import math
from typing import Any

import jax.numpy as jnp
from jax import lax

from jaxconv._geometry import Geometry
from jaxconv._lowering import dot, window
from jaxconv._lowering.plan import Form
from jaxconv._lowering.problem import Numerics
from jaxconv._reshape import merge_groups, split_groups


def to_coarse(fine: Any, kernel: Any, *, geometry: Geometry, numerics: Numerics) -> Any:
    """(n, g, o, i) by (n, g, i, X) to (n, g, o, X)."""
    bits = jnp.moveaxis(_matrices(dot.as_bits(kernel), geometry), -1, -2)
    weights = dot.as_numbers(bits, kernel.dtype)  # XLA would turn the dot around, see dot
    out = _dots(weights, _split(_read(fine, geometry), geometry), 2, numerics)
    return out.reshape(geometry.shape("coarse", fine.shape, kernel.shape))


def to_fine(coarse: Any, kernel: Any, *, geometry: Geometry, numerics: Numerics) -> Any:
    """(n, g, i, o) by (n, g, o, X) to (n, g, i, X), with zeros where nothing is read."""
    out = _dots(_matrices(kernel, geometry), _split(coarse, geometry), 2, numerics)
    batch, _, *extents = coarse.shape
    out = out.reshape(batch, geometry.groups * kernel.shape[-2], *extents)
    spread = [(-a.pad_low, -a.pad_high, a.stride - 1) for a in geometry.axes]
    return lax.pad(out, jnp.zeros((), out.dtype), [(0, 0, 0), (0, 0, 0), *spread])


def to_kernel(fine: Any, coarse: Any, *, geometry: Geometry, numerics: Numerics) -> Any:
    """(n, g, i, X) by (n, g, o, X) to (n, g, i, o), and the sum over n."""
    read = _split(_read(fine, geometry), geometry)
    out = _dots(read, _split(coarse, geometry), 3, numerics).sum(0)
    out = merge_groups(jnp.moveaxis(out, 0, 1))  # i, (g, o)
    return out.reshape(*(1 for _ in geometry.axes), *out.shape)


def _dots(one: Any, other: Any, axis: int, numerics: Numerics) -> Any:
    """For each image and group, over the last axis of `one` and this of `other`."""
    if one.ndim < other.ndim:
        one = jnp.broadcast_to(one, (other.shape[0], *one.shape))
    return lax.dot_general(
        one,
        other,
        (((3,), (axis,)), ((0, 1), (0, 1))),
        precision=numerics.precision,
        preferred_element_type=numerics.sums,
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


FORM = Form(
    "planes",
    {"coarse": to_coarse, "fine": to_fine, "kernel": to_kernel},
    cannot=lambda p: not p.pointwise,
    channels_first=True,
)
