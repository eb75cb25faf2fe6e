"""Several dots: a dot for each tap, or a dot for each image.

A dot for each tap, in any layouts, serves where no convolution will do: on GPU, where cuDNN lacks
the convolution; on CPU, where a grouped convolution gathers a sharded batch (openxla/xla#47945).
Groups are a batch axis of the dots. The sums over taps are in a wide type, for which a dot does not
convert its operands.

A dot for each image and group serves one tap with the channels first: no data is transposed.
"""

import math
from collections.abc import Iterator
from functools import reduce

import jax.numpy as jnp
from jax import Array, lax

from jaxconv._base.geometry import Geometry
from jaxconv._base.reshape import merge_groups, pad, replace_axes, split_groups
from jaxconv._lowering.form import Call, Form
from jaxconv._lowering.forms import bits, window
from jaxconv._lowering.problem import Numerics

# For each tap.


def taps_to_coarse(fine: Array, kernel: Array, call: Call) -> Array:
    """Sum over taps the pixels that a tap reads times its weights."""
    geometry, numerics = call.geometry, call.numerics
    groups, data, layout = geometry.groups, geometry.data, geometry.kernel
    kernel = lax.transpose(kernel, (*layout.spatial, layout.fine, layout.coarse))
    kernel = split_groups(kernel, groups)
    products = [
        lax.dot_general(
            split_groups(read, groups, data.channel),
            kernel[tap],  # i, g, o
            (((data.channel + 1,), (0,)), ((data.channel,), (1,))),
            precision=numerics.precision,
            preferred_element_type=numerics.sums,
        )
        for tap, read in _read_each_tap(fine, geometry)
    ]
    out = jnp.moveaxis(reduce(lax.add, products), (0, -1), (data.channel, data.channel + 1))
    return replace_axes(out, data.channel, 2, (kernel.shape[-2] * kernel.shape[-1],))


def taps_to_kernel(fine: Array, coarse: Array, call: Call) -> Array:
    """Multiply the pixels that each tap reads by the coarse tensor, summed over all pixels."""
    geometry, numerics = call.geometry, call.numerics
    groups, data, layout = geometry.groups, geometry.data, geometry.kernel
    coarse = split_groups(coarse, groups, data.channel)
    summed = tuple(a + (a > data.channel) for a in (data.batch, *data.spatial))
    products = [
        lax.dot_general(
            split_groups(read, groups, data.channel),
            coarse,
            ((summed, summed), ((data.channel,), (data.channel,))),
            precision=numerics.precision,
            preferred_element_type=numerics.sums,
        )
        for _, read in _read_each_tap(fine, geometry)
    ]
    out = jnp.stack(products)  # taps, g, i, o
    extents = (a.kernel for a in geometry.axes)
    out = jnp.swapaxes(out, 1, 2).reshape(*extents, out.shape[2], -1)
    order = {at: n for n, at in enumerate((*layout.spatial, layout.fine, layout.coarse))}
    return lax.transpose(out, [order[axis] for axis in range(out.ndim)])


def _read_each_tap(fine: Array, geometry: Geometry) -> Iterator[tuple[window.Tap, Array]]:
    """Yield each tap, and the pixels of the fine tensor that the tap reads."""
    # To shift data that is split over devices, the devices exchange halos only.
    strided = any(a.stride > 1 for a in geometry.axes)
    fine, read_by = (
        (window.pad_fine(fine, geometry), window.read_tap) if strided else (fine, window.shift_fine)
    )
    return ((tap, read_by(tap, fine, geometry)) for tap in window.taps(geometry))


BY_TAP = Form(
    "dot by tap",
    {"coarse": taps_to_coarse, "kernel": taps_to_kernel},
    layouts="any",
    eight_bits=True,
    isolated=(),
)


# For each image: data is (N, C, X). The weights are copied for each image, to have one batched dot:
# otherwise XLA would move the batch to the last axis.


def images_to_coarse(fine: Array, kernel: Array, call: Call) -> Array:
    """Multiply (n, g, o, i) by (n, g, i, X) to (n, g, o, X)."""
    geometry, numerics = call.geometry, call.numerics
    weights = jnp.moveaxis(_split_weights(bits.of_floats(kernel), geometry), -1, -2)
    weights = bits.to_floats(weights, kernel.dtype)  # as integers, see `dot._move_channels_first`
    out = _multiply(weights, _flatten(_read_pixels(fine, geometry), geometry), 2, numerics)
    return out.reshape(geometry.shape("coarse", fine.shape, kernel.shape))


def images_to_fine(coarse: Array, kernel: Array, call: Call) -> Array:
    """Multiply (n, g, i, o) by (n, g, o, X) to (n, g, i, X); pixels that nothing reads are 0."""
    geometry, numerics = call.geometry, call.numerics
    out = _multiply(_split_weights(kernel, geometry), _flatten(coarse, geometry), 2, numerics)
    batch, _, *extents = coarse.shape
    out = out.reshape(batch, geometry.groups * kernel.shape[-2], *extents)
    spread = [(-a.pad_low, -a.pad_high, a.stride - 1) for a in geometry.axes]
    return pad(out, dict(enumerate(spread, 2)))


def images_to_kernel(fine: Array, coarse: Array, call: Call) -> Array:
    """Multiply (n, g, i, X) by (n, g, o, X) to (n, g, i, o), and sum over n."""
    geometry, numerics = call.geometry, call.numerics
    read = _flatten(_read_pixels(fine, geometry), geometry)
    out = _multiply(read, _flatten(coarse, geometry), 3, numerics).sum(0)
    out = merge_groups(jnp.moveaxis(out, 0, 1))  # i, (g, o)
    return out.reshape(*(1 for _ in geometry.axes), *out.shape)


def _multiply(one: Array, other: Array, axis: int, numerics: Numerics) -> Array:
    """Compute a dot for each image and group, over the last axis of `one`, `axis` of `other`."""
    if one.ndim < other.ndim:
        one = jnp.broadcast_to(one, (other.shape[0], *one.shape))
    return lax.dot_general(
        one,
        other,
        (((3,), (axis,)), ((0, 1), (0, 1))),
        precision=numerics.precision,
        preferred_element_type=numerics.sums,
    )


def _split_weights(kernel: Array, geometry: Geometry) -> Array:
    """Reshape weights to (g, i, o)."""
    weights = kernel.reshape(kernel.shape[-2:])
    return jnp.moveaxis(split_groups(weights, geometry.groups), 0, 1)


def _flatten(data: Array, geometry: Geometry) -> Array:
    """Reshape data to (n, g, channels of a group, X)."""
    batch, channels, *extents = data.shape
    groups = geometry.groups
    return data.reshape(batch, groups, channels // groups, math.prod(extents))


def _read_pixels(fine: Array, geometry: Geometry) -> Array:
    """Read the pixels of the one tap: a pixel for each coarse pixel."""
    return window.read_tap((0,) * geometry.rank, window.pad_fine(fine, geometry), geometry)


BY_IMAGE = Form(
    "dot by image",
    {"coarse": images_to_coarse, "fine": images_to_fine, "kernel": images_to_kernel},
    # XLA of JAX 0.10 cannot run some dots in bfloat16 that contract the last axis of both operands.
    cannot=lambda p: not p.pointwise or (p.result == "kernel" and p.bits == 16),
    gathers=True,
    layouts="channels first",
    eight_bits=True,
)
