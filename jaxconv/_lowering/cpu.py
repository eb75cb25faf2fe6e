"""CPU: which form computes which contraction.

The first line that holds, and whose form can compute the contraction, decides. Contractions
to the fine tensor are first rewritten as contractions to the coarse tensor. oneDNN, where jaxlib
carries it, then computes what it is fast at. Below it are the portable forms.
"""

import math

from jaxconv._lowering.form import Line, Table
from jaxconv._lowering.forms import (
    col2im,
    convolution,
    dot,
    dots,
    im2col,
    multiply_adds,
    onednn,
    phases,
    reference,
    split,
    swap,
    taps,
)
from jaxconv._lowering.problem import Problem

#: Most multiply-adds in one fused loop: beyond, XLA's code for it is several times slower.
MOST_TERMS, MOST_TERMS_TO_KERNEL = 100, 64

#: Most multiply-adds a result with which they beat two transpositions and oneDNN.
FEW_TERMS = 49

#: Most summed channels of a group with which multiply-adds beat XLA's grouped convolution.
FEW_CHANNELS = 8

#: Most result channels, and fewest summed ones for each of them, with which adding windows up beats
#: oneDNN.
FEW_RESULTS, MANY_SUMMED = 8, 8

#: Most summed channels that XLA:CPU's fast dense convolution leaves to slower code, and elements of
#: all windows, in multiples of the data's, beyond which that convolution beats adding windows up.
NARROW, MANY_WINDOWS = 16, 2

#: Most fine channels of a stem whose gradients XLA:CPU has fast code for.
FEW_FINE = 4

#: Most fine channels of a stem, and fewest coarse ones for each of them, with which im2col beats
#: XLA:CPU's convolution.
FEW_WIDENED, MANY_COARSE = 8, 10

#: Most pairs of channels in a group with which multiply-adds beat dots for a weights gradient.
FEW_PRODUCTS = 32

#: Most sums that XLA:CPU computes in one dot on one core.
FEW_SUMS = 96 * 96

#: Fewest multiply-adds of a contraction for oneDNN, which takes 8 microseconds to start.
LITTLE_WORK = 2e4

#: Fewest multiply-adds of a group with which one contraction for each beats one for all.
WORK_OF_A_GROUP = 4e6

#: Most pixels along an axis, and fewest channels, with which im2col beats XLA:CPU's convolution.
SMALL_IMAGE, MANY_CHANNELS = 14, 64

#: Most coarse channels that are not worth im2col's windows.
FEW_COARSE = 16

#: Fewest images, which XLA:CPU takes as channels, with which its weights gradient beats im2col, of
#: very few channels and of more.
FEW_IMAGES, MANY_IMAGES = 8, 32

#: Most bytes of data that its weights gradients may transpose to take images as channels.
MUCH_COPIED = 16 << 20

#: Most pixels with which copying the kernel into an order of oneDNN's costs more than their sums.
FEW_PIXELS = 49

#: Copies of the result that reading the narrower tensor by taps must save.
COPIES = 2


def _few_terms(p: Problem) -> bool:
    """Grouped, and few enough multiply-adds a result for one fused loop."""
    if p.dense or p.result == "fine" or p.summed > FEW_CHANNELS:
        return False
    if p.result == "kernel":
        return _few_products(p) and p.taps * p.fine_channels <= MOST_TERMS_TO_KERNEL
    return p.taps * p.fine_channels <= MOST_TERMS


def _few_products(p: Problem) -> bool:
    return not p.dense and p.fine_channels * p.coarse_channels <= FEW_PRODUCTS


def _much_data(p: Problem) -> bool:
    """Data that is copied, or read by multiply-adds; `split.BLOCKS` checks how much it is."""
    if p.result == "kernel":
        transposed = not p.channels_last and p.rank > 1 and not p.tiles
        return _few_products(p) or transposed
    if p.result == "fine":
        return (p.strided or p.depthwise) and not p.channels_last
    multiplied = p.depthwise and p.rank > 1 and not onednn.FORM.fills(p)
    return multiplied and p.channels_last and not p.phase


def _many_taps(p: Problem) -> bool:
    """Grouped, and too many taps for a program to write out one by one."""
    most = MOST_TERMS if p.fine_channels == p.coarse_channels == 1 else taps.MOST_TAPS
    return not p.dense and p.taps > (MOST_TERMS_TO_KERNEL if p.result == "kernel" else most)


def _dots_only(p: Problem) -> bool:
    """Stride 1, or too much for multiply-adds.

    At stride 1, dots exchange halos; multiply-adds would gather rows that are split over devices.
    """
    halos = p.result == "coarse" and not p.strided
    return p.taps <= taps.MOST_TAPS and (halos or not _few_terms(p))


