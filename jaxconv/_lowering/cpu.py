"""CPU: which form computes which contraction.

The first line that holds, and whose form can compute the contraction, decides. Contractions
to the fine tensor are first rewritten as contractions to the coarse tensor. oneDNN, where jaxlib
carries oneDNN, then computes what oneDNN is fast at. The last lines are the portable forms. A line
does not ask again what its form cannot compute.
"""

import math
from dataclasses import replace

import jax.numpy as jnp

from jaxconv._lowering.form import Line, Table
from jaxconv._lowering.forms import (
    col2im,
    convolution,
    dot,
    dots,
    im2col,
    multiply_adds,
    onednn,
    onednn_weights,
    phases,
    reference,
    repeat,
    slide,
    split,
    swap,
    taps,
)
from jaxconv._lowering.problem import Problem

#: Multiply-adds in one fused loop: XLA's code for a longer loop is several times slower.
MAX_TERMS, MAX_TERMS_TO_KERNEL = 100, 64

#: Summed channels of a group for which multiply-adds beat XLA's grouped convolution.
MAX_GROUP_CHANNELS = 8

#: Result channels, and summed channels for each, for which adding windows up beats oneDNN.
MAX_RESULT_CHANNELS, MIN_SUMMED_PER_RESULT = 8, 8

#: Summed channels that XLA:CPU's fast dense convolution leaves to slower code. And elements of all
#: windows over elements of the data, above which that convolution beats adding windows up.
MAX_SLOW_CHANNELS, MAX_WINDOWS_RATIO = 16, 2

#: Fine channels of a stem whose gradients XLA:CPU has fast code for; and, with so many coarse
#: channels for each, fine channels for which im2col beats XLA's convolution.
MAX_STEM_CHANNELS, MIN_COARSE_PER_FINE, MAX_WIDENED_CHANNELS = 4, 10, 8

#: Pairs of channels in a group for which multiply-adds beat dots in a weights gradient.
MAX_CHANNEL_PAIRS = 32

#: Sums that XLA:CPU computes in one dot on one core. And multiply-adds that are worth a call of
#: oneDNN, which takes 8 microseconds to start.
MAX_ONE_CORE_SUMS, MIN_ONEDNN_WORK = 96 * 96, 2e4

#: Multiply-adds, and bytes of windows in 16 bits, that are worth a contraction for each group.
MIN_GROUP_WORK, MIN_GROUP_WINDOWS = 4e6, 4 << 20

#: Pixels along an axis, and channels, for which im2col beats XLA's convolution; and coarse channels
#: that are not worth im2col's windows.
MAX_SMALL_PIXELS, MIN_WIDE_CHANNELS, MAX_COARSE_CHANNELS = 14, 64, 16

#: Images for which XLA's weights gradient, which takes images as channels, beats im2col: the lower
#: limit is for very few channels, and for strides.
MIN_IMAGES, MIN_IMAGES_OTHERWISE = 8, 32

#: Bytes of data that XLA's weights gradient may transpose to take images as channels; pixels whose
#: sums cost less than to copy the kernel for oneDNN; and pixels of signals that im2col takes.
MAX_COPIED_BYTES, MAX_COPIED_KERNEL_PIXELS, MAX_SIGNAL_PIXELS = 16 << 20, 49, 1024


def _few_terms(p: Problem) -> bool:
    """Whether there are groups, and few enough multiply-adds a result for one fused loop."""
    if p.dense or p.fine_channels > MAX_GROUP_CHANNELS:
        return False
    terms = p.taps * p.fine_channels
    if p.result == "kernel":
        return p.pairs <= MAX_CHANNEL_PAIRS and terms <= MAX_TERMS_TO_KERNEL
    return terms <= MAX_TERMS


def _much_data(p: Problem) -> bool:
    """Whether data is copied, or read by multiply-adds; `split.BLOCKS` checks how much it is."""
    if p.result == "kernel":
        few = not p.dense and p.pairs <= MAX_CHANNEL_PAIRS
        return few or (not p.channels_last and p.rank > 1 and not p.tiles)
    if p.result == "fine":
        return (p.strided or p.depthwise) and not p.channels_last
    if split.reads_aliased(p):
        return onednn.FORM.fills(p)
    multiplied = p.depthwise and p.rank > 1 and not onednn.FORM.fills(p)
    return multiplied and p.channels_last and not p.phase


def _many_taps(p: Problem) -> bool:
    """Whether there are groups, and too many taps for a program to write out one by one."""
    most = MAX_TERMS if p.depthwise else taps.MAX_TAPS
    if p.result == "kernel" and p.pairs <= MAX_CHANNEL_PAIRS:
        most = MAX_TERMS_TO_KERNEL
    return not p.dense and p.taps > most


def _dots_only(p: Problem) -> bool:
    """Whether the stride is 1, or the contraction too much for multiply-adds.

    At stride 1, dots exchange halos; multiply-adds would gather rows that are split over devices.
    """
    halos = p.result == "coarse" and not p.strided
    return p.taps <= taps.MAX_TAPS and (halos or not _few_terms(p))


