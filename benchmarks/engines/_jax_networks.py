"""Training steps and inferences in JAX, channels last, on any JAX engine's convolutions."""

from collections.abc import Callable
from dataclasses import dataclass
from types import ModuleType

import jax
import jax.numpy as jnp

from benchmarks import inference_networks, networks


def step(name: str, module: ModuleType) -> Callable:
    """A function of a network's operands: the loss, and the parameters after one SGD step."""
    n, trainable = networks.data_count(name), networks.trainable(name)
    ops = Ops(module)

    def function(*operands):
        data, parameters = operands[:n], operands[n:]

        def loss(changing):
            supply = iter(changing)
            merged = [next(supply) if t else p for p, t in zip(parameters, trainable, strict=True)]
            return networks.loss(name, ops, (*data, *merged))

        changing = [p for p, t in zip(parameters, trainable, strict=True) if t]
        value, gradients = jax.value_and_grad(loss)(changing)
        rate = networks.LEARNING_RATE
        stepped = [
            p - jnp.asarray(rate, p.dtype) * g for p, g in zip(changing, gradients, strict=True)
        ]
        return value, *stepped

    return function


def forward(name: str, module: ModuleType) -> Callable:
    """A function of a network's images and parameters: the logits, in a list of one."""
    ops = Ops(module)
    return lambda *operands: [inference_networks.logits(name, ops, operands)]


@dataclass(frozen=True)
class Ops:
    """What networks ask of an engine."""

    module: ModuleType

    def conv(self, x, w, family, stride, pad, groups):
        layer = networks.as_layer(family, x.shape, w.shape, stride, pad, groups)
        return self.module.contraction(layer, "forward", "NXC")(x, w)

    def layer(self, x, w, b, family, stride, pad, groups, activation, residual):
        if hasattr(self.module, "finished"):
            layer = networks.as_layer(family, x.shape, w.shape, stride, pad, groups)
            return self.module.finished(layer, activation)(x, w, b, residual)
        y = self.conv(x, w, family, stride, pad, groups) + b[None, None, None]
        y = y if residual is None else y + residual
        return getattr(jax.nn, activation)(y) if activation else y

    def norm(self, x, scale, shift):
        wide = _wide(x)
        axes = tuple(range(x.ndim - 1))
        scale, shift = (jnp.expand_dims(p, axes) for p in (scale, shift))
        mean = wide.mean(axes, keepdims=True)
        variance = jnp.square(wide - mean).mean(axes, keepdims=True)
        # As one multiplication and one addition of `x`: three quarters of a ResNeXt step's time.
        slope = scale * jax.lax.rsqrt(variance + 1e-5)
        return (wide * slope + (shift - mean * slope)).astype(x.dtype)

    def relu(self, x):
        return jax.nn.relu(x)

    def relu6(self, x):
        return jax.nn.relu6(x)

    def leaky(self, x):
        return jax.nn.leaky_relu(x, 0.2)

    def tanh(self, x):
        return jnp.tanh(x)

    def add(self, x, y):
        return x + y

    def concat(self, x, y):
        return jnp.concatenate((x, y), axis=-1)

    def max_pool(self, x, k=2, s=2, pad=0):
        window, strides, pads = ((o, n, n, o) for o, n in ((1, k), (1, s), ((0, 0), (pad, pad))))
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, strides, pads)

    def flatten(self, x):
        return x.reshape(x.shape[0], -1)

    def mean(self, x):
        return x.mean(tuple(range(1, x.ndim - 1)))

    def mean_pixel(self, x):
        return x.mean((1, 2), keepdims=True)

    def multiply(self, x, y):
        return x * y

    def linear(self, x, w, b=None):
        return x @ w if b is None else x @ w + b[None]

    def cross_entropy(self, logits, labels):
        wide = jax.nn.log_softmax(_wide(logits))
        return -(wide * _wide(labels)).sum(-1).mean()

    def logistic_loss(self, logits, target):
        sign = 1.0 - 2.0 * target
        return jax.nn.softplus(sign * _wide(logits)).mean()


def _wide(x):
    """At least f32, for what would lose too much in 16 bits."""
    return x.astype(jnp.float32) if x.dtype.itemsize < 4 else x