def _few_terms_beat_onednn(p: Problem) -> bool:
    """One channel to or from a few; or phases, whose results fuse with the interleaving."""
    few, more = sorted((p.fine_channels, p.coarse_channels))
    multiplier = not p.dense and few == 1 < more <= FEW_CHANNELS
    return p.result == "coarse" and (multiplier or (p.phase and p.depthwise)) and _few_terms(p)


def _one_dot(p: Problem) -> bool:
    """One tap, or windows that tile: each pixel is in one window at most."""
    if p.result == "fine":  # oneDNN is faster with groups, after a flip or by phases
        return (p.tiles or p.pointwise) and (p.dense or not onednn.reaches(p))
    reads_tiles = p.result == "coarse" and not p.pointwise and onednn.FORM.fills(p)
    return p.dense and (p.pointwise or p.tiles) and not reads_tiles


def _few_sums(p: Problem) -> bool:
    """A weights gradient of one tap, in 32 bits, of many rows and few sums."""
    if p.result != "kernel" or p.bits != 32 or not p.dense or not p.counted:
        return False
    sums = p.fine_channels * p.coarse_channels
    return p.pointwise and sums <= FEW_SUMS and p.work >= dot.ROWS * sums


def _few_results(p: Problem) -> bool:
    """So few result channels that adding windows up costs less than reading a pixel for each."""
    if not p.counted:
        return False
    if p.result == "coarse":
        most = FEW_RESULTS if p.onednn else FEW_COARSE
        return p.coarse_channels <= most and p.summed >= MANY_SUMMED * p.coarse_channels
    few, many = p.fine_channels <= FEW_FINE, p.summed >= MANY_SUMMED * p.fine_channels
    if p.onednn:  # phases read few coarse channels faster
        return p.bits == 32 and few and many and p.coarse_channels > MANY_CHANNELS
    return p.bits < 64 and (few or many)


def _image_by_image(p: Problem) -> bool:
    """One tap, channels first, and twice the weights, which each image copies, at most its data."""
    few = 2 * p.fine_channels * p.coarse_channels <= p.positions * (
        p.fine_channels + p.coarse_channels
    )
    return p.channels_first and few and (p.bits > 16 or p.result != "kernel")


def _few_terms_channels_first(p: Problem) -> bool:
    """Grouped, channels first, and sums that cost less than two transpositions."""
    few = p.fine_channels <= (1 if p.strided else 4) and p.taps * p.fine_channels <= FEW_TERMS
    return p.channels_first and p.result == "coarse" and few and not p.dense


def _narrow_coarse(p: Problem) -> bool:
    """A weights gradient for whose taps the coarse tensor, of fewer channels, is copied instead.

    The result is copied as well, to reverse it.
    """
    saved = p.pixels * (p.fine_channels - p.coarse_channels)
    return saved >= COPIES * p.fine_channels * p.coarse_channels


def _pays_onednn(p: Problem) -> bool:
    """Enough work to start oneDNN, and enough pixels for the copy that it makes of the kernel."""
    few = p.dense and p.result == "coarse" and p.pixels <= FEW_PIXELS and p.bits == 32
    as_it_is = p.geometry.kernel == p.geometry.canonical().kernel
    copied = few and as_it_is and p.rank == 2 and _small_image(p)
    return p.work >= LITTLE_WORK and not copied


def _fast_dense(p: Problem) -> bool:
    """Few results of large windows, or a weights gradient of several images."""
    if not (p.fast_dense and p.dense and p.counted) or p.rank != 2 or p.bits != 32 or p.pointwise:
        return False
    if p.result == "coarse":
        many = (
            p.fine_channels > NARROW and p.taps * p.coarse_channels > MANY_WINDOWS * p.fine_channels
        )
        return many and _few_results(p)
    several = (p.batch or 0) >= (FEW_IMAGES if p.strided else MANY_IMAGES)
    even = p.coarse_channels < MANY_COARSE * p.fine_channels and (
        p.strided or not _narrow_coarse(p)
    )
    copied = 4 * sum(math.prod(p.shape(slot)) for slot in ("fine", "coarse"))
    return p.result == "kernel" and several and even and copied <= MUCH_COPIED


def _wide_groups(p: Problem) -> bool:
    """Grouped, and each group is enough work for a contraction of its own."""
    enough = p.counted and p.work >= WORK_OF_A_GROUP * p.geometry.groups
    return not p.dense and p.bits > 16 and enough


