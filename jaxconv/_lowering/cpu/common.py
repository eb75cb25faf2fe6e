"""What several tables have: lines, and questions about sizes."""

from jaxconv._lowering.example import example
from jaxconv._lowering.form import Line
from jaxconv._lowering.forms import convolution, dots, taps
from jaxconv._lowering.problem import Problem

#: Multiply-adds of a group in float32 that are worth a contraction of its own.
MIN_GROUP_WORK = 4e6

#: Fine channels of a stem.
MAX_STEM_CHANNELS = 4

#: Coarse channels for each fine channel of a layer that makes many of few.
MIN_COARSE_PER_FINE = 10

#: Fine channels of a layer that makes many of few.
MAX_WIDENED_CHANNELS = 8

#: Coarse channels that are not worth im2col's windows.
MAX_COARSE_CHANNELS = 16


def image_by_image(p: Problem) -> bool:
    """Whether twice the weights, which each image copies, are at most the image, channels first."""
    i, o = p.fine_channels, p.coarse_channels
    return p.channels_first and 2 * i * o <= p.positions * (i + o)


def wide_groups(p: Problem) -> bool:
    """Whether each of several groups is much work, in a type that is multiplied as it is."""
    return p.counted and p.bits > 16 and p.work >= MIN_GROUP_WORK * p.geometry.groups


ONE_TAP_CHANNELS_FIRST = Line(
    "one-tap-channels-first",
    dots.BY_IMAGE,
    image_by_image,
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
