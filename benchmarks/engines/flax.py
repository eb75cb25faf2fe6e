"""Engine: flax.linen's layers, gradients by autodiff. They are channels last only."""

from collections.abc import Callable

import flax
from flax import linen

from benchmarks.engines import Unsupported, _autodiff
from benchmarks.layer import Layer

PACKAGE = flax
LAYOUT = "NXC"


def contraction(layer: Layer, op: str, layout: str) -> Callable:
    """`op` as a function of its two operands."""
    if layer.family == "conv":
        module = linen.Conv(
            layer.dst_channels,
            layer.kernel,
            layer.strides,
            list(zip(layer.pads_begin, layer.pads_end, strict=True)),
            kernel_dilation=layer.dilations,
            feature_group_count=layer.groups,
            use_bias=False,
        )
    elif layer.groups > 1:
        raise Unsupported("flax.linen.ConvTranspose has no groups")
    else:
        module = linen.ConvTranspose(
            layer.dst_channels,
            layer.kernel,
            layer.strides,
            _autodiff.dilated_pads(layer),
            kernel_dilation=layer.dilations,
            use_bias=False,
            transpose_kernel=True,
        )

    def forward(src, weights):
        return module.apply({"params": {"kernel": weights}}, src)

    return _autodiff.contraction(forward, layer, op, layout)
