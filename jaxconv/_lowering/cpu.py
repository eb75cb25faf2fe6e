"""CPU: which form computes a contraction when.

The first line that holds, and whose form can compute the contraction, decides.

A contraction to the fine tensor becomes ones to the coarse tensor first. oneDNN then takes what it
is fast at, where jaxlib carries it; the lines below it are the portable forms, for all else.
"""

import os

from jaxconv._lowering import (
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
)
from jaxconv._lowering.plan import Regime, Table
from jaxconv._lowering.problem import Problem

#: Multiply-adds in one fused loop, before XLA's code for it becomes several times slower.
MOST_TERMS, MOST_TERMS_TO_KERNEL = 100, 64

#: Multiply-adds up to which they beat oneDNN where its data would have to be transposed.
FEW_TERMS = 49

#: Channels of a group that are summed, up to which multiply-adds beat XLA's grouped convolution.
FEW_CHANNELS = 8

#: Products of a group's channels, up to which multiply-adds beat dots for a weights gradient.
FEW_PRODUCTS = 32

#: Multiply-adds of a contraction that is over before oneDNN, which takes 8 microseconds, has begun.
LITTLE_WORK = 2e4

#: Multiply-adds of a group, from which one contraction for each is faster than one for all.
WORK_OF_A_GROUP = 4e6

#: Rows of an image, up to which XLA:CPU's convolution of many channels is slower than im2col.
SMALL_IMAGE, MANY_CHANNELS = 14, 64


def _few_terms(p: Problem) -> bool:
    """Grouped, and few products a result."""
    if p.dense or p.result == "fine" or p.summed > FEW_CHANNELS:
        return False
    if p.result == "kernel":
        return _few_products(p) and p.taps * p.fine <= MOST_TERMS_TO_KERNEL
    return p.taps * p.fine <= MOST_TERMS


def _few_products(p: Problem) -> bool:
    return not p.dense and p.fine * p.coarse <= FEW_PRODUCTS


def _few_products_of_much_data(p: Problem) -> bool:
    """A weights gradient that dots would not serve, of more than a cache holds."""
    return _few_products(p) and not p.partitioned


def _many_taps(p: Problem) -> bool:
    """Grouped, and too many taps for one program that has a piece for each."""
    most = MOST_TERMS if p.fine == p.coarse == 1 else split.MOST_TAPS
    return not p.dense and p.taps > (MOST_TERMS_TO_KERNEL if p.result == "kernel" else most)


def _dots_only(p: Problem) -> bool:
    """Multiply-adds would gather rows that are split over devices, or are not to be had."""
    halos = p.result == "coarse" and not p.strided
    return p.taps <= split.MOST_TAPS and (halos or not _few_terms(p))


def _few_terms_beat_onednn(p: Problem) -> bool:
    """It has no vector code for one channel to or from a few; and phases need not be written."""
    few, more = sorted((p.fine, p.coarse))
    multiplier = not p.dense and few == 1 < more <= FEW_CHANNELS
    return p.result == "coarse" and (multiplier or (p.phase and p.depthwise)) and _few_terms(p)


def _one_dot(p: Problem) -> bool:
    """One tap, or windows that tile: every product is of two rows."""
    if p.result == "fine":
        return p.tiles or (p.pointwise and (p.dense or p.strided))
    reads_tiles = p.result == "coarse" and not p.pointwise and onednn.FORM.fills(p)
    return p.dense and (p.pointwise or p.tiles) and not reads_tiles


def _image_by_image(p: Problem) -> bool:
    """One tap, channels first, where the dots of an image are long."""
    rows = p.channels_first and max(p.fine, p.coarse) <= p.positions
    return rows and not p.partitioned and not (p.bits == 16 and p.result == "kernel")


def _few_terms_channels_first(p: Problem) -> bool:
    """Grouped, and little to sum, beside the cost of two transpositions."""
    few = p.fine <= (1 if p.strided else 4) and p.taps * p.fine <= FEW_TERMS
    return p.channels_first and p.result == "coarse" and few and not (p.partitioned or p.dense)


def _narrow_coarse(p: Problem) -> bool:
    """A weights gradient whose coarse tensor has fewer channels to be copied for each tap."""
    return p.coarse < p.fine and not p.partitioned