def _dots_of_windows(p: Problem) -> bool:
    """Grouped; a weights gradient, except most 1-D ones; 16 bits; or a small image or stem."""
    if p.result == "kernel" and p.dense:
        return not _stem(p) and (p.rank > 1 or p.fine_channels == 1 or p.bits == 64)
    return not p.dense or p.bits == 16 or (p.rank == 2 and (_small_image(p) or _widening(p)))


def _stem(p: Problem) -> bool:
    """A weights gradient of few channels and several images, which XLA takes as channels."""
    few = p.fine_channels <= FEW_WIDENED and p.coarse_channels <= FEW_COARSE
    several = (p.batch or 0) >= (FEW_IMAGES if p.fine_channels <= FEW_FINE else MANY_IMAGES)
    return few and several and p.bits == 32


def _small_image(p: Problem) -> bool:
    """Few pixels along an axis, and enough results to be worth their windows."""
    small = any(a.coarse <= SMALL_IMAGE for a in p.geometry.axes if a.kernel > 1)
    return small and p.fine_channels >= MANY_CHANNELS and p.coarse_channels > FEW_COARSE


def _widening(p: Problem) -> bool:
    """A stem: many results from few channels, for which XLA:CPU's convolution is erratic."""
    return 1 < p.fine_channels <= FEW_WIDENED and p.coarse_channels >= MANY_COARSE * p.fine_channels


TABLE: Table = (
    Line("empty", reference.ZEROS, lambda p: p.empty, "nothing is summed"),
    Line(
        "one-tap-channels-first",
        dots.BY_IMAGE,
        _image_by_image,
        "one tap, channels first: a dot for each image, and no transposition",
    ),
    Line(
        "much-data",
        split.BLOCKS,
        _much_data,
        "much data is copied, or read again: in blocks that a cache holds",
    ),
    Line(
        "few-sums",
        dot.IN_PARTS,
        _few_sums,
        "one dot of few sums keeps one core busy: several dots side by side, then their sum",
    ),
    Line("one-dot", dot.FORM, _one_dot, "one tap, or windows that tile: one dot"),
    Line(
        "stride-1",
        phases.FLIP,
        lambda p: True,
        "a convolution by the reversed kernel",
    ),
    Line(
        "fast-dense",
        convolution.FORM,
        _fast_dense,
        "from JAX 0.12 on, XLA's dense convolution uses all cores",
    ),
    Line(
        "few-results",
        col2im.FORM,
        _few_results,
        "few result channels: one dot, whose windows are added up",
    ),
    Line(
        "strided",
        phases.PHASES,
        lambda p: True,
        "stride-1 convolutions, by the residues of pixels modulo the stride",
    ),
    Line(
        "tap-by-tap",
        taps.TAPS,
        lambda p: p.result == "fine" or taps.far(p),
        "too many phases, or windows that reach over far more padding than data",
    ),
    Line(
        "few-terms-channels-first",
        multiply_adds.CHANNELS_FIRST,
        _few_terms_channels_first,
        "few channels a group: multiply-adds, and no transposition",
    ),
    Line(
        "few-terms-beat-onednn",
        multiply_adds.FORM,
        _few_terms_beat_onednn,
        "oneDNN has no vector code for a few channels a group, nor for interleaved results",
    ),
    Line(
        "narrow-coarse",
        swap.FORM,
        _narrow_coarse,
        "a weights gradient copies one tensor for each tap: here, the one of fewer channels",
    ),
    Line(
        "onednn",
        onednn.FORM,
        _pays_onednn,
        "oneDNN, which jaxlib carries",
    ),
    # The portable forms: without oneDNN, or for what it cannot compute.
    Line(
        "grouped-sharded",
        dots.BY_TAP,
        lambda p: p.partitioned and not p.dense and _dots_only(p),
        "a grouped convolution would gather the batch of all devices (openxla/xla#47945)",
    ),
    Line(
        "few-terms",
        multiply_adds.FORM,
        _few_terms,
        "few channels a group: multiply-adds instead of XLA's scalar loops",
    ),
    Line(
        "many-taps",
        split.PIECES,
        _many_taps,
        "grouped, and too many taps for one program: a loop over pieces of the kernel",
    ),
    Line(
        "wide-groups",
        split.GROUPS,
        _wide_groups,
        "one contraction for each group is twice as fast as one for all",
    ),
    Line(
        "dots-of-windows",
        im2col.FORM,
        _dots_of_windows,
        "dots are several times faster than XLA's convolution here",
    ),
    Line(
        "3-D",
        taps.FIRST_AXIS,
        lambda p: p.result == "coarse" and p.rank > 2 and not p.partitioned,
        "XLA's fast convolution has two spatial axes",
    ),
    Line("all-others", convolution.FORM, lambda p: True, "one convolution"),
)
