"""Rows in blocks, each with the halo that its windows reach into: for data split over devices.

A padded tensor has more rows than its result, so that XLA splits both differently, and devices
exchange nearly all they have for each tap. As many blocks as devices split as the rows did, and
each tap's slice stays within a block: neighbours exchange halos only, and once. A batch that is
split exchanges nothing.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
from jax import lax

from jaxconv._geometry import Axis, Geometry
from jaxconv._lowering import window
from jaxconv._lowering.apart import apart
from jaxconv._reshape import replace_axes


def count(geometry: Geometry, devices: int) -> int:
    """How many blocks: as many as an even split of the first axis may have parts, or 1."""
    a = geometry.axes[0]
    blocks = math.gcd(a.fine, devices)
    same = a.stride == 1 and a.fine == a.coarse and 0 <= a.pad_low < a.extent
    # A halo of more rows than a device has would be all that its neighbour has.
    return blocks if same and 1 < a.extent <= a.fine // blocks + 1 else 1


@apart
def to_coarse(
    fine: Any,
    kernel: Any,
    *,
    geometry: Geometry,
    devices: int,
    contract: Callable[..., Any],
    **params: Any,
) -> Any:
    """The blocks are one more spatial axis, along which the kernel has one tap."""
    shape = geometry.shape("coarse", fine.shape, kernel.shape)
    fine, inner = _with_halos(fine, geometry, count(geometry, devices))
    kernel = replace_axes(kernel, 0, 0, (1,))
    out = contract("coarse", fine, kernel, geometry=inner, devices=devices, **params)
    at = geometry.data.spatial[0]
    return replace_axes(out, at, 2, (shape[at],))


def _with_halos(fine: Any, geometry: Geometry, blocks: int) -> tuple[Any, Geometry]:
    """The padded fine tensor, its first axis in overlapping blocks, and what is left to do."""
    at, axis = geometry.data.spatial[0], geometry.axes[0]
    rows, low, high = axis.fine // blocks, axis.pad_low, axis.pad_high
    one = Axis(fine=blocks, kernel=1, coarse=blocks, stride=1, dilation=1, pad_low=0)
    inner = replace(
        geometry, axes=(one, replace(axis, fine=rows, coarse=rows), *geometry.axes[1:])
    ).canonical(geometry.data.channel == 1)
    own = replace_axes(fine, at, 1, (blocks, rows))
    padded = window.padded(own, inner)
    halos = (
        (1, low, rows, 0),  # the end of the block before
        (-1, high, low, low + rows),  # the start of the next one
    )
    for by, size, start, place in halos:
        halo = lax.slice_in_dim(padded, start, start + size, axis=at + 1)
        config = [(0, 0, 0)] * halo.ndim
        config[at] = (by, -by, 0)
        halo = lax.pad(halo, jnp.zeros((), halo.dtype), config)
        padded = lax.dynamic_update_slice_in_dim(padded, halo, place, axis=at + 1)
    return padded, window.of_padded(inner)
