"""CPU: which form computes a contraction when. The first line that holds decides.

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
    planes,
    split,
    zeros,
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

#: Groups of an image, from which a few at a time are still whole vectors.
MANY_GROUPS = 64

#: Multiply-adds of a contraction that is over before several dots or convolutions have started.
LITTLE_WORK = 24e6

#: Rows of an image, up to which XLA:CPU's convolution of many channels is slower than im2col.
SMALL_IMAGE, MANY_CHANNELS = 14, 64


def _few_terms(p: Problem) -> bool:
    """Grouped, and few products a result."""
    if p.dense or p.result == "fine" or p.summed > FEW_CHANNELS:
        return False
    if p.result == "kernel":
        return p.fine * p.coarse <= FEW_PRODUCTS and p.taps * p.fine <= MOST_TERMS_TO_KERNEL
    return p.taps * p.fine <= MOST_TERMS


def _many_taps(p: Problem) -> bool:
    """Grouped, and too many taps for one program that has a piece for each."""
    most = MOST_TERMS if p.fine == p.coarse == 1 else split.MOST_TAPS
    return not p.dense and p.taps > (MOST_TERMS_TO_KERNEL if p.result == "kernel" else most)


def _dots_only(p: Problem) -> bool:
    """Multiply-adds would gather rows that are split over devices, or are not to be had."""
    halos = p.result == "coarse" and not p.strided
    return p.taps <= split.MOST_TAPS and (halos or not _few_terms(p))


def _small_image(p: Problem) -> bool:
    axes = [a for a in p.geometry.axes if a.kernel > 1]
    small = any(a.coarse <= SMALL_IMAGE for a in axes)
    return p.rank > 1 and p.fine >= MANY_CHANNELS and small


def _multiplier(p: Problem) -> bool:
    """One channel of a group to or from a few others: oneDNN has no vector code for it."""
    few, more = sorted((p.fine, p.coarse))
    return not p.dense and few == 1 < more <= FEW_CHANNELS


def _faster_tiles(p: Problem) -> bool:
    """Tiles that oneDNN reads where they are, and a dot rearranged."""
    return p.result == "coarse" and not p.pointwise and onednn.FORM.fills(p)


_LINES: Table = (
    Regime("empty", zeros.FORM, lambda p: p.empty, "nothing is summed"),
    Regime(
        "one-tap-channels-first",
        planes.FORM,
        lambda p: (
            p.pointwise
            and p.channels_first
            and max(p.fine, p.coarse) <= p.positions
            and not (p.partitioned or (p.bits == 16 and p.result == "kernel"))
        ),
        "one tap, channels first: a dot for each image, and no transposition",
    ),
    Regime(
        "few-terms-channels-first",
        multiply_adds.CHANNELS_FIRST,
        lambda p: (
            p.channels_first
            and p.result == "coarse"
            and p.fine <= (1 if p.strided else 4)
            and not p.partitioned
            and not p.dense
            and p.taps * p.fine <= FEW_TERMS
        ),
        "few channels a group: multiply-adds, and no transposition",
    ),
    Regime(
        "tiles-to-fine",
        dot.FORM,
        lambda p: p.result == "fine" and (p.tiles or (p.pointwise and (p.dense or p.strided))),
        "each coarse pixel makes a window of its own: one dot",
    ),
    Regime(
        "stride-1",
        phases.FLIP,
        lambda p: p.result == "fine" and not p.strided,
        "a convolution by the reversed kernel",
    ),
    Regime(
        "strided",
        phases.PHASES,
        lambda p: p.result == "fine" and phases.PHASES.fills(p),
        "stride-1 convolutions of the residues by the stride",
    ),
    Regime(
        "odd-strides",
        split.TAPS,
        lambda p: p.result == "fine" and split.TAPS.fills(p),
        "too many phases: each tap puts the coarse pixels where it reads",
    ),
    Regime(
        "odd-strides-many-taps",
        convolution.FORM,
        lambda p: p.result == "fine",
        "too many phases and taps: one slow convolution",
    ),
    Regime(
        "channel-multiplier",
        multiply_adds.FORM,
        lambda p: p.result == "coarse" and _multiplier(p) and _few_terms(p),
        "oneDNN has no vector code for one channel to or from a few",
    ),
    Regime(
        "depthwise-phases",
        multiply_adds.FORM,
        lambda p: p.phase and p.depthwise and _few_terms(p),
        "the loop that interleaves phases computes them, and none is written before",
    ),
    Regime(
        "dot",
        dot.FORM,
        lambda p: p.dense and (p.pointwise or p.tiles) and not _faster_tiles(p),
        "one tap, or windows that tile: one dot",
    ),
    Regime("onednn", onednn.FORM, onednn.FORM.fills, "oneDNN, which jaxlib carries"),
    # From here on: without oneDNN, or what it cannot do.
    Regime(
        "grouped-sharded",
        dots.FORM,
        lambda p: p.partitioned and not p.dense and _dots_only(p),
        "a grouped convolution would gather the batch of all devices (openxla/xla#47945)",
    ),
    Regime(
        "few-terms-of-much-data",
        split.IMAGES,
        lambda p: _few_terms(p) and not p.partitioned and split.IMAGES.fills(p),
        "a weights gradient reads the data several times: images that a cache holds",
    ),
    Regime(
        "few-terms-of-a-large-image",
        split.SOME_GROUPS,
        lambda p: (
            _few_terms(p)
            and not p.partitioned
            and split.SOME_GROUPS.fills(p)
            and p.geometry.groups >= MANY_GROUPS
        ),
        "one image reads more than a cache holds: some of its groups at a time",
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
        lambda p: not p.dense and p.bits > 16 and p.work >= LITTLE_WORK and p.counted,
        "one contraction for each group is twice as fast as one for all",
    ),
    Regime("grouped", im2col.FORM, lambda p: not p.dense, "dots with groups as their batch"),
    Regime(
        "3-D",
        split.FIRST_AXIS,
        lambda p: p.result == "coarse" and p.rank > 2 and p.bits > 16,
        "XLA's fast convolution has two spatial axes",
    ),
    Regime(
        "weights-gradient",
        im2col.FORM,
        lambda p: p.result == "kernel" and (p.rank > 1 or p.fine == 1 or p.bits == 64),
        "a dot has one sum over all windows",
    ),
    Regime(
        "16-bits-or-small",
        im2col.FORM,
        lambda p: p.result == "coarse" and (p.bits == 16 or _small_image(p)),
        "dots are several times faster than XLA's convolution here",
    ),
    Regime("all-others", convolution.FORM, lambda p: True, "one convolution"),
)

#: All lines, less one that JAXCONV_WITHOUT names: for `benchmarks.ablation`.
TABLE: Table = tuple(x for x in _LINES if x.name != os.environ.get("JAXCONV_WITHOUT"))
