"""Engine: jax.lax as a JAX user writes it, gradients by autodiff."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.arrays import shapes_in
from benchmarks.layer import Layer

PACKAGE = jax


def contraction(layer: Layer, op: str, layout: str) -> Callable:
    """`op` as a function of its two operands.

    The op is linear in each operand, so the gradient does not depend on the one it is taken
    in: zeros stand for it, and the compiler drops the forward computation.
    """
    forward = _forward(layer, layout)
    if op == "forward":
        return forward

    *_, shape = shapes_in(layer, op, layout)

    def data(diff_dst, weights):
        src = jnp.zeros(shape, diff_dst.dtype)
        return jax.vjp(lambda s: forward(s, weights), src)[1](diff_dst)[0]

    def weights(src, diff_dst):
        kernel = jnp.zeros(shape, src.dtype)
        return jax.vjp(lambda w: forward(src, w), kernel)[1](diff_dst)[0]

    return data if op == "data" else weights


def _forward(layer: Layer, layout: str) -> Callable:
    """A convolution; or, if transposed, the stride-1 convolution over dilated src that it is."""
    x, ones, transposed = "DHW"[-layer.rank :], (1,) * layer.rank, layer.family == "deconv"
    pads = list(zip(layer.pads_begin, layer.pads_end, strict=True))
    strides, dilations, channels = layer.strides, ones, "IO"
    if transposed:
        around = zip(layer.extents, pads, strict=True)
        pads = [(extent - 1 - begin, extent - 1 - end) for extent, (begin, end) in around]
        strides, dilations, channels = ones, layer.strides, "OI"
    data, kernel = f"N{x}C", f"{x}{channels}"
    if layout == "NCX":
        data, kernel = f"NC{x}", f"{channels[::-1]}{x}"

    def forward(src, weights):
        return lax.conv_general_dilated(
            src,
            grouped_transposed_kernel(layer, layout, weights) if transposed else weights,
            strides,
            pads,
            lhs_dilation=dilations,
            rhs_dilation=layer.dilations,
            dimension_numbers=(data, kernel, data),
            feature_group_count=layer.groups,
        )

    return forward


def grouped_transposed_kernel(layer: Layer, layout: str, weights):
    """The flipped kernel; with groups (OC/g, IC) becomes the (OC, IC/g) that lax asks for."""
    rank, groups, shape = layer.rank, layer.groups, weights.shape
    fine, coarse, first = (rank, rank + 1, 0) if layout == "NXC" else (1, 0, 2)
    weights = jnp.flip(weights, tuple(range(first, first + rank)))
    if groups == 1:
        return weights
    split = weights.reshape(*shape[:coarse], groups, -1, *shape[coarse + 1 :])
    wanted = list(shape)
    wanted[fine] *= groups
    wanted[coarse] //= groups
    return jnp.moveaxis(split, coarse, fine).reshape(wanted)
