"""`python -m benchmarks.install`: training steps of unmodified models, before and after `install`.

One line a model: milliseconds of a step, forward, backward and SGD, the fastest of all rounds,
and seconds to compile it, by lax and where jaxconv is installed. Both steps are compiled in this
process and then called in turns. The models are written in `jax.lax`, as one writes them.
"""

import argparse
import os
import time
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import jaxconv
from benchmarks import engines, figures, files, run
from benchmarks.rounds import of_calls

LAST = ("NHWC", "HWIO", "NHWC")


def conv(p: Any, x: Any, out: int, k: int, s: int = 1, g: int = 1) -> Any:
    w = p(k, k, x.shape[-1] // g, out)
    return lax.conv_general_dilated(
        x, w, (s, s), "SAME", dimension_numbers=LAST, feature_group_count=g
    )


def up(p: Any, x: Any, out: int) -> Any:
    return lax.conv_transpose(x, p(4, 4, x.shape[-1], out), (2, 2), "SAME")


def norm(x: Any) -> Any:
    mean = x.mean((0, 1, 2), keepdims=True)
    slope = lax.rsqrt(x.var((0, 1, 2), keepdims=True) + 1e-5)
    return jax.nn.relu(x * slope - mean * slope)


def dense_cnn(p: Any, x: Any) -> Any:
    for width, stride in ((64, 1), (64, 1), (128, 2), (128, 1), (256, 2), (256, 1)):
        x = norm(conv(p, x, width, 3, stride))
    return x


def grouped(p: Any, x: Any) -> Any:
    """As 16 groups in each 3x3."""
    x = norm(conv(p, x, 64, 3))
    for width, stride in ((128, 2), (128, 1), (256, 2), (256, 1)):
        x = norm(conv(p, x, width, 3, stride, 16))
    return x


def mobilenet(p: Any, x: Any) -> Any:
    x = norm(conv(p, x, 32, 3, 2))
    for width, stride in ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1)):
        x = norm(conv(p, x, x.shape[-1], 3, stride, x.shape[-1]))
        x = norm(conv(p, x, width, 1))
    return x


def unet(p: Any, x: Any) -> Any:
    skips = []
    for width in (32, 64, 128):
        x = norm(conv(p, norm(conv(p, x, width, 3)), width, 3))
        skips.append(x)
        x = norm(conv(p, x, width, 3, 2))
    for width in (128, 64, 32):
        x = jnp.concatenate([norm(up(p, x, width)), skips.pop()], -1)
        x = norm(conv(p, x, width, 3))
    return x


def convnext(p: Any, x: Any) -> Any:
    """Depthwise 7x7, and four times as many channels between two of 1x1."""
    x = norm(conv(p, x, 64, 4, 4))
    for _ in range(4):
        y = norm(conv(p, x, 64, 7, 1, 64))
        x = x + conv(p, norm(conv(p, y, 256, 1)), 64, 1)
    return x


#: name -> network, and the shape of its images
MODELS: dict[str, tuple[Callable[[Any, Any], Any], tuple[int, ...]]] = {
    "dense CNN": (dense_cnn, (8, 32, 32, 3)),
    "16 groups": (grouped, (8, 32, 32, 3)),
    "MobileNet-like": (mobilenet, (8, 64, 64, 3)),
    "U-Net": (unet, (4, 64, 64, 3)),
    "ConvNeXt-like": (convnext, (8, 64, 64, 3)),
}


class Parameters:
    """Hands out arrays in order, or makes them."""

    def __init__(self, arrays: Any = None) -> None:
        self.arrays, self.made = arrays, []

    def __call__(self, *shape: int) -> Any:
        if self.arrays is None:
            scale = np.sqrt(2 / np.prod(shape[:-1]))
            rng = np.random.default_rng(len(self.made))
            self.made.append(np.float32(scale * rng.standard_normal(shape)))
            return self.made[-1]
        self.made.append(None)
        return self.arrays[len(self.made) - 1]


def step(network: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """The loss, and the parameters after a step."""

    def loss(arrays: Any, x: Any) -> Any:
        return (network(Parameters(arrays), x).mean((1, 2)) ** 2).mean()

    def run(arrays: Any, x: Any) -> Any:
        value, slopes = jax.value_and_grad(loss)(arrays, x)
        return value, [a - 0.05 * slope for a, slope in zip(arrays, slopes, strict=True)]

    return run


def compiled(run: Callable[..., Any], *args: Any) -> tuple[Any, float]:
    """And the seconds that took, tracing included."""
    start = time.perf_counter()
    program = jax.jit(run).lower(*args).compile()
    return program, time.perf_counter() - start


#: What a step is compiled as: the labels of `benchmarks.train_step`.
LABELS = ("lax", "lax+install")


def measure(name: str, rounds: int) -> dict[str, dict]:
    """By label, times of the steps and the seconds to compile one."""
    network, shape = MODELS[name]
    x = np.float32(np.random.default_rng(1).standard_normal(shape))
    parameters = Parameters()
    jax.eval_shape(lambda x: network(parameters, x), x)
    args = jax.device_put((parameters.made, x))
    programs, seconds, times = [], [], ([], [])
    for yes in (False, True):
        with jaxconv.installed(yes):
            program, took = compiled(step(network), *args)
        programs.append(program)
        seconds.append(took)
    losses, after = zip(*(program(*args) for program in programs), strict=True)
    np.testing.assert_allclose(*losses, rtol=1e-4)
    for one, other in zip(*after, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-2, atol=1e-4)
    for _ in range(rounds):
        for program, found in zip(programs, times, strict=True):
            start = time.perf_counter()
            jax.block_until_ready(program(*args))
            found.append(time.perf_counter() - start)
    return {
        label: of_calls(found) | {"compile_s": took, "loss": float(loss)}
        for label, found, took, loss in zip(LABELS, times, seconds, losses, strict=True)
    }


def main() -> None:
    """Print the table, and write the results."""
    asking = argparse.ArgumentParser(description="steps of models before and after jaxconv.install")
    asking.add_argument("--rounds", type=int, default=7, help="of a call each of both")
    asking.add_argument("--models", nargs="+", choices=[*MODELS], default=[*MODELS])
    asking.add_argument("--out", default="", help="where the CSV goes")
    asked = asking.parse_args()
    started, load, rows = time.time(), os.getloadavg()[0], []
    found = {"engines": {label: engines.load(label).versions() for label in LABELS}, "rows": rows}
    print(*figures.steps([found], []), sep="\n")
    kind = {"class": "training step", "op": "step", "dtype": "f32", "layout": "NXC"}
    for name in asked.models:
        rows.append({"layer": name, **kind, "engines": measure(name, asked.rounds)})
        print(figures.steps([found], [])[-1], flush=True)
    if asked.out:
        files.write(asked.out, run.header(started, load) | {"rounds": asked.rounds} | found)


if __name__ == "__main__":
    main()