def _wide_groups(p: Problem) -> bool:
    """A contraction of one group is worth its own."""
    enough = p.counted and p.work >= WORK_OF_A_GROUP * p.geometry.groups
    return not p.dense and p.bits > 16 and enough


def _dots_of_windows(p: Problem) -> bool:
    """Grouped; weights gradients, but of signals; and what XLA's convolution is slow at."""
    if p.result == "kernel" and p.dense:
        return p.rank > 1 or p.fine == 1 or p.bits == 64
    return not p.dense or p.bits == 16 or _small_image(p)


def _small_image(p: Problem) -> bool:
    small = any(a.coarse <= SMALL_IMAGE for a in p.geometry.axes if a.kernel > 1)
    return p.rank == 2 and p.fine >= MANY_CHANNELS and small


_LINES: Table = (
    Regime("empty", reference.ZEROS, lambda p: p.empty, "nothing is summed"),
    Regime(
        "far-taps",
        split.FAR_TAPS,
        lambda p: True,
        "windows reach over far more padding than data: tap by tap, without it",
    ),
    Regime(
        "one-tap-channels-first",
        dots.BY_IMAGE,
        _image_by_image,
        "one tap, channels first: a dot for each image, and no transposition",
    ),
    Regime(
        "few-terms-channels-first",
        multiply_adds.CHANNELS_FIRST,
        _few_terms_channels_first,
        "few channels a group: multiply-adds, and no transposition",
    ),
    Regime("one-dot", dot.FORM, _one_dot, "one tap, or windows that tile: one dot"),
    Regime(
        "stride-1",
        phases.FLIP,
        lambda p: True,
        "a convolution by the reversed kernel",
    ),
    Regime(
        "strided",
        phases.PHASES,
        lambda p: True,
        "stride-1 convolutions of the residues by the stride",
    ),
    Regime(
        "odd-strides",
        split.TAPS,
        lambda p: p.result == "fine",
        "too many phases: each tap puts the coarse pixels where it reads",
    ),
    Regime(
        "few-terms-beat-onednn",
        multiply_adds.FORM,
        _few_terms_beat_onednn,
        "oneDNN has no vector code for a few channels a group, nor for interleaved results",
    ),
    Regime(
        "narrow-coarse",
        swap.FORM,
        _narrow_coarse,
        "a weights gradient copies the data that the taps read: the narrower one",
    ),
    Regime(
        "onednn",
        onednn.FORM,
        lambda p: p.work >= LITTLE_WORK,
        "oneDNN, which jaxlib carries",
    ),
    # From here on: without oneDNN, or what it cannot do.
    Regime(
        "grouped-sharded",
        dots.BY_TAP,
        lambda p: p.partitioned and not p.dense and _dots_only(p),
        "a grouped convolution would gather the batch of all devices (openxla/xla#47945)",
    ),
    Regime(
        "few-products-of-much-data",
        split.BLOCKS,
        _few_products_of_much_data,
        "a weights gradient reads the data several times: as much as a cache holds",
    ),
    Regime(
        "few-terms",
        multiply_adds.FORM,
        _few_terms,
        "few channels a group: multiply-adds instead of XLA's scalar loops",
    ),
    Regime(
        "many-taps",
        split.TAPS,
        _many_taps,
        "grouped, and too many taps for one program: a loop over pieces of the kernel",
    ),
    Regime(
        "sharded",
        convolution.FORM,
        lambda p: p.partitioned,
        "other forms would loop over an axis that may be split",
    ),
    Regime(
        "wide-groups",
        split.GROUPS,
        _wide_groups,
        "one contraction for each group is twice as fast as one for all",
    ),
    Regime(
        "dots-of-windows",
        im2col.FORM,
        _dots_of_windows,
        "dots are several times faster than XLA's convolution here",
    ),
    Regime(
        "3-D",
        split.FIRST_AXIS,
        lambda p: p.result == "coarse" and p.rank > 2,
        "XLA's fast convolution has two spatial axes",
    ),
    Regime("all-others", convolution.FORM, lambda p: True, "one convolution"),
)

#: All lines, less one that JAXCONV_WITHOUT names: for `benchmarks.ablation`.
TABLE: Table = tuple(x for x in _LINES if x.name != os.environ.get("JAXCONV_WITHOUT"))
