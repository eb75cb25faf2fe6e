"""CPU, to kernel: weights gradients."""

import math
from dataclasses import replace

import jax.numpy as jnp

from jaxconv._lowering import onednn_here
from jaxconv._lowering.cpu import common
from jaxconv._lowering.forms import (
    dots,
    im2col,
    multiply_adds,
    onednn,
    onednn_weights,
    rewrite,
    split,
)
from jaxconv._lowering.problem import Line, Problem, Table

#: Elements of an image's data for each element of the result, which every image adds to.
MIN_DATA_PER_SUM = 8


def _few_sums_an_image(p: Problem) -> bool:
    """Whether the sums, channels first, are few beside the data of an image."""
    i, o = p.fine_channels, p.coarse_channels
    few = MIN_DATA_PER_SUM * i * o <= p.positions * (i + o)
    return p.channels_first and few


#: Pairs of a tap and a fine channel that multiply-adds write out one by one.
MAX_WRITTEN_FACTORS = 64

#: Pairs of channels in a group for which multiply-adds beat dots.
MAX_CHANNEL_PAIRS = 32


def _few_pairs(p: Problem) -> bool:
    return not p.dense and p.pairs <= MAX_CHANNEL_PAIRS


def _few_terms(p: Problem) -> bool:
    """Whether groups have few pairs of channels, and few factors, for one fused loop."""
    i = p.fine_channels
    few = i <= common.MAX_GROUP_CHANNELS and p.taps * i <= MAX_WRITTEN_FACTORS
    return _few_pairs(p) and few


#: Pairs of channels in a group for which an image as a kernel beats other forms.
MAX_SLIDING_PAIRS = 64

#: Pixels of an image that are worth a call.
MIN_CALL_PIXELS = 64

#: Pixels in a block of rows that are worth a call, if the image has so many.
MIN_BLOCK_PIXELS = 256


def _slides(p: Problem) -> bool:
    """Whether of many taps a call for each image beats multiply-adds, and dots of windows."""
    small = p.pairs == 1 and p.positions < MIN_CALL_PIXELS
    if p.taps <= MAX_WRITTEN_FACTORS or p.pairs > MAX_SLIDING_PAIRS or small:
        return False
    [part] = onednn_weights.split_images(p)
    return onednn.may_call(part) and part.taps >= min(MIN_BLOCK_PIXELS, p.positions)


#: Pixels of a row that are worth a vector.
MIN_ROW_PIXELS = 16

#: Planes of a multiple of these bytes share few lines of a cache: to transpose them is slow.
ALIASED_BYTES = 2048

#: Taps for which rows cost less than to transpose such planes.
MAX_TAPS_OF_ALIASED = 64

#: Taps for which rows cost less than to transpose others.
MAX_TAPS_OF_ROWS = 9


def _rows(p: Problem) -> bool:
    """Whether rows of pixels make vectors, and cost less than to transpose the planes."""
    aliased = math.prod(a.fine for a in p.geometry.axes) * p.bits // 8 % ALIASED_BYTES == 0
    few = p.taps <= (MAX_TAPS_OF_ALIASED if aliased else MAX_TAPS_OF_ROWS)
    long = p.geometry.axes[-1].coarse >= MIN_ROW_PIXELS
    return p.channels_first and long and few and (p.strided or aliased)


def _much_data(p: Problem) -> bool:
    """Whether data is copied, or read again and again; the form knows how much is too much."""
    if not p.counted:
        return False
    copied = not p.channels_last and p.rank > 1 and not p.tiles
    # Multiply-adds pad the fine tensor, and copy both to float32; to map new pages takes longest.
    copies = p.bytes_of_data if p.bits == 16 else 4 * math.prod(p.shape("fine"))
    again = p.taps > common.MAX_TAPS_AT_ONCE
    return copied or (_few_pairs(p) and (again or copies > common.MAX_WIDENED_BYTES))


#: Sums that XLA:CPU computes in one dot on one core.
MAX_ONE_CORE_SUMS = 96 * 96


def _few_sums(p: Problem) -> bool:
    """Whether a weights gradient has many rows and few sums, which XLA computes in float32."""
    few = p.pairs <= MAX_ONE_CORE_SUMS and p.pixels >= dots.MIN_PART_ROWS
    return few and p.counted and p.bits < 64 and p.dtype != jnp.bfloat16


#: Multiply-adds that are worth a call of oneDNN for a weights gradient.
MIN_WEIGHTS_WORK = 4e5

#: Multiply-adds of a group above which groups go one by one.
MAX_SHARED_CALL_WORK = 16e6

#: Coarse channels for each fine channel and tap of the last axis.
MAX_COARSE_PER_ROW = 7

#: Taps over a signal, channels first, that are worth the call.
MIN_SIGNAL_TAPS = 8

#: Images, or signals, that XLA takes as channels itself.
MIN_IMAGES = 8


def _pays_for_onednn(p: Problem) -> bool:
    """Whether several taps, and enough results of each, are worth to move images last.

    Windows that tile are written once by a dot, or im2col. Large groups go one by one: XLA copies
    one while oneDNN multiplies another. AMX multiplies windows in 16 bits.
    """
    i, o, last = p.fine_channels, p.coarse_channels, p.geometry.axes[-1]
    if p.pointwise or p.tiles or p.work < MIN_WEIGHTS_WORK:
        return False
    large = not p.dense and p.rank > 1 and p.work > MAX_SHARED_CALL_WORK * p.geometry.groups
    if large or (p.bits == 16 and onednn_here.has_amx()):
        return False
    if p.rank == 1 and p.dense:
        several = p.channels_last or last.kernel >= MIN_SIGNAL_TAPS  # to be worth a transposition
        if i < common.VECTOR_CHANNELS or not several:
            return False
    return common.VECTOR_CHANNELS <= o <= MAX_COARSE_PER_ROW * i * last.kernel


