"""Engine: haiku's layers, gradients by autodiff."""

from collections.abc import Callable

import haiku
import jax.numpy as jnp

from benchmarks.engines import Unsupported, _autodiff
from benchmarks.layer import Layer

PACKAGE = haiku


def contraction(layer: Layer, op: str, layout: str) -> Callable:
    """`op` as a function of its two operands."""
    transposed = layer.family == "deconv"
    if transposed and (layer.groups > 1 or max(layer.dilations) > 1):
        raise Unsupported("haiku.ConvNDTranspose has neither groups nor dilations")

    def network(src):
        common = {
            "with_bias": False,
            "data_format": "channels_last" if layout == "NXC" else "channels_first",
            "name": "layer",
        }
        shape = (layer.rank, layer.dst_channels, layer.kernel, layer.strides)
        if transposed:
            pads = _autodiff.dilated_pads(layer)
            return haiku.ConvNDTranspose(*shape, padding=pads, **common)(src)
        return haiku.ConvND(
            *shape,
            rate=layer.dilations,
            padding=list(zip(layer.pads_begin, layer.pads_end, strict=True)),
            feature_group_count=layer.groups,
            **common,
        )(src)

    apply = haiku.without_apply_rng(haiku.transform(network)).apply

    def forward(src, weights):
        if transposed:  # haiku does not flip
            axes = range(2, layer.rank + 2) if layout == "NCX" else range(layer.rank)
            weights = jnp.flip(weights, tuple(axes))
        if layout == "NCX":  # haiku's kernels are (X, I, O), or (X, O, I), for either format
            weights = jnp.moveaxis(weights, (0, 1), (-1, -2))
        return apply({"layer": {"w": weights}}, src)

    return _autodiff.contraction(forward, layer, op, layout)
