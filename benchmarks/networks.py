"""The networks of train_step: small but real, each written once for every engine.

A network is a function of `ops` (an engine's convolutions and the little else that is
needed), `p` (which hands out the next parameter) and its data, and returns the loss.
Tensors are only touched through `ops`, so a network also tells its parameters' shapes.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from benchmarks.layer import Ints, Layer

LEARNING_RATE = 0.05


@dataclass
class Parameters:
    """Hands out given arrays in order; without any, notes what the network asks for."""

    arrays: Sequence[Any] | None = None
    asked: list[tuple[Ints, float, float, bool]] = field(default_factory=list)

    def __call__(self, *shape: int, std: float, mean: float = 0.0, train: bool = True) -> Any:
        self.asked.append((shape, std, mean, train))
        return None if self.arrays is None else self.arrays[len(self.asked) - 1]


class NoOps:
    """Computes nothing: a network then only asks for its parameters."""

    def __getattr__(self, name: str) -> Callable:
        return lambda *args, **kwargs: None


def conv(ops, p, x, cin, cout, k, s=1, g=1, train=True):
    """A convolution without bias, padded by half its kernel; k is an int or one per axis."""
    k = (k, k) if isinstance(k, int) else k
    std = math.sqrt(2 / (math.prod(k) * cin / g))
    w = p(*k, cin // g, cout, std=std, train=train)
    return ops.conv(x, w, "conv", s, tuple((n - 1) // 2 for n in k), g)


def deconv(ops, p, x, cin, cout, k, s, pad):
    """A transposed convolution without bias."""
    std = math.sqrt(2 / (cin * math.prod(k) / s ** len(k)))
    return ops.conv(x, p(*k, cout, cin, std=std), "deconv", s, pad, 1)


def norm(ops, p, x, c, train=True):
    """Batch normalisation by the batch's own statistics."""
    scale = p(c, std=0.1, mean=1.0, train=train)
    return ops.norm(x, scale, p(c, std=0.1, train=train))


def head(ops, p, x, c, labels):
    """Global mean, linear, cross entropy."""
    return ops.cross_entropy(ops.linear(ops.mean(x), p(c, 10, std=c**-0.5)), labels)


def inverted(unit, x, stem, blocks, activation, gate=lambda y, wide, cin: (y, {})):
    """MobileNetV2 and its like, up to the head: depthwise kernels between two of 1x1.

    `unit` is a convolution with all that follows. Blocks are expansion, channels, repeats, stride
    and kernel. Residuals are added to what has no activation.
    """
    x, cin = unit(x, 3, stem, 3, 2, activation=activation), stem
    for expansion, cout, repeats, stride, k in blocks:
        for s in (stride, *[1] * (repeats - 1)):
            wide, y = cin * expansion, x
            if expansion > 1:
                y = unit(y, cin, wide, 1, activation=activation)
            y, more = gate(unit(y, wide, wide, k, s, wide, activation), wide, cin)
            kept = x if (s, cin) == (1, cout) else None
            x, cin = unit(y, wide, cout, 1, residual=kept, **more), cout
    return unit(x, cin, 1280, 1, activation=activation)


def mobilenetv2_blocks(*channels):
    """The blocks of MobileNetV2, of any width."""
    repeats, strides = (1, 2, 3, 4, 3, 3, 1), (1, 2, 2, 2, 1, 2, 1)
    each = enumerate(zip(channels, repeats, strides, strict=True))
    return [(6 if n else 1, c, repeats, stride, 3) for n, (c, repeats, stride) in each]


def unit(ops, p, x, cin, cout, k, s=1, g=1, activation=None, residual=None):
    """A convolution, batch normalisation, a residual and an activation."""
    y = norm(ops, p, conv(ops, p, x, cin, cout, k, s, g), cout)
    y = y if residual is None else ops.add(residual, y)
    return getattr(ops, activation)(y) if activation else y


def mobilenetv2(ops, p, x, labels):
    """Width 0.5."""
    blocks = mobilenetv2_blocks(8, 16, 16, 32, 48, 80, 160)
    x = inverted(partial(unit, ops, p), x, 16, blocks, "relu6")
    return head(ops, p, x, 1280, labels)


