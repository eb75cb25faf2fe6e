"""Several dots: one for each tap, or one for each image.

For each tap, in the layouts at hand, where no convolution will do. On GPU that is where cuDNN has
none. On CPU, groups that are split over devices: dots partition on a sharded batch, where a grouped
convolution gathers it (openxla/xla#47945). Groups are a batch axis of the dot. Sums over taps are
wide: a dot does not widen its operands for that.

For each image and group, of one tap and channels first: no data is transposed.
"""

import math
from collections.abc import Iterator
from functools import reduce

import jax.numpy as jnp
from jax import Array, lax

from jaxconv._geometry import DataLayout, Geometry
from jaxconv._lowering import dot, window
from jaxconv._lowering.plan import Form
from jaxconv._lowering.problem import Numerics
from jaxconv._reshape import merge_groups, replace_axes, split_groups

# For each tap.


def taps_to_coarse(fine: Array, kernel: Array, *, geometry: Geometry, numerics: Numerics) -> Array:
    """The sum over taps of what the tap reads times its weights."""
    groups, data, layout = geometry.groups, geometry.data, geometry.kernel
    kernel = lax.transpose(kernel, (*layout.spatial, layout.fine, layout.coarse))
    kernel = replace_axes(kernel, geometry.rank + 1, 1, (groups, kernel.shape[-1] // groups))
    products = [
        lax.dot_general(
            _grouped(read, groups, data),
            kernel[tap],  # i, g, o
            (((data.channel + 1,), (0,)), ((data.channel,), (1,))),
            precision=numerics.precision,
            preferred_element_type=numerics.sums,
        )
        for tap, read in _each_read(fine, geometry)
    ]
    out = jnp.moveaxis(reduce(lax.add, products), (0, -1), (data.channel, data.channel + 1))
    return replace_axes(out, data.channel, 2, (kernel.shape[-2] * kernel.shape[-1],))


def taps_to_kernel(fine: Array, coarse: Array, *, geometry: Geometry, numerics: Numerics) -> Array:
    """For each tap, what it reads times the coarse tensor, over the batch and all positions."""
    groups, data, layout = geometry.groups, geometry.data, geometry.kernel
    coarse = _grouped(coarse, groups, data)
    summed = tuple(a + (a > data.channel) for a in (data.batch, *data.spatial))
    products = [
        lax.dot_general(
            _grouped(read, groups, data),
            coarse,
            ((summed, summed), ((data.channel,), (data.channel,))),
            precision=numerics.precision,
            preferred_element_type=numerics.sums,
        )
        for _, read in _each_read(fine, geometry)
    ]
    out = jnp.stack(products)  # taps, g, i, o
    extents = (a.kernel for a in geometry.axes)
    out = jnp.swapaxes(out, 1, 2).reshape(*extents, out.shape[2], -1)
    order = {at: n for n, at in enumerate((*layout.spatial, layout.fine, layout.coarse))}
    return lax.transpose(out, [order[axis] for axis in range(out.ndim)])


def _each_read(fine: Array, geometry: Geometry) -> Iterator[tuple[window.Tap, Array]]:
    """Each tap, and what it reads of the fine tensor."""
    # Shifted data, which are split over devices as they were, exchange halos only.
    strided = any(a.stride > 1 for a in geometry.axes)
    fine, read_by = (
        (window.padded(fine, geometry), window.read_by) if strided else (fine, window.shifted)
    )
    return ((tap, read_by(tap, fine, geometry)) for tap in window.taps(geometry))


def _grouped(x: Array, groups: int, data: DataLayout) -> Array:
    """The channels as two axes: groups, and the channels of one."""
    return replace_axes(x, data.channel, 1, (groups, x.shape[data.channel] // groups))


BY_TAP = Form(
    "dot by tap",
    {"coarse": taps_to_coarse, "kernel": taps_to_kernel},
    any_layout=True,
    isolated=(),
)


# For each image: data is (N, C, X). The weights are copied for each image, so that the dots are one
# with a batch: XLA moves the batch of images last otherwise.


def images_to_coarse(
    fine: Array, kernel: Array, *, geometry: Geometry, numerics: Numerics
) -> Array:
    """(n, g, o, i) by (n, g, i, X) to (n, g, o, X)."""
    bits = jnp.moveaxis(_matrices(dot.as_bits(kernel), geometry), -1, -2)
    weights = dot.as_numbers(bits, kernel.dtype)  # XLA would turn the dot around, see dot
    out = _multiplied(weights, _flat(_read(fine, geometry), geometry), 2, numerics)
    return out.reshape(geometry.shape("coarse", fine.shape, kernel.shape))


def images_to_fine(
    coarse: Array, kernel: Array, *, geometry: Geometry, numerics: Numerics
) -> Array:
    """(n, g, i, o) by (n, g, o, X) to (n, g, i, X), with zeros where nothing is read."""
    out = _multiplied(_matrices(kernel, geometry), _flat(coarse, geometry), 2, numerics)
    batch, _, *extents = coarse.shape
    out = out.reshape(batch, geometry.groups * kernel.shape[-2], *extents)
    spread = [(-a.pad_low, -a.pad_high, a.stride - 1) for a in geometry.axes]
    return lax.pad(out, jnp.zeros((), out.dtype), [(0, 0, 0), (0, 0, 0), *spread])


def images_to_kernel(
    fine: Array, coarse: Array, *, geometry: Geometry, numerics: Numerics
) -> Array:
    """(n, g, i, X) by (n, g, o, X) to (n, g, i, o), and the sum over n."""
    read = _flat(_read(fine, geometry), geometry)
    out = _multiplied(read, _flat(coarse, geometry), 3, numerics).sum(0)
    out = merge_groups(jnp.moveaxis(out, 0, 1))  # i, (g, o)
    return out.reshape(*(1 for _ in geometry.axes), *out.shape)


def _multiplied(one: Array, other: Array, axis: int, numerics: Numerics) -> Array:
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


def _matrices(kernel: Array, geometry: Geometry) -> Array:
    """(g, i, o)."""
    weights = kernel.reshape(kernel.shape[-2:])
    return jnp.moveaxis(split_groups(weights, geometry.groups), 0, 1)


def _flat(data: Array, geometry: Geometry) -> Array:
    """(n, g, channels of a group, X)."""
    batch, channels, *extents = data.shape
    groups = geometry.groups
    return data.reshape(batch, groups, channels // groups, math.prod(extents))


def _read(fine: Array, geometry: Geometry) -> Array:
    """What the tap reads, of the coarse extents."""
    return window.read_by((0,) * geometry.rank, window.padded(fine, geometry), geometry)


BY_IMAGE = Form(
    "dot by image",
    {"coarse": images_to_coarse, "fine": images_to_fine, "kernel": images_to_kernel},
    cannot=lambda p: not p.pointwise,
    channels_first=True,
)