def _few_terms_beat_onednn(p: Problem) -> bool:
    """Whether few channels give one, or phases, whose results fuse with the interleaving."""
    divider = p.coarse_channels == 1 < p.fine_channels
    return p.result == "coarse" and (divider or (p.phase and p.depthwise)) and _few_terms(p)


def _one_dot(p: Problem) -> bool:
    """Whether one tap, or tiles, have one group, and oneDNN does not save a pass."""
    if p.result == "fine":  # oneDNN is faster with groups, after a flip or by phases
        return p.dense or not onednn.may_call(p)
    called = p.result == "coarse" and onednn.FORM.fills(p) and _pays_for_onednn(p)
    if not p.dense or not called or not p.pointwise:
        return p.dense and not called
    finishes = onednn.FORM.finishes(p) and (p.bits == 16 or p.pixels > MAX_SMALL_PIXELS**2)
    copies = p.strided and p.pixels >= p.fine_channels  # the pixels that are read, for the dot
    return not (finishes or copies)


def _few_sums(p: Problem) -> bool:
    """Whether a weights gradient has many rows and few sums, which XLA computes in float32."""
    few = p.pairs <= MAX_ONE_CORE_SUMS and p.pixels >= dot.MIN_PART_ROWS
    return few and p.counted and p.bits < 64 and p.dtype != jnp.bfloat16


def _few_pixels(p: Problem) -> bool:
    """Whether to add up windows costs less than to copy the kernel, which phases do most."""
    if p.result != "fine" or not p.counted:
        return False
    coarse, fine, _ = p.geometry.kernel
    as_it_lies = coarse in (0, 1 + p.rank) or (p.strided and fine == 1 + p.rank)
    return as_it_lies and p.pixels * (1 if p.strided else 4) <= p.coarse_channels


def _few_results(p: Problem) -> bool:
    """Whether so few channels result that adding windows up is cheaper than a read for each tap."""
    if not p.counted:
        return False
    channels = p.coarse_channels if p.result == "coarse" else p.fine_channels
    many = p.summed >= MIN_SUMMED_PER_RESULT * channels
    if p.result == "coarse":
        return many and channels <= (MAX_RESULT_CHANNELS if p.onednn else MAX_COARSE_CHANNELS)
    few = channels <= MAX_STEM_CHANNELS
    if p.onednn:  # phases read few coarse channels faster
        return p.bits == 32 and few and many and p.coarse_channels > MIN_WIDE_CHANNELS
    return p.bits < 64 and (few or many)


def _image_by_image(p: Problem) -> bool:
    """Whether twice the weights, which each image copies, are at most the image, channels first."""
    i, o = p.fine_channels, p.coarse_channels
    few = p.channels_first and 2 * i * o <= p.positions * (i + o)
    return few and (p.bits > 16 or p.result != "kernel")


def _narrow_coarse(p: Problem) -> bool:
    """Whether to copy the coarse tensor for each tap saves more than to reverse the result."""
    i, o = p.fine_channels, p.coarse_channels
    return p.pixels * (i - o) >= 2 * i * o  # two copies of the result, for each tap


def _pays_for_onednn(p: Problem) -> bool:
    """Whether there is enough work to start oneDNN, and to let oneDNN copy the kernel."""
    few = p.result == "coarse" and p.pixels <= MAX_COPIED_KERNEL_PIXELS and p.bits == 32
    copied = p.dense and p.rank == 2 and p.geometry.kernel == p.geometry.canonical().kernel
    return p.work >= MIN_ONEDNN_WORK and not (few and copied and _small_image(p))


#: Multiply-adds of a weights gradient that are worth a call of oneDNN; coarse channels, at least,
#: and at most for each fine channel and tap of the last axis.
MIN_WEIGHTS_WORK, MIN_COARSE_CHANNELS, MAX_COARSE_PER_ROW = 1e6, 8, 7

#: Fine channels of few signals of stride 1 that are worth the call.
MIN_SIGNAL_CHANNELS = 32


def _pays_for_onednn_weights(p: Problem) -> bool:
    """Whether several taps, and enough results of each, are worth to move images last."""
    i, o, last = p.fine_channels, p.coarse_channels, p.geometry.axes[-1]
    if p.pointwise or p.work < MIN_WEIGHTS_WORK:
        return False
    if p.rank == 1:  # XLA takes many signals of few channels as channels itself
        return not p.dilated and (
            p.strided or ((p.batch or 0) < MIN_IMAGES and i >= MIN_SIGNAL_CHANNELS)
        )
    return MIN_COARSE_CHANNELS <= o <= MAX_COARSE_PER_ROW * i * last.kernel


def _fast_dense(p: Problem) -> bool:
    """Whether few channels result from large windows, or a weights gradient has several images."""
    if not (p.fast_dense and p.dense and p.counted) or p.rank != 2 or p.bits != 32 or p.pointwise:
        return False
    i, o = p.fine_channels, p.coarse_channels
    if p.result == "coarse":
        return i > MAX_SLOW_CHANNELS and p.taps * o > MAX_WINDOWS_RATIO * i and _few_results(p)
    several = (p.batch or 0) >= (MIN_IMAGES if p.strided else MIN_IMAGES_OTHERWISE)
    even = o < MIN_COARSE_PER_FINE * i and (p.strided or not _narrow_coarse(p))
    copied = 4 * sum(math.prod(p.shape(slot)) for slot in ("fine", "coarse"))
    return p.result == "kernel" and several and even and copied <= MAX_COPIED_BYTES


