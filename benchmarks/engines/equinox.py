"""Engine: equinox's layers, gradients by autodiff. They are channels first only."""

from collections.abc import Callable

import equinox
import jax
import jax.numpy as jnp

from benchmarks.engines import _autodiff
from benchmarks.engines.lax import grouped_transposed_kernel
from benchmarks.layer import Layer

PACKAGE = equinox
LAYOUT = "NCX"


def contraction(layer: Layer, op: str, layout: str) -> Callable:
    """`op` as a function of its two operands."""
    transposed = layer.family == "deconv"
    kind = equinox.nn.ConvTranspose if transposed else equinox.nn.Conv
    pads = list(zip(layer.pads_begin, layer.pads_end, strict=True))
    module = equinox.filter_eval_shape(
        kind,
        layer.rank,
        layer.src_channels,
        layer.dst_channels,
        layer.kernel,
        layer.strides,
        pads,
        dilation=layer.dilations,
        groups=layer.groups,
        use_bias=False,
        key=jax.random.key(0),
    )

    def forward(src, weights):
        if transposed:  # equinox keeps the kernel of the convolution that it runs
            weights = jnp.swapaxes(grouped_transposed_kernel(layer, "NCX", weights), 0, 1)
        return jax.vmap(equinox.tree_at(lambda m: m.weight, module, weights))(src)

    return _autodiff.contraction(forward, layer, op, layout)
