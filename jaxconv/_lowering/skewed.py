"""More channels, so that neighbours in space do not lie a power of two apart in memory.

A cache keeps what is so far apart in the same few of its lines. Multiply-adds read the data and the
weights of all taps at the same time, and with 256, 512 or 1,024 channels most of what they read
again would be gone by then. A few channels of zeros are enough to spread it over all lines.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
from jax import lax

from jaxconv._geometry import Geometry
from jaxconv._lowering import window
from jaxconv._lowering.apart import apart

#: Channels more, at most, in whole groups: in float32 a line of most caches.
MORE = 16


@apart
def to_coarse(
    fine: Any, kernel: Any, *, geometry: Geometry, contract: Callable[..., Any], **params: Any
) -> Any:
    """Of so many more groups."""
    channels, more = kernel.shape[-1], _more(fine, geometry)
    inner = replace(window.of_padded(geometry), groups=geometry.groups + more)
    fine = _skewed(window.padded(fine, geometry), geometry, more)
    kernel = _skewed(kernel, geometry, more)
    out = contract("coarse", fine, kernel, geometry=inner, **params)
    return lax.slice_in_dim(out, 0, channels, axis=out.ndim - 1)


def _more(fine: Any, geometry: Geometry) -> int:
    return max(1, MORE * geometry.groups // int(fine.shape[-1]))


def _skewed(x: Any, geometry: Geometry, more: int) -> Any:
    """With so many more groups, all zeros."""
    channels = x.shape[-1] // geometry.groups * more
    config = [(0, 0, 0)] * (x.ndim - 1) + [(0, channels, 0)]
    return lax.pad(x, jnp.zeros((), x.dtype), config)
