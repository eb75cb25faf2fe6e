"""How a JAX user gets gradients: reverse mode through the forward function."""

from collections.abc import Callable

import jax
import jax.numpy as jnp

from benchmarks.arrays import data_shape, kernel_shape
from benchmarks.layer import Layer


def contraction(forward: Callable, layer: Layer, op: str, layout: str) -> Callable:
    """`op` as a function of its two operands, given `forward(src, weights)`.

    The op is linear in each operand, so the gradient does not depend on the one it is taken
    in: zeros stand for it, and the compiler drops the forward computation.
    """
    if op == "forward":
        return forward

    src_shape = data_shape(layer.batch, layer.src_size, layer.src_channels, layout)

    def data(diff_dst, weights):
        src = jnp.zeros(src_shape, diff_dst.dtype)
        return jax.vjp(lambda s: forward(s, weights), src)[1](diff_dst)[0]

    def weights(src, diff_dst):
        kernel = jnp.zeros(kernel_shape(layer, layout), src.dtype)
        return jax.vjp(lambda w: forward(src, w), kernel)[1](diff_dst)[0]

    return data if op == "data" else weights


def dilated_pads(layer: Layer) -> list[tuple[int, int]]:
    """The pads of the stride-1 convolution over dilated src that a transposed one is."""
    return [
        (extent - 1 - begin, extent - 1 - end)
        for extent, begin, end in zip(layer.extents, layer.pads_begin, layer.pads_end, strict=True)
    ]
