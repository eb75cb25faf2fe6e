"""How a JAX function becomes a timed call: jit, lower, compile; and what networks ask of JAX."""

import contextlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks import networks
from benchmarks.arrays import enter, leave
from benchmarks.engines import Timed
from benchmarks.layer import DTYPES, Ints, Layer


def versions(packages: list[ModuleType]) -> dict[str, str]:
    """What ran: JAX, the engine's own packages, the device."""
    device = jax.devices()[0]
    own = {package.__name__: getattr(package, "__version__", "?") for package in packages}
    return own | {
        "jax": jax.__version__,
        "platform": device.platform,
        "device": device.device_kind,
        "devices": str(jax.device_count()),
    }


def prepare(
    module: ModuleType, scope, apart: bool, job: dict, operands: list[np.ndarray]
) -> dict[str, Timed]:
    """Compile what a job asks for; `scope` makes a context to do so in.

    Of an ensemble, members are called one by one if they are to be `apart`, else by `vmap`.
    """
    jax.config.update("jax_enable_x64", job["dtype"] == "f64")
    if job["kind"] == "layer":
        layer, op, layout = job["layer"], job["op"], job["layout"]
        operands = enter(layer, op, layout, operands)
        function = of_members(module.contraction(layer, op, layout), layer.members, apart)

        def fetch(result: jax.Array) -> list[np.ndarray]:
            return [leave(layer, op, layout, _as_float(result))]
    else:
        function = (step if job["kind"] == "step" else forward)(job["network"], module)

        def fetch(results: Sequence[jax.Array]) -> list[np.ndarray]:
            return [*map(_as_float, results)]

    arrays = [jax.device_put(x.astype(DTYPES[job["dtype"]])) for x in operands]
    jax.block_until_ready(arrays)
    with scope(function, arrays) if scope else contextlib.nullcontext():
        return {"": compiled(function, arrays, fetch)}


def of_members(one: Callable, members: int, apart: bool) -> Callable:
    """A function of the operands of all members, from that of one."""
    if members == 1:
        return one
    if not apart:
        return jax.vmap(one)
    return lambda *every: jnp.stack([one(*own) for own in zip(*every, strict=True)])


def compiled(function, arrays: list[jax.Array], fetch) -> Timed:
    """The function of `arrays`, compiled."""
    start = time.perf_counter()
    executable = jax.jit(function).lower(*arrays).compile()
    facts = {"compile_s": time.perf_counter() - start}
    memory = executable.memory_analysis()
    if memory is not None:
        facts["temp_bytes"] = memory.temp_size_in_bytes
    return Timed(lambda: executable(*arrays), jax.block_until_ready, fetch, facts)


def _as_float(y: jax.Array) -> np.ndarray:
    y = np.asarray(y)
    return y if y.dtype == np.float64 else y.astype(np.float32)


def step(name: str, module: ModuleType) -> Callable:
    """A function of a network's operands: the loss, and the parameters after one SGD step."""
    network, ops = networks.NETWORKS[name], Ops(module)

    def function(*operands):
        data, changing, frozen = network.split(operands)

        def loss(changing):
            return network.evaluate(ops, data, (*changing, *frozen))

        value, gradients = jax.value_and_grad(loss)(changing)
        pairs = zip(changing, gradients, strict=True)
        return value, *(p - jnp.asarray(networks.LEARNING_RATE, p.dtype) * g for p, g in pairs)

    return function


def forward(name: str, module: ModuleType) -> Callable:
    """A function of a network's images and parameters: the logits, in a list of one."""
    network, ops = networks.NETWORKS[name], Ops(module)
    return lambda images, *parameters: [network.evaluate(ops, [images], parameters)]


@dataclass(frozen=True)
class Ops:
    """What networks ask of an engine."""

    module: ModuleType

    def conv(self, x, w, family, stride, pads, groups):
        layer = _met(family, x.shape, w.shape, stride, pads, groups)
        return self.module.contraction(layer, "forward", "NXC")(x, w)

    def finished(self, x, w, b, family, stride, pads, groups, activation, residual):
        if hasattr(self.module, "finished"):
            layer = _met(family, x.shape, w.shape, stride, pads, groups)
            return self.module.finished(layer, activation)(x, w, b, residual)
        y = self.conv(x, w, family, stride, pads, groups) + b[None, None, None]
        y = y if residual is None else y + residual
        return self.activate(y, activation) if activation else y

    def norm(self, x, scale, shift):
        wide = _wide(x)
        axes = tuple(range(x.ndim - 1))
        scale, shift = (jnp.expand_dims(p, axes) for p in (scale, shift))
        mean = wide.mean(axes, keepdims=True)
        variance = jnp.square(wide - mean).mean(axes, keepdims=True)
        # As one multiplication and one addition of `x`: three quarters of a ResNeXt step's time.
        slope = scale * jax.lax.rsqrt(variance + 1e-5)
        return (wide * slope + (shift - mean * slope)).astype(x.dtype)

    def activate(self, x, name):
        return getattr(jax.nn, name)(x)

    def concat(self, x, y):
        return jnp.concatenate((x, y), axis=-1)

    def max_pool(self, x, k=2, s=2, pad=0):
        window, strides, pads = ((o, n, n, o) for o, n in ((1, k), (1, s), ((0, 0), (pad, pad))))
        return jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, window, strides, pads)

    def flatten(self, x):
        return x.reshape(x.shape[0], -1)

    def mean(self, x, keep=False):
        return x.mean(tuple(range(1, x.ndim - 1)), keepdims=keep)

    def linear(self, x, w, b):
        return x @ w + b[None]

    def cross_entropy(self, logits, labels):
        wide = jax.nn.log_softmax(_wide(logits))
        return -(wide * _wide(labels)).sum(-1).mean()

    def logistic_loss(self, logits, target):
        sign = 1.0 - 2.0 * target
        return jax.nn.softplus(sign * _wide(logits)).mean()


def _met(family: str, src: Ints, kernel: Ints, stride: int, pads: Ints, groups: int) -> Layer:
    """The layer that meets a src of shape `src` (channels last) in a network."""
    *taps, fine, coarse = kernel
    size = src[1:-1]
    if family == "deconv":
        each = zip(size, taps, pads, strict=True)
        size = tuple(stride * (n - 1) + k - 2 * pad for n, k, pad in each)
    return Layer(
        family=family,
        fine=size,
        kernel=tuple(taps),
        strides=(stride,) * len(taps),
        dilations=(1,) * len(taps),
        pads_begin=pads,
        pads_end=pads,
        channels=(fine * groups, coarse),
        groups=groups,
        batch=src[0],
    )


def _wide(x):
    """At least f32, for what would lose too much in 16 bits."""
    return x.astype(jnp.float32) if x.dtype.itemsize < 4 else x
