"""Depthwise, in strips of a few channels, each with all its places together: multiply-adds again.

Of many channels, one place reads all, for every tap, before the next place does, and what the two
have in common has left a core's first cache by then. Of a strip it has not.
"""

import math
from dataclasses import replace
from functools import partial
from typing import Any

import jax.numpy as jnp
from jax import lax

from jaxconv._attributes import Precision
from jaxconv._dtypes import DType
from jaxconv._geometry import Geometry
from jaxconv._lowering import cores, window
from jaxconv._lowering.apart import apart
from jaxconv._lowering.groups import equal_part
from jaxconv._lowering.taps import added
from jaxconv._reshape import replace_axes, split_groups

#: Channels of a strip: in float32 a line of most caches.
CHANNELS = 16

#: Elements of the images that are taken together. They are written twice more, which wants a
#: cache: 32 images of 14 x 14, 384 channels, 7x7, 6.5, all together 11, and without strips 9.3
#: (AMD).
TOGETHER = 600_000


def to_coarse(
    fine: Any, kernel: Any, *, geometry: Geometry, precision: Precision, dtype: DType
) -> Any:
    """Some images after the other."""
    del precision  # products and sums are in `dtype`
    some = partial(_some, kernel=kernel, geometry=geometry, dtype=dtype)
    batch, image = fine.shape[0], math.prod(fine.shape[1:])
    if not isinstance(batch, int) or batch * image <= TOGETHER:
        return some(fine)
    images = equal_part(batch, TOGETHER // image)
    out = lax.map(some, replace_axes(fine, 0, 1, (batch // images, images)))
    return replace_axes(out, 0, 2, (batch,))


def _some(fine: Any, kernel: Any, *, geometry: Geometry, dtype: DType) -> Any:
    """In two branches: in one, XLA would make a single loop of it, over all channels again."""
    strips = _strips(fine, kernel, geometry=geometry, dtype=dtype)
    return _joined(strips, channel=geometry.data.channel)


@apart
def _strips(fine: Any, kernel: Any, *, geometry: Geometry, dtype: DType) -> Any:
    """(N, strips, X, channels of one)."""
    spatial = tuple(range(2, 2 + geometry.rank))
    channel = geometry.data.channel
    geometry = replace(geometry, data=geometry.data._replace(spatial=spatial))
    # Padded after: XLA would take a transposition into the loop, but not a pad.
    fine = jnp.moveaxis(_split(fine.astype(dtype), channel), (channel, channel + 1), (1, -1))
    fine = window.padded(fine, geometry)
    # The loop reads the kernel from where it is. One strip more, and its taps do not lie a power
    # of two apart, where they would crowd in the cache: 8 images of 7 x 7, 1,024 channels, 7x7,
    # 1.1, without 5.0 (AMD).
    kernel = lax.squeeze(kernel.astype(dtype), [geometry.rank])
    more = [*((0, 0, 0) for _ in spatial), (0, CHANNELS, 0)]
    kernel = _split(lax.pad(kernel, jnp.zeros((), dtype), more), geometry.rank)
    terms = []
    for tap in window.taps(geometry):
        weights = lax.expand_dims(window.at(tap, kernel)[:-1], [0, *spatial])
        terms.append(window.read_by(tap, fine, geometry) * weights)
    return cores.on_all(added(terms))


@apart
def _joined(strips: Any, *, channel: int) -> Any:
    """(N, X, channels), or (N, channels, X)."""
    out = jnp.moveaxis(strips, (1, -1), (channel, channel + 1))
    return cores.on_all(replace_axes(out, channel, 2, (out.shape[channel] * CHANNELS,)))


def _split(x: Any, axis: int) -> Any:
    return split_groups(x, x.shape[axis] // CHANNELS, axis)
