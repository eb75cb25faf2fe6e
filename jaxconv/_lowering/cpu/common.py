"""What several tables have: lines, and questions about sizes."""

import math
from collections.abc import Sequence

import numpy as np

from jaxconv._base.geometry import Axis, DataLayout, Geometry, KernelLayout, Slot
from jaxconv._base.typing import DType
from jaxconv._lowering import onednn_here
from jaxconv._lowering.forms import convolution, dots, rewrite, taps
from jaxconv._lowering.problem import Line, Problem


def example(
    result: Slot,
    pixels: Sequence[int],
    channels: tuple[int, int],
    kernel: int = 3,
    *,
    groups: int = 1,
    batch: int = 8,
    stride: int = 1,
    dilation: int = 1,
    pad: int | None = None,
    dtype: str | DType = "float32",
    channels_first: bool = False,
    devices: int = 1,
    onednn: bool = True,
) -> Problem:
    """Describe a contraction by its fine pixels, and the fine and coarse channels of a group.

    Without `pad`, there is half of the kernel at each end. The witnesses of lines are written so.
    """
    extent = dilation * (kernel - 1) + 1
    pad = extent // 2 if pad is None else pad
    axes = tuple(
        Axis(fine, kernel, (fine + 2 * pad - extent) // stride + 1, stride, dilation, pad)
        for fine in pixels
    )
    geometry = Geometry(axes, groups, DataLayout(0, 1, ()), KernelLayout(0, 1, ()))
    geometry = geometry.canonical(channels_first)
    return Problem(result, geometry, batch, *channels, np.dtype(dtype), devices, onednn)


#: Multiply-adds of a group in float32 that are worth a contraction of its own.
MIN_GROUP_WORK = 4e6

#: Summed channels of a group for which multiply-adds beat other forms.
MAX_GROUP_CHANNELS = 8

#: Fine channels of a stem, or of a layer that makes many of few.
MAX_STEM_CHANNELS = 4

#: Channels that fill a vector of AVX2.
VECTOR_CHANNELS = 8

#: Summed channels for each result channel for which adding windows up is faster.
MIN_SUMMED_PER_RESULT = 8

#: Coarse channels for each fine channel of a layer that makes many of few.
MIN_COARSE_PER_FINE = 10

#: Taps for which multiply-adds read the data from memory as fast as from a cache.
MAX_TAPS_AT_ONCE = 9

#: Coarse channels that are not worth im2col's windows.
MAX_COARSE_CHANNELS = 16


def _image_by_image(p: Problem) -> bool:
    """Whether channels come first, and copies of the weights have at most half the data's elements.

    Each image has a copy. To coarse, the weights themselves are one of the copies.
    """
    i, o, images = p.fine_channels, p.coarse_channels, p.batch or math.inf
    copies = 1 - 1 / images if p.result == "coarse" else 1
    return p.channels_first and 2 * copies * i * o <= p.positions * (i + o)


def wide_groups(p: Problem) -> bool:
    """Whether each of several groups is much work, in a type that is multiplied as it is."""
    return p.counted and p.bits > 16 and p.work >= MIN_GROUP_WORK * p.geometry.groups


#: Channels of a 16-bit type that are worth copies in float32; and bytes of these copies, since the
#: pages of more are mapped anew at each call.
MIN_WIDENED_CHANNELS, MAX_WIDENED_BYTES = 32, 32 << 20


def is_widened(p: Problem) -> bool:
    """Whether the processor multiplies the operands in float32, not in 16 bits."""
    return p.bits == 16 and not onednn_here.multiplies(p.dtype)


def _is_slow_as_it_is(p: Problem) -> bool:
    """Whether XLA would multiply integers one by one, or widen windows of 16 bits at each dot."""
    fewest = min(p.fine_channels, p.coarse_channels)
    if p.bits == 8:
        return not p.dense or fewest <= MAX_STEM_CHANNELS
    many = p.dense and fewest >= MIN_WIDENED_CHANNELS
    return is_widened(p) and many and p.counted and p.bytes_of_data <= MAX_WIDENED_BYTES


IN_FLOAT32 = Line(
    "in-float32",
    rewrite.WIDEN,
    _is_slow_as_it_is,
    "a narrow type that would be multiplied slowly as it is",
    example("coarse", (28, 28), (32, 64), dtype="float16"),
)

ONE_TAP_CHANNELS_FIRST = Line(
    "one-tap-channels-first",
    dots.BY_IMAGE,
    _image_by_image,
    "one tap, channels first: a dot for each image, and no transposition",
    example("coarse", (28, 28), (64, 64), 1, channels_first=True),
)

FAR = Line(
    "tap-by-tap",
    taps.TAPS,
    taps.reaches_far,
    "windows that reach over far more padding than data",
    example("coarse", (2, 2, 2), (4, 4), 2, stride=50, dilation=50, pad=50),
)

ALL_OTHERS = Line("all-others", convolution.FORM, lambda p: True, "one convolution")
