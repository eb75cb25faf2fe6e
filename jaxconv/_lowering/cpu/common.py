"""CPU: limits, questions about sizes, and lines that several tables read."""

import math

from jaxconv._lowering import onednn_here
from jaxconv._lowering.forms import convolution, dots, onednn, reference, rewrite, split
from jaxconv._lowering.problem import Line, Problem, wherever_it_can

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


#: Channels of a 16-bit type that are worth copies in float32.
MIN_WIDENED_CHANNELS = 32

#: Bytes of such copies: the pages of more are mapped anew at each call.
MAX_WIDENED_BYTES = 32 << 20


def is_native(p: Problem) -> bool:
    """Whether the processor multiplies the operands in 16 bits."""
    return p.bits == 16 and onednn_here.multiplies(p.dtype)


def is_widened(p: Problem) -> bool:
    """Whether the processor multiplies operands of 16 bits in float32."""
    return p.bits == 16 and not is_native(p)


def _is_slow_as_it_is(p: Problem) -> bool:
    """Whether XLA would multiply integers one by one, or widen windows of 16 bits at each dot."""
    fewest = min(p.fine_channels, p.coarse_channels)
    if p.bits == 8:
        return not p.dense or fewest <= MAX_STEM_CHANNELS
    many = p.dense and fewest >= MIN_WIDENED_CHANNELS
    return is_widened(p) and many and p.counted and p.bytes_of_data <= MAX_WIDENED_BYTES


#: Multiply-adds in one fused loop: XLA's code for a longer loop is several times slower.
MAX_TERMS = 100

#: Multiply-adds that cost less than to transpose planes for oneDNN.
MAX_PLANE_TERMS = 48


def few_terms_channels_first(p: Problem) -> bool:
    """Whether few sums, or those of few channels, cost less than two transpositions."""
    called = onednn.may_call(p)
    most = 1 if p.strided else MAX_STEM_CHANNELS
    few = (not p.dense or (called and not is_native(p))) and p.fine_channels <= most
    terms = p.taps * p.fine_channels
    return p.channels_first and few and terms <= (MAX_PLANE_TERMS if called else MAX_TERMS)


IN_FLOAT32 = Line(
    "in-float32",
    rewrite.WIDEN,
    _is_slow_as_it_is,
    "a narrow type that would be multiplied slowly as it is",
)

ONE_TAP_CHANNELS_FIRST = Line(
    "one-tap-channels-first",
    dots.BY_IMAGE,
    _image_by_image,
    "one tap, channels first: a dot for each image, and no transposition",
)

FAR = Line(
    "tap-by-tap",
    split.TAPS,
    lambda p: p.reaches_far,
    "windows that reach over far more padding than data",
)

SHARDED = Line(
    "sharded",
    reference.FORM,
    lambda p: p.partitioned,
    "split over devices: as lax lowers it, since XLA splits some other convolutions wrongly",
)

ALL_OTHERS = Line("all-others", convolution.FORM, wherever_it_can, "one convolution")


#: Why lines decide that stand in two tables, each with a condition of its own.
FEW_TERMS = "few channels: multiply-adds in one fused loop"
MANY_TAPS = "grouped, and too many taps for one program: a loop over pieces of the kernel"
ALONE = "one contraction for each group is twice as fast as one for all"
DOTS_WIN = "dots are several times faster than XLA's convolution here"


def over_devices(p: Problem) -> bool:
    """Whether XLA splits a contraction over devices, and dots of each tap may take it."""
    return p.partitioned and p.taps <= split.MAX_PARTS
