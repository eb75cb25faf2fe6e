"""Engine: jax.lax as a JAX user writes it, gradients by autodiff."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks.arrays import shapes_in
from benchmarks.engines._xla import letters
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
    x = letters(layer.rank)
    data = f"N{x}C" if layout == "NXC" else f"NC{x}"

    def conv(src, weights):
        return lax.conv_general_dilated(
            src,
            weights,
            layer.strides,
            list(zip(layer.pads_begin, layer.pads_end, strict=True)),
            rhs_dilation=layer.dilations,
            dimension_numbers=(data, f"{x}IO" if layout == "NXC" else f"OI{x}", data),
            feature_group_count=layer.groups,
        )

    # of the stride-1 convolution over dilated src that a transposed one is
    pads = [
        (extent - 1 - begin, extent - 1 - end)
        for extent, begin, end in zip(layer.extents, layer.pads_begin, layer.pads_end, strict=True)
    ]

    def deconv(src, weights):
        return lax.conv_general_dilated(
            src,
            grouped_transposed_kernel(layer, layout, weights),
            (1,) * layer.rank,
            pads,
            lhs_dilation=layer.strides,
            rhs_dilation=layer.dilations,
            dimension_numbers=(data, f"{x}OI" if layout == "NXC" else f"IO{x}", data),
            feature_group_count=layer.groups,
        )

    return conv if layer.family == "conv" else deconv


def grouped_transposed_kernel(layer: Layer, layout: str, weights):
    """The flipped kernel; with groups (OC/g, IC) becomes the (OC, IC/g) that lax asks for."""
    rank, groups = layer.rank, layer.groups
    axes = range(rank) if layout == "NXC" else range(2, rank + 2)
    weights = jnp.flip(weights, tuple(axes))
    if groups == 1:
        return weights
    *_, fine, coarse = layer.shapes["kernel"]
    if layout == "NXC":  # (X, o, g, i) -> (X, g, o, i)
        split = weights.reshape(*layer.kernel, fine, groups, coarse // groups)
        return jnp.moveaxis(split, -2, -3).reshape(*layer.kernel, groups * fine, coarse // groups)
    split = weights.reshape(groups, coarse // groups, fine, *layer.kernel)
    return jnp.moveaxis(split, 0, 1).reshape(coarse // groups, groups * fine, *layer.kernel)