def _one_dot(p: Problem) -> bool:
    """Whether there is one tap, of one group or of groups of few pairs.

    Or one group of windows that tile, on one device: channels may be split, too. Of many channels
    that come last, im2col lays out windows faster.
    """
    if p.dense:
        few = p.channels_first or p.fine_channels <= common.MAX_STEM_CHANNELS
        return p.pointwise or (p.tiles and few and not p.partitioned)
    return p.pointwise and not p.partitioned and _few_pairs(p) and p.fine_channels > 1


def _narrow_coarse(p: Problem) -> bool:
    """Whether to copy the coarse tensor for each tap saves more than to reverse the result."""
    i, o = p.fine_channels, p.coarse_channels
    # Exchanged, each tap copies fine pixels instead of coarse ones, and the result twice.
    grown = math.prod(a.fine for a in p.geometry.axes) / p.positions
    return p.pixels * (i - grown * o) >= 2 * i * o


def _dots_only(p: Problem) -> bool:
    """Whether XLA splits a contraction over devices that is too much for multiply-adds.

    Of one convolution, XLA computes a dense one wrongly where an axis of the mesh is not used.
    """
    return common.over_devices(p) and not _few_terms(p)


def _many_taps(p: Problem) -> bool:
    """Whether there are groups, and too many taps for a program to write out one by one."""
    return not p.dense and p.taps > (MAX_WRITTEN_FACTORS if _few_pairs(p) else split.MAX_PARTS)


#: Bytes of windows in 16 bits that are worth a contraction for each group.
MIN_GROUP_WINDOWS_BYTES = 4 << 20


def _groups_alone(p: Problem) -> bool:
    """Whether each of several groups is enough work for a contraction of its own."""
    [one] = split.split_by_group(p)
    swapped = rewrite.SWAP.fills(one) and _narrow_coarse(one)
    ways = (one, *(rewrite.exchange_operands(one) if swapped else ()))
    if any(onednn_weights.FORM.fills(q) and _pays_for_onednn(q) for q in ways):
        return True
    windows = p.pixels * p.taps * p.fine_channels * p.bits // 8
    much = p.counted and p.work >= common.MIN_GROUP_WORK * p.geometry.groups
    return common.wide_groups(p) or (much and (p.pointwise or windows >= MIN_GROUP_WINDOWS_BYTES))


def _dots_of_windows(p: Problem) -> bool:
    """Whether dots win: groups, tiles, and all but stems and long signals."""
    return not p.dense or p.tiles or (not _is_stem(p) and (p.rank > 1 or _short_signals(p)))


def _is_stem(p: Problem) -> bool:
    """Whether there are few channels and several images, which XLA takes as channels."""
    i, o = p.fine_channels, p.coarse_channels
    few = i <= common.MAX_STEM_CHANNELS and o <= common.MAX_COARSE_CHANNELS
    return few and (p.batch or 0) >= MIN_IMAGES and p.bits == 32


#: Pixels of signals that im2col takes.
MAX_SIGNAL_PIXELS = 1024


def _short_signals(p: Problem) -> bool:
    """Whether im2col beats XLA's weights gradient: signals few, and short or strided; bfloat16."""
    few = p.counted and (p.batch or 0) < MIN_IMAGES and (p.strided or p.pixels <= MAX_SIGNAL_PIXELS)
    return few or p.fine_channels == 1 or p.bits == 64 or p.dtype == jnp.bfloat16


TABLE: Table = (
    replace(common.ONE_TAP_CHANNELS_FIRST, when=_few_sums_an_image),
    common.IN_FLOAT32,
    Line(
        "depthwise-weights",
        onednn_weights.SLIDE,
        _slides,
        "many taps, few channels a group: images, or rows of them, as oneDNN's kernel",
    ),
    Line(
        "rows",
        multiply_adds.CHANNELS_FIRST,
        _rows,
        "a depthwise weights gradient, channels first: rows of pixels, and no transposition",
    ),
    Line(
        "much-data",
        split.BLOCKS,
        _much_data,
        "much data is copied, or read again: in blocks",
    ),
    Line(
        "few-sums",
        dots.IN_PARTS,
        _few_sums,
        "one dot of few sums keeps one core busy: several dots side by side, then their sum",
    ),
    Line("one-dot", dots.ONE, _one_dot, "one tap, or windows that tile: one dot"),
    Line(
        "onednn-weights",
        onednn_weights.FORM,
        _pays_for_onednn,
        "a weights gradient: oneDNN, with images as channels",
    ),
    common.FAR,
    Line(
        "narrow-coarse",
        rewrite.SWAP,
        _narrow_coarse,
        "a weights gradient copies one tensor for each tap: here, the one that costs less",
    ),
    Line(
        "dots-sharded",
        dots.BY_TAP,
        _dots_only,
        "split over devices: XLA splits convolutions wrongly, or gathers the batch of groups",
    ),
    Line("few-terms", multiply_adds.FORM, _few_terms, common.FEW_TERMS),
    Line("many-taps", split.PIECES, _many_taps, common.MANY_TAPS),
    Line("wide-groups", split.GROUPS, _groups_alone, common.ALONE),
    Line("dots-of-windows", im2col.FORM, _dots_of_windows, common.DOTS_WIN),
    common.SHARDED,
    common.ALL_OTHERS,
)