def resnext(ops, p, x, labels):
    """A stem and two stages of two bottlenecks with 32 groups."""
    x, cin = unit(ops, p, x, 3, 64, 7, 2, activation="relu"), 64
    for width, stride in ((128, 1), (256, 2)):
        for n in range(2):
            s, cout, y = stride if n == 0 else 1, 2 * width, x
            y = unit(ops, p, y, cin, width, 1, activation="relu")
            y = unit(ops, p, y, width, width, 3, s, 32, "relu")
            y = unit(ops, p, y, width, cout, 1)
            if n == 0:
                x = unit(ops, p, x, cin, cout, 1, s)
            x, cin = ops.relu(ops.add(x, y)), cout
    return head(ops, p, x, cin, labels)


def cnn(groups, ops, p, x, labels):
    """A stem and five convolutions of 3x3, all but the stem in so many groups."""
    x, cin = unit(ops, p, x, 3, 64, 3, activation="relu"), 64
    for cout, stride in ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1)):
        x, cin = unit(ops, p, x, cin, cout, 3, stride, groups, "relu"), cout
    return head(ops, p, x, cin, labels)


def mnist(ops, p, x, labels):
    """Two convolutions of 3x3, each with a max pool, then two dense layers."""
    for cin, cout in ((1, 32), (32, 64)):
        x = ops.max_pool(ops.relu(conv(ops, p, x, cin, cout, 3)))
    x = ops.relu(ops.linear(ops.flatten(x), p(7 * 7 * 64, 128, std=(2 / 3136) ** 0.5)))
    return ops.cross_entropy(ops.linear(x, p(128, 10, std=128**-0.5)), labels)


def vgg(ops, p, x, labels):
    """Three pairs of 3x3, each with a max pool."""
    cin = 3
    for width in (64, 128, 256):
        for _ in range(2):
            x, cin = unit(ops, p, x, cin, width, 3, activation="relu"), width
        x = ops.max_pool(x)
    return head(ops, p, x, cin, labels)


def unet(ops, p, x, labels):
    """Three levels, two 3x3 down and one up, each 4x4 transposed convolution doubling the sides."""

    def block(x, cin, cout, stride=1):
        return unit(ops, p, x, cin, cout, 3, stride, activation="relu")

    skips, cin = [], 3
    for width in (32, 64, 128):
        x = block(block(x, cin, width), width, width)
        skips.append((x, width))
        x, cin = block(x, width, width, 2), width
    for x_skip, width in reversed(skips):
        x = ops.relu(norm(ops, p, deconv(ops, p, x, cin, width, (4, 4), 2, 1), width))
        x, cin = block(ops.concat(x, x_skip), 2 * width, width), width
    return ops.cross_entropy(conv(ops, p, x, cin, 4, 1), labels)


def convnext(ops, p, x, labels):
    """Patches of 4x4, then depthwise 7x7 and four times as many channels between two of 1x1."""
    w = p(4, 4, 3, 64, std=(2 / 48) ** 0.5)
    x = norm(ops, p, ops.conv(x, w, "conv", 4, 0, 1), 64)
    for _ in range(4):
        y = unit(ops, p, x, 64, 64, 7, g=64)
        y = unit(ops, p, y, 64, 256, 1, activation="relu")
        x = ops.add(x, conv(ops, p, y, 256, 64, 1))
    return head(ops, p, x, 64, labels)


def _discriminator(ops, p, x, train):
    cin = 3
    for cout in (64, 128, 256):
        x = conv(ops, p, x, cin, cout, (4, 4), 2, train=train)
        x = ops.leaky(x if cin == 3 else norm(ops, p, x, cout, train))
        cin = cout
    return ops.linear(ops.mean(x), p(cin, 1, std=cin**-0.5, train=train))


def dcgan_discriminator(ops, p, real, fake):
    """Images of 64x64 told apart."""
    right = ops.logistic_loss(_discriminator(ops, p, real, True), 1)
    return ops.add(right, ops.logistic_loss(_discriminator(ops, p, fake, True), 0))


def dcgan_generator(ops, p, noise):
    """From noise to an image that a frozen discriminator judges."""
    x = ops.relu(norm(ops, p, deconv(ops, p, noise, 100, 512, (4, 4), 1, 0), 512))
    for cin, cout in ((512, 256), (256, 128), (128, 64)):
        x = ops.relu(norm(ops, p, deconv(ops, p, x, cin, cout, (4, 4), 2, 1), cout))
    x = ops.tanh(deconv(ops, p, x, 64, 3, (4, 4), 2, 1))
    return ops.logistic_loss(_discriminator(ops, p, x, False), 1)


