"""All images abreast, as parts of one wide image: for a convolution that runs row by row.

Older XLA:CPU gives the rows of an image to Eigen one after the other, and Eigen splits only long
ones over the cores: 8 images of 56 x 56 with 64 channels took one core's time (AMD, AVX-512).
Each image keeps its own padding, so that no window reads two of them.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
from jax import lax

from jaxconv._geometry import Geometry
from jaxconv._reshape import replace_axes


def to_coarse(
    fine: Any, kernel: Any, *, geometry: Geometry, contract: Callable[..., Any], **params: Any
) -> Any:
    """Along the last axis. Places between the images are computed, too, and dropped."""
    batch, last, at = fine.shape[0], geometry.axes[-1], geometry.rank - 1
    places = -(-(last.span - 1 + last.extent) // last.stride)
    width = places * last.stride
    config = [(0, 0, 0)] * fine.ndim
    config[at + 1] = (last.pad_low, width - last.fine - last.pad_low, 0)
    fine = jnp.moveaxis(lax.pad(fine, jnp.zeros((), fine.dtype), config), 0, at)
    fine = replace_axes(fine, at, 2, (batch * width,))[None]
    wide = replace(last, fine=batch * width, coarse=batch * places, pad_low=0)
    inner = replace(geometry, axes=(*geometry.axes[:-1], wide))
    out = contract("coarse", fine, kernel, geometry=inner, **params)[0]
    out = jnp.moveaxis(replace_axes(out, at, 1, (batch, places)), at, 0)
    return lax.slice_in_dim(out, 0, last.coarse, axis=at + 1)
