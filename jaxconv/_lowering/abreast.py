"""All images abreast, as parts of one wide image: for a convolution that runs row by row.

Older XLA:CPU gives the rows of an image to Eigen one after the other, and Eigen splits only long
ones over the cores: 8 images of 56 x 56 with 64 channels took one core's time (AMD, AVX-512).
Between two images are the zeros that pad them, the end of one and the beginning of the next. What
windows across both of them give is dropped. No branch keeps this apart from what stands around it,
which gains nothing: between two normalisations 11.3 and in one 12.2, with gradients 43 and 42.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
from jax import lax

from jaxconv._geometry import Axis, Geometry
from jaxconv._reshape import replace_axes


def places(a: Axis) -> int:
    """Of the result for each image, with those to be dropped."""
    padded = a.fine + max(a.pad_low, a.pad_high)
    return max(-(-padded // a.stride), a.coarse)


def to_coarse(
    fine: Any, kernel: Any, *, geometry: Geometry, contract: Callable[..., Any], **params: Any
) -> Any:
    """Along the last axis."""
    batch, last, at = fine.shape[0], geometry.axes[-1], geometry.rank - 1
    count = places(last)
    width = count * last.stride
    config = [(0, 0, 0)] * fine.ndim
    config[at + 1] = (0, width - last.fine, 0)
    fine = jnp.moveaxis(lax.pad(fine, jnp.zeros((), fine.dtype), config), 0, at)
    fine = replace_axes(fine, at, 2, (batch * width,))[None]
    wide = replace(last, fine=batch * width, coarse=batch * count)
    inner = replace(geometry, axes=(*geometry.axes[:-1], wide))
    out = contract("coarse", fine, kernel, geometry=inner, **params)[0]
    out = replace_axes(out, at, 1, (batch, count))
    return jnp.moveaxis(lax.slice_in_dim(out, 0, last.coarse, axis=at + 1), at, 0)
