"""A network's inference in JAX, channels last, on any JAX engine's convolutions."""

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import jax
import jax.numpy as jnp
from jax import lax

from benchmarks import inference_networks, networks
from benchmarks.engines import _jax_step


def forward(name: str, module: ModuleType) -> Callable:
    """A function of a network's images and parameters: the logits, in a list of one."""
    ops = Ops(module)
    return lambda *operands: [inference_networks.logits(name, ops, operands)]


@dataclass(frozen=True)
class Ops(_jax_step.Ops):
    """What inference_networks.py asks of an engine."""

    module: ModuleType

    def layer(self, x, w, b, family, stride, pad, groups, activation, residual):
        layer = networks.as_layer(family, x.shape, w.shape, stride, pad, groups)
        if hasattr(self.module, "finished"):
            return self.module.finished(layer, activation)(x, w, b, residual)
        y = self.module.contraction(layer, "forward", "NXC")(x, w) + b[None, None, None]
        y = y if residual is None else y + residual
        return getattr(jax.nn, activation)(y) if activation else y

    def dense(self, x, w, b):
        return x @ w + b[None]

    def max_pool(self, x, k, s, pad):
        window, strides, pads = (1, k, k, 1), (1, s, s, 1), ((0, 0), (pad, pad), (pad, pad), (0, 0))
        return lax.reduce_window(x, -jnp.inf, lax.max, window, strides, pads)

    def mean_pixel(self, x):
        return x.mean((1, 2), keepdims=True)

    def multiply(self, x, y):
        return x * y
