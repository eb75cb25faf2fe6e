"""A depthwise kernel that reaches over the whole image: kernel and image change places.

Place c of the result sums image[f] * kernel[f + pad - stride * c] over f. If every c reads every f,
the results, from the last c to the first, are a convolution of the kernel with the image, which has
a tap for each place of the image. A kernel of 27 by 27 over an image of 14 by 14 has four times as
many, and reads zeros around the image with most of them.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
from jax import lax

from jaxconv._geometry import Axis, Geometry
from jaxconv._lowering.apart import apart
from jaxconv._reshape import merge_groups, split_groups


def possible(geometry: Geometry) -> bool:
    """Whether every place of the result reads every place of the image."""
    swapped = map(_swapped, geometry.axes)
    within = all(max(a.pad_low, a.pad_high) <= 0 for a in swapped)
    return within and all(a.dilation == 1 for a in geometry.axes)


@apart
def to_coarse(
    fine: Any, kernel: Any, *, geometry: Geometry, contract: Callable[..., Any], **params: Any
) -> Any:
    """Each channel of each image is a group."""
    batch = fine.shape[0]
    images = merge_groups(jnp.moveaxis(fine, 0, -2))
    kernels = merge_groups(jnp.repeat(kernel, batch, -2))
    inner = replace(geometry, axes=tuple(map(_swapped, geometry.axes)), groups=kernels.shape[-1])
    images = lax.expand_dims(images, (geometry.rank,))
    out = contract("coarse", kernels[None], images, geometry=inner, **params)
    out = jnp.moveaxis(split_groups(out[0], batch), -2, 0)
    return lax.rev(out, geometry.data.spatial)


def _swapped(a: Axis) -> Axis:
    """The axis of that convolution."""
    return replace(a, fine=a.kernel, kernel=a.fine, pad_low=a.span - 1 - a.pad_low)
