"""The networks of `benchmarks.inference`: batch norm is folded, so each convolution has a bias.

Written once for every engine, as `networks.py` writes those of training steps: a network is a
function of `ops`, `p` and images, and returns logits. One call of `ops.layer` is a convolution
with all that follows: its bias, a residual and an activation.
"""

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from benchmarks.networks import NoOps, Parameters, inverted, mobilenetv2_blocks

CLASSES = 1000
MASKS = 4  # classes of a pixel
#: How much larger weights are drawn before an activation, which makes the second moment smaller.
GAINS = {None: 1.0, "relu": 2.0, "relu6": 2.0, "silu": 2.0, "sigmoid": 0.1}
GATE_GAIN = 3.0  # after a gate, of about a half
BIAS = 0.5  # so large that, in float32, no engine can leave one out within the tolerance


def conv(ops, p, x, cin, cout, k, s=1, g=1, activation=None, residual=None, gain=1.0):
    """A convolution padded by half its kernel."""
    w = p(k, k, cin // g, cout, std=math.sqrt(gain * GAINS[activation] * g / (k * k * cin)))
    b = p(cout, std=BIAS)
    return ops.layer(x, w, b, "conv", s, (k - 1) // 2, g, activation, residual)


def up(ops, p, x, cin, cout):
    """A transposed convolution that doubles both sides, of 2x2 without overlap."""
    w, b = p(2, 2, cout, cin, std=math.sqrt(1 / cin)), p(cout, std=BIAS)
    return ops.layer(x, w, b, "deconv", 2, 0, 1, None, None)


def head(ops, p, x, cin):
    """Global mean and linear."""
    w = p(cin, CLASSES, std=cin**-0.5)
    return ops.linear(ops.mean(x), w, p(CLASSES, std=0.1))


def resnet18(ops, p, x):
    """Residuals are added before the last ReLU of a block."""
    x = ops.max_pool(conv(ops, p, x, 3, 64, 7, 2, activation="relu"), 3, 2, 1)
    cin = 64
    for cout, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        for s in (stride, 1):
            y = conv(ops, p, x, cin, cout, 3, s, activation="relu")
            kept = x if (s, cin) == (1, cout) else conv(ops, p, x, cin, cout, 1, s)
            x, cin = conv(ops, p, y, cout, cout, 3, activation="relu", residual=kept), cout
    return head(ops, p, x, cin)


def mobilenetv2(ops, p, x):
    """Width 1."""
    blocks = mobilenetv2_blocks(16, 24, 32, 64, 96, 160, 320)
    return head(ops, p, inverted(partial(conv, ops, p), x, 32, blocks, "relu6"), 1280)


def efficientnet_b0(ops, p, x):
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
        z = conv(ops, p, ops.mean_pixel(y), wide, cin // 4, 1, activation="silu")
        z = conv(ops, p, z, cin // 4, wide, 1, activation="sigmoid")
        return ops.multiply(y, z), {"gain": GATE_GAIN}

    x = inverted(partial(conv, ops, p), x, 32, blocks, "silu", gate)
    return head(ops, p, x, 1280)


def unet(ops, p, x):
    """Four levels, two 3x3 on each way, a class for each pixel."""

    def double(x, cin, cout):
        x = conv(ops, p, x, cin, cout, 3, activation="relu")
        return conv(ops, p, x, cout, cout, 3, activation="relu")

    skips, cin = [], 3
    for width in (32, 64, 128):
        skips.append((double(x, cin, width), width))
        x, cin = ops.max_pool(skips[-1][0]), width
    x, cin = double(x, cin, 256), 256
    for skip, width in reversed(skips):
        x = ops.concat(up(ops, p, x, cin, width), skip)
        x, cin = double(x, 2 * width, width), width
    return conv(ops, p, x, cin, MASKS, 1)


#: Each network with the pixels along an axis of its images.
NETWORKS: dict[str, tuple[Callable, int]] = {
    "ResNet-18": (resnet18, 224),
    "MobileNetV2": (mobilenetv2, 224),
    "EfficientNet-B0": (efficientnet_b0, 224),
    "U-Net": (unet, 128),
}


def operands(name: str, batch: int, size: int) -> list[np.ndarray]:
    """Images, each of a colour of its own, and parameters; channels last, in float32."""
    p = Parameters()
    NETWORKS[name][0](NoOps(), p, None)
    rng = np.random.default_rng(11)
    arrays = [std * rng.standard_normal(shape, np.float32) for shape, std, *_ in p.asked]
    colours, noise = (rng.standard_normal((batch, n, n, 3), np.float32) for n in (1, size))
    return [colours + noise, *arrays]


def logits(name: str, ops: Any, operands: Sequence[Any]) -> Any:
    """What a network says of images; the operands are the images and the parameters."""
    images, *parameters = operands
    return NETWORKS[name][0](ops, Parameters(parameters), images)