def unet3d(ops, p, x, labels):
    """Two levels, 3x3x3, up by a k2 s2 transposed convolution."""

    def double(x, cin, cout):
        for a, b in ((cin, cout), (cout, cout)):
            x = unit(ops, p, x, a, b, (3, 3, 3), activation="relu")
        return x

    fine = double(x, 1, 16)
    coarse = unit(ops, p, fine, 16, 32, (3, 3, 3), 2, activation="relu")
    coarse = double(coarse, 32, 32)
    x = double(ops.concat(deconv(ops, p, coarse, 32, 16, (2, 2, 2), 2, 0), fine), 32, 16)
    return ops.cross_entropy(conv(ops, p, x, 16, 4, (1, 1, 1)), labels)


# Each network with its data: the shapes, channels last; "labels" are one-hot in the last axis.
NETWORKS: dict[str, tuple[Callable, dict[str, Ints]]] = {
    "dense-cnn": (partial(cnn, 1), {"images": (8, 32, 32, 3), "labels": (8, 10)}),
    "16-groups": (partial(cnn, 16), {"images": (8, 32, 32, 3), "labels": (8, 10)}),
    "mnist": (mnist, {"images": (128, 28, 28, 1), "labels": (128, 10)}),
    "vgg": (vgg, {"images": (8, 64, 64, 3), "labels": (8, 10)}),
    "unet": (unet, {"images": (4, 64, 64, 3), "labels": (4, 64, 64, 4)}),
    "convnext": (convnext, {"images": (8, 64, 64, 3), "labels": (8, 10)}),
    "mobilenetv2-0.5": (mobilenetv2, {"images": (8, 96, 96, 3), "labels": (8, 10)}),
    "resnext": (resnext, {"images": (8, 56, 56, 3), "labels": (8, 10)}),
    "dcgan-discriminator": (
        dcgan_discriminator,
        {"real": (16, 64, 64, 3), "fake": (16, 64, 64, 3)},
    ),
    "dcgan-generator": (dcgan_generator, {"noise": (16, 1, 1, 100)}),
    "unet3d": (unet3d, {"images": (1, 16, 32, 32, 1), "labels": (1, 16, 32, 32, 4)}),
}


def trainable(name: str) -> list[bool]:
    """Of each parameter, in order, whether the step changes it."""
    return [train for *_, train in _asked(name)]


def data_count(name: str) -> int:
    """How many of a network's operands are data; the parameters follow them."""
    return len(NETWORKS[name][1])


def operands(name: str) -> list[np.ndarray]:
    """Data and first parameters, channels last, in float32."""
    rng = np.random.default_rng(7)
    arrays = []
    for kind, shape in NETWORKS[name][1].items():
        x = rng.standard_normal(shape)
        arrays.append(x == x.max(axis=-1, keepdims=True) if kind == "labels" else x)
    for shape, std, mean, _ in _asked(name):
        arrays.append(mean + std * rng.standard_normal(shape))
    return [x.astype(np.float32) for x in arrays]


def loss(name: str, ops: Any, operands: Sequence[Any]) -> Any:
    """The loss of a network."""
    n = data_count(name)
    return NETWORKS[name][0](ops, Parameters(operands[n:]), *operands[:n])


def as_layer(
    family: str, src: Ints, kernel: Ints, stride: int, pad: int | Ints, groups: int
) -> Layer:
    """The layer that meets a src of shape `src` (channels last) in a network."""
    rank = len(src) - 2
    pads = (pad,) * rank if isinstance(pad, int) else pad
    size, taps = src[1:-1], kernel[:rank]
    if family == "conv":
        dst = [(n + 2 * p - k) // stride + 1 for n, p, k in zip(size, pads, taps, strict=True)]
        channels = kernel[-1]
    else:
        dst = [stride * (n - 1) + k - 2 * p for n, p, k in zip(size, pads, taps, strict=True)]
        channels = kernel[-2] * groups
    return Layer.of(
        family,
        (tuple(size), src[-1]),
        (tuple(dst), channels),
        tuple(taps),
        strides=(stride,) * rank,
        dilations=(1,) * rank,
        pads_begin=tuple(pads),
        batch=src[0],
        groups=groups,
        name="",
        network="",
    )


def _asked(name: str) -> list[tuple[Ints, float, float, bool]]:
    p = Parameters()
    network, data = NETWORKS[name]
    network(NoOps(), p, *(None for _ in data))
    return p.asked