def _wide_groups(p: Problem) -> bool:
    """Whether each of several groups is enough work for a contraction of its own."""
    one = replace(p, geometry=replace(p.geometry, groups=1))
    if p.result == "kernel" and onednn_weights.FORM.fills(one) and _pays_for_onednn_weights(one):
        return True
    if not p.counted or p.work < MIN_GROUP_WORK * p.geometry.groups:
        return False
    windows = p.pixels * p.taps * p.fine_channels * p.bits // 8
    return p.bits > 16 or (p.result == "kernel" and (p.pointwise or windows >= MIN_GROUP_WINDOWS))


def _dots_of_windows(p: Problem) -> bool:
    """Whether dots win: groups; most weights gradients; 16 bits; small images, and stems."""
    if p.result == "kernel" and p.dense:
        return not _is_stem(p) and (p.rank > 1 or _short_signals(p))
    return not p.dense or p.bits == 16 or (p.rank == 2 and (_small_image(p) or _widens(p)))


def _short_signals(p: Problem) -> bool:
    """Whether im2col beats XLA's weights gradient: signals few, and short or strided; bfloat16."""
    few = p.counted and (p.batch or 0) < MIN_IMAGES and (p.strided or p.pixels <= MAX_SIGNAL_PIXELS)
    return few or p.fine_channels == 1 or p.bits == 64 or p.dtype == jnp.bfloat16


def _is_stem(p: Problem) -> bool:
    """Whether there are few channels and several images, which XLA takes as channels."""
    few = p.fine_channels <= MAX_WIDENED_CHANNELS and p.coarse_channels <= MAX_COARSE_CHANNELS
    least = MIN_IMAGES if p.fine_channels <= MAX_STEM_CHANNELS else MIN_IMAGES_OTHERWISE
    return few and (p.batch or 0) >= least and p.bits == 32


def _small_image(p: Problem) -> bool:
    """Whether an axis has few pixels, and there are enough results to be worth their windows."""
    small = any(a.coarse <= MAX_SMALL_PIXELS for a in p.geometry.axes if a.kernel > 1)
    wide = p.fine_channels >= MIN_WIDE_CHANNELS and p.coarse_channels > MAX_COARSE_CHANNELS
    return small and wide


def _widens(p: Problem) -> bool:
    """Whether few channels give many, for which XLA:CPU's convolution is erratic."""
    many = p.coarse_channels >= MIN_COARSE_PER_FINE * p.fine_channels
    return 1 < p.fine_channels <= MAX_WIDENED_CHANNELS and many


TABLE: Table = (
    Line("empty", reference.ZEROS, lambda p: p.empty, "nothing is summed"),
    Line(
        "one-tap-channels-first",
        dots.BY_IMAGE,
        _image_by_image,
        "one tap, channels first: a dot for each image, and no transposition",
    ),
    Line(
        "depthwise-weights",
        slide.FORM,
        slide.pays_to_slide,
        "a depthwise weights gradient: each image of the coarse tensor as oneDNN's kernel",
    ),
    Line(
        "rows",
        multiply_adds.CHANNELS_FIRST,
        multiply_adds.has_rows,
        "a depthwise weights gradient, channels first: rows of pixels, and no transposition",
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
        "few-pixels",
        col2im.FORM,
        _few_pixels,
        "few pixels: a dot reads the weights, which are most of the data, as they lie",
    ),
    Line("stride-1", phases.FLIP, lambda p: True, "a convolution by the reversed kernel"),
    Line(
        "onednn-weights",
        onednn_weights.FORM,
        _pays_for_onednn_weights,
        "a weights gradient: oneDNN, with images as channels",
    ),
    Line("fast-dense", convolution.FORM, _fast_dense, "XLA's dense convolution, on all cores"),
    Line("few-results", col2im.FORM, _few_results, "few result channels: a dot, and added windows"),
    Line(
        "spread",
        phases.SPREAD,
        phases.pays_to_spread,
        "few channels a group, channels first: as stride 1",
    ),
    Line("strided", phases.PHASES, lambda p: True, "stride-1 convolutions, one a kind of residues"),
    Line(
        "tap-by-tap",
        taps.TAPS,
        lambda p: p.result == "fine" or taps.reaches_far(p),
        "too many phases, or windows that reach over far more padding than data",
    ),
    Line(
        "few-terms-channels-first",
        multiply_adds.CHANNELS_FIRST,
        multiply_adds.has_few_terms,
        "few channels a group: multiply-adds, and no transposition",
    ),
    Line("multiplier", repeat.FORM, lambda p: True, "each fine channel repeated: depthwise"),
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
    Line("onednn", onednn.FORM, _pays_for_onednn, "oneDNN, which jaxlib carries"),
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
