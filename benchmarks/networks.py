"""The networks of train_step and inference: small but real, each written once for every engine.

A network is a function of a `Net` and of images, and returns logits, or of other data, and returns
its loss. In training, a `unit` has batch normalisation; in inference, where that is folded, a bias.
Data is only touched by a network's `ops` and by `+` and `*`, so that it also tells the shapes of
its parameters.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from unittest.mock import MagicMock

import numpy as np

from benchmarks.layer import Ints

LEARNING_RATE = 0.05
CLASSES, MASKS, TRAINED_CLASSES = 1000, 4, 10  # of an image; of a pixel; of a small image
#: How much larger weights are drawn before an activation, which makes the second moment smaller.
GAINS = {None: 1.0, "tanh": 1.0, "sigmoid": 0.1}
GAINS |= dict.fromkeys(("relu", "relu6", "leaky_relu", "silu"), 2.0)
GATE_GAIN = 3.0  # after a gate, of about a half
BIAS = 0.5  # so large that, in float32, no engine can leave one out within the tolerance


@dataclass
class Net:
    """An engine's `ops`, and parameters in order; without these, notes what a network asks for.

    A mock then stands for ops and for data.
    """

    training: bool
    ops: Any = field(default_factory=MagicMock)
    parameters: Sequence[Any] | None = None
    asked: list[tuple[Ints, float, float]] = field(default_factory=list)
    trained: int | None = None  # so many of the parameters, if not all

    def parameter(self, *shape: int, std: float, mean: float = 0.0) -> Any:
        """The next parameter."""
        self.asked.append((shape, std, mean))
        return None if self.parameters is None else self.parameters[len(self.asked) - 1]

    def unit(
        self,
        x,
        cin: int,
        cout: int,
        k: int | Ints,
        s: int = 1,
        g: int = 1,
        activation: str | None = None,
        residual=None,
        *,
        up: bool = False,
        pad: int | None = None,
        normed: bool = True,
        gain: float = 1.0,
    ):
        """A convolution, or `up` a transposed one, and all that follows it.

        Padded by half the kernel, or so that it is `s` times as large; k is an int or one per axis.
        """
        kernel = (k, k) if isinstance(k, int) else k
        fan = cin * math.prod(kernel) / (s ** len(kernel) if up else g)
        channels = (cout, cin) if up else (cin // g, cout)
        w = self.parameter(*kernel, *channels, std=math.sqrt(gain * GAINS[activation] / fan))
        around = [(n - s if up else n - 1) // 2 if pad is None else pad for n in kernel]
        where = "deconv" if up else "conv", s, tuple(around), g
        if not self.training:
            b = self.parameter(cout, std=BIAS)
            return self.ops.finished(x, w, b, *where, activation, residual)
        y = self.ops.conv(x, w, *where)
        if normed:
            scale, shift = (self.parameter(cout, std=0.1, mean=mean) for mean in (1.0, 0.0))
            y = self.ops.norm(y, scale, shift)
        y = y if residual is None else residual + y
        return self.ops.activate(y, activation) if activation else y

    def linear(self, x, cin: int, cout: int):
        """A dense layer."""
        w = self.parameter(cin, cout, std=cin**-0.5)
        return self.ops.linear(x, w, self.parameter(cout, std=0.1))

    def head(self, x, cin: int, classes: int = TRAINED_CLASSES):
        """Global mean and linear."""
        return self.linear(self.ops.mean(x), cin, classes)

    def double(self, x, cin: int, cout: int, k: int | Ints = 3):
        """Two units, of 3x3 if nothing else is said."""
        x = self.unit(x, cin, cout, k, activation="relu")
        return self.unit(x, cout, cout, k, activation="relu")


def cnn(groups, net, x):
    """A stem and five convolutions of 3x3, all but the stem in so many groups."""
    x, cin = net.unit(x, 3, 64, 3, activation="relu"), 64
    for cout, stride in ((64, 1), (128, 2), (128, 1), (256, 2), (256, 1)):
        x, cin = net.unit(x, cin, cout, 3, stride, groups, "relu"), cout
    return net.head(x, cin)


def mnist(net, x):
    """Two convolutions of 3x3, each with a max pool, then two dense layers."""
    for cin, cout in ((1, 32), (32, 64)):
        x = net.ops.max_pool(net.unit(x, cin, cout, 3, activation="relu", normed=False))
    x = net.ops.activate(net.linear(net.ops.flatten(x), 7 * 7 * 64, 128), "relu")
    return net.linear(x, 128, TRAINED_CLASSES)


def vgg(net, x):
    """Three pairs of 3x3, each with a max pool."""
    cin = 3
    for width in (64, 128, 256):
        x, cin = net.ops.max_pool(net.double(x, cin, width)), width
    return net.head(x, cin)


def resnet18(net, x):
    """Residuals are added before the last ReLU of a block."""
    x = net.ops.max_pool(net.unit(x, 3, 64, 7, 2, activation="relu"), 3, 2, 1)
    cin = 64
    for cout, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        for s in (stride, 1):
            y = net.unit(x, cin, cout, 3, s, activation="relu")
            kept = x if (s, cin) == (1, cout) else net.unit(x, cin, cout, 1, s)
            x, cin = net.unit(y, cout, cout, 3, activation="relu", residual=kept), cout
    return net.head(x, cin, CLASSES)


def resnext(net, x):
    """A stem and two stages of two bottlenecks with 32 groups."""
    x, cin = net.unit(x, 3, 64, 7, 2, activation="relu"), 64
    for width, stride in ((128, 1), (256, 2)):
        for s in (stride, 1):
            y = net.unit(x, cin, width, 1, activation="relu")
            y = net.unit(y, width, width, 3, s, 32, "relu")
            kept = x if cin == 2 * width else net.unit(x, cin, 2 * width, 1, s)
            x, cin = net.unit(y, width, 2 * width, 1, 1, 1, "relu", kept), 2 * width
    return net.head(x, cin)


def convnext(net, x):
    """Patches of 4x4, then depthwise 7x7 and four times as many channels between two of 1x1."""
    x = net.unit(x, 3, 64, 4, 4, pad=0)
    for _ in range(4):
        y = net.unit(net.unit(x, 64, 64, 7, g=64), 64, 256, 1, activation="relu")
        x = net.unit(y, 256, 64, 1, residual=x, normed=False)
    return net.head(x, 64)


def inverted(net, x, stem, blocks, activation, gate=lambda y, wide, cin: (y, {})):
    """MobileNetV2 and its like, up to the head: depthwise kernels between two of 1x1.

    Blocks are expansion, channels, repeats, stride and kernel. Residuals are added to what has no
    activation.
    """
    x, cin = net.unit(x, 3, stem, 3, 2, activation=activation), stem
    for expansion, cout, repeats, stride, k in blocks:
        for s in (stride, *[1] * (repeats - 1)):
            wide, y = cin * expansion, x
            if expansion > 1:
                y = net.unit(y, cin, wide, 1, activation=activation)
            y, more = gate(net.unit(y, wide, wide, k, s, wide, activation), wide, cin)
            kept = x if (s, cin) == (1, cout) else None
            x, cin = net.unit(y, wide, cout, 1, residual=kept, **more), cout
    return net.unit(x, cin, 1280, 1, activation=activation)


def mobilenetv2(width, classes, net, x):
    """Of any width, in multiples of eight channels."""
    channels = (int(width * c + 4) // 8 * 8 for c in (16, 24, 32, 64, 96, 160, 320))
    repeats, strides = (1, 2, 3, 4, 3, 3, 1), (1, 2, 2, 2, 1, 2, 1)
    rows = zip((1, *[6] * 6), channels, repeats, strides, [3] * 7, strict=True)
    return net.head(inverted(net, x, int(32 * width), rows, "relu6"), 1280, classes)


def efficientnet_b0(net, x):
    """As MobileNetV2, with SiLU, larger kernels, and a gate of each block's channels."""
    blocks = (
        (1, 16, 1, 1, 3),
        (6, 24, 2, 2, 3),
        (6, 40, 2, 2, 5),
        (6, 80, 3, 2, 3),
        (6, 112, 3, 1, 5),
        (6, 192, 4, 2, 5),
        (6, 320, 1, 1, 3),
    )

    def gate(y, wide, cin):
        z = net.unit(net.ops.mean(y, keep=True), wide, cin // 4, 1, activation="silu")
        return y * net.unit(z, cin // 4, wide, 1, activation="sigmoid"), {"gain": GATE_GAIN}

    return net.head(inverted(net, x, 32, blocks, "silu", gate), 1280, CLASSES)


def unet(pooled, net, x):
    """Two 3x3 on each of three levels, and a class for each pixel.

    Down by a stride and up by 4x4; or `pooled`, up by 2x2, and with a fourth level.
    """
    skips, cin, widths = [], 3, (32, 64, 128)
    for width in widths:
        x, cin = net.double(x, cin, width), width
        skips.append(x)
        x = net.ops.max_pool(x) if pooled else net.unit(x, cin, cin, 3, 2, activation="relu")
    if pooled:
        x, cin = net.double(x, cin, 256), 256
    for width, skip in zip(reversed(widths), reversed(skips), strict=True):
        if pooled:
            x = net.unit(x, cin, width, 2, 2, up=True)
            x = net.double(net.ops.concat(x, skip), 2 * width, width)
        else:
            x = net.unit(x, cin, width, 4, 2, up=True, activation="relu")
            x = net.unit(net.ops.concat(x, skip), 2 * width, width, 3, activation="relu")
        cin = width
    return net.unit(x, cin, MASKS, 1, normed=False)


def unet3d(net, x):
    """Two levels, 3x3x3, up by a k2 s2 transposed convolution."""
    fine = net.double(x, 1, 16, (3, 3, 3))
    x = net.unit(fine, 16, 32, (3, 3, 3), 2, activation="relu")
    x = net.unit(net.double(x, 32, 32, (3, 3, 3)), 32, 16, (2, 2, 2), 2, up=True, normed=False)
    x = net.double(net.ops.concat(x, fine), 32, 16, (3, 3, 3))
    return net.unit(x, 16, MASKS, (1, 1, 1), normed=False)


def discriminator(net, x):
    """Tells images of 64x64 apart; the first convolution has no normalisation."""
    cin = 3
    for cout in (64, 128, 256):
        x, cin = net.unit(x, cin, cout, 4, 2, 1, "leaky_relu", normed=cin > 3), cout
    return net.head(x, cin, 1)


def dcgan_discriminator(net, real, fake):
    """The loss of one that tells images apart."""
    right = net.ops.logistic_loss(discriminator(net, real), 1)
    return right + net.ops.logistic_loss(discriminator(net, fake), 0)


def dcgan_generator(net, x):
    """From noise to an image, and the loss by a frozen discriminator."""
    x = net.unit(x, 100, 512, 4, 1, 1, "relu", up=True, pad=0)
    for cin, cout in ((512, 256), (256, 128), (128, 64)):
        x = net.unit(x, cin, cout, 4, 2, 1, "relu", up=True)
    x = net.unit(x, 64, 3, 4, 2, 1, "tanh", up=True, normed=False)
    net.trained = len(net.asked)
    return net.ops.logistic_loss(discriminator(net, x), 1)


@dataclass(frozen=True)
class Network:
    """A function of a `Net` and of data, and the shapes of that data, channels last.

    "labels" are one-hot in the last axis, and the loss is then the cross entropy.
    """

    function: Callable
    data: dict[str, Ints]
    training: bool = True

    def evaluate(self, ops: Any, data: Sequence[Any], parameters: Sequence[Any]) -> Any:
        """The loss of a network that is trained, the logits of one that infers."""
        return self._run(Net(self.training, ops, parameters), data)

    def split(self, operands: Sequence[Any]) -> tuple[Sequence[Any], ...]:
        """Data, the parameters that a step changes, and those that are frozen."""
        net, start = self._asked(), len(self.data)
        end = start + (net.trained or len(net.asked))
        return operands[:start], operands[start:end], operands[end:]

    def operands(self, batch: int | None = None, size: int | None = None) -> list[np.ndarray]:
        """Data and first parameters, channels last, in float32; inferences choose their images.

        Each image has a colour of its own, so that not all have the same logits.
        """
        rng, arrays = np.random.default_rng(7), []
        for kind, (many, *pixels, channels) in self.data.items():
            shape = (batch or many, *(size or n for n in pixels), channels)
            x = rng.standard_normal(shape, np.float32)
            if kind == "labels":
                x = x == x.max(axis=-1, keepdims=True)
            if kind == "images":
                x += rng.standard_normal((shape[0], *[1] * len(pixels), channels), np.float32)
            arrays.append(x.astype(np.float32))
        for shape, std, mean in self._asked().asked:
            drawn = rng.standard_normal(shape, np.float32)
            arrays.append(np.float32(mean) + np.float32(std) * drawn)
        return arrays

    def _asked(self) -> Net:
        net = Net(self.training)
        self._run(net, [net.ops] * len(self.data))
        return net

    def _run(self, net: Net, data: Sequence[Any]) -> Any:
        if "labels" not in self.data:
            return self.function(net, *data)
        images, labels = data
        return net.ops.cross_entropy(self.function(net, images), labels)


IMAGE = {"images": (1, 224, 224, 3)}
NETWORKS = {
    "dense-cnn": Network(partial(cnn, 1), {"images": (8, 32, 32, 3), "labels": (8, 10)}),
    "16-groups": Network(partial(cnn, 16), {"images": (8, 32, 32, 3), "labels": (8, 10)}),
    "mnist": Network(mnist, {"images": (128, 28, 28, 1), "labels": (128, 10)}),
    "vgg": Network(vgg, {"images": (8, 64, 64, 3), "labels": (8, 10)}),
    "unet": Network(partial(unet, False), {"images": (4, 64, 64, 3), "labels": (4, 64, 64, 4)}),
    "convnext": Network(convnext, {"images": (8, 64, 64, 3), "labels": (8, 10)}),
    "mobilenetv2-0.5": Network(
        partial(mobilenetv2, 0.5, TRAINED_CLASSES), {"images": (8, 96, 96, 3), "labels": (8, 10)}
    ),
    "resnext": Network(resnext, {"images": (8, 56, 56, 3), "labels": (8, 10)}),
    "dcgan-discriminator": Network(
        dcgan_discriminator, {"real": (16, 64, 64, 3), "fake": (16, 64, 64, 3)}
    ),
    "dcgan-generator": Network(dcgan_generator, {"noise": (16, 1, 1, 100)}),
    "unet3d": Network(unet3d, {"images": (1, 16, 32, 32, 1), "labels": (1, 16, 32, 32, 4)}),
    "ResNet-18": Network(resnet18, IMAGE, training=False),
    "MobileNetV2": Network(partial(mobilenetv2, 1.0, CLASSES), IMAGE, training=False),
    "EfficientNet-B0": Network(efficientnet_b0, IMAGE, training=False),
    "U-Net": Network(partial(unet, True), {"images": (1, 128, 128, 3)}, training=False),
}
