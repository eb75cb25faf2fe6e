"""CPU, to coarse: the forward pass, and data gradients that were rewritten."""

import math

from jaxconv._lowering import onednn_here
from jaxconv._lowering.cpu import common
from jaxconv._lowering.forms import col2im, dots, im2col, multiply_adds, onednn, rewrite, split
from jaxconv._lowering.forms.blocks import has_release
from jaxconv._lowering.problem import Line, Problem, Table


def _few_terms(p: Problem) -> bool:
    """Whether few enough multiply-adds a result for one fused loop: of groups, or 16-bit stems."""
    few = (not p.dense or _costs_to_widen(p)) and p.fine_channels <= common.MAX_GROUP_CHANNELS
    return few and p.taps * p.fine_channels <= common.MAX_TERMS


#: Images whose padded planes are worth blocks, by oneDNN.
MIN_PADDED_IMAGES = 8


def _much_data(p: Problem) -> bool:
    """Whether a cache holds little of what multiply-adds read, or copies of planes map new pages.

    Multiply-adds pad the planes. If they are transposed, a large result maps as many itself. Groups
    of several channels cost more to transpose.
    """
    if not p.counted:
        return False
    multiplied = p.depthwise and p.rank > 1 and not onednn.may_call(p)
    if multiplied and p.channels_last and not p.phase:
        return p.bytes_of_data > split.MAX_COARSE_BYTES
    fine, coarse = (4 * math.prod(p.shape(slot)) for slot in ("fine", "coarse"))
    if not p.channels_first or p.bits != 32 or p.batch == 1:
        return False
    if common.few_terms_channels_first(p):
        several = (p.batch or 0) >= MIN_PADDED_IMAGES and not p.strided and onednn.may_call(p)
        few = p.dense or p.depthwise
        return several and few and fine + coarse > common.MAX_WIDENED_BYTES
    return fine > max(common.MAX_WIDENED_BYTES, 2 * coarse)


#: Pixels of all images for which a dot in float32 beats oneDNN's call in a network: the call copies
#: the weights, which are in no cache then. Alone, it does not.
MAX_DOT_PIXELS = 14 * 14


def _one_dot(p: Problem) -> bool:
    """Whether there is one group, and a dot beats oneDNN, if of one tap, or of windows that tile.

    Other windows the form cannot compute.
    """
    if not p.dense or (p.partitioned and not p.pointwise):  # channels may be split, too
        return False
    if not (onednn.may_call(p) and _pays_for_onednn(p)):
        return True
    if not p.pointwise or (p.channels_first and p.bits == 32):
        return False  # channels first, a dot would transpose the weights, too
    few = p.bits == 32 and p.pixels <= MAX_DOT_PIXELS
    copies = p.strided and p.pixels >= p.fine_channels  # the pixels that are read, for the dot
    # With AMX, some channel counts are not safe in 16 bits, and would be widened for oneDNN.
    wider = onednn_here.has_avx512() and not (p.bits == 16 and onednn_here.has_amx())
    return not copies and (few or not (onednn.FORM.finishes(p) or wider))


def _few_results(p: Problem) -> bool:
    """Whether so few channels result that adding windows up is cheaper than a read for each tap."""
    most = common.VECTOR_CHANNELS if p.onednn else common.MAX_COARSE_CHANNELS
    few = p.coarse_channels <= most
    return p.counted and few and p.fine_channels >= common.MIN_SUMMED_PER_RESULT * p.coarse_channels


#: Coarse channels of a group that cost more as they are than to repeat its fine channel.
MAX_MULTIPLIER = 4


def _multiplies_channels(p: Problem) -> bool:
    """Whether there is one fine channel a group, and oneDNN computes it repeated."""
    if not p.counted or p.coarse_channels > MAX_MULTIPLIER:
        return False
    repeated = math.prod(p.shape("fine")) * p.coarse_channels * p.dtype.itemsize
    few = repeated <= common.MAX_WIDENED_BYTES
    return few and all(map(onednn.may_call, rewrite.split_multiplier(p)))


#: Multiply-adds that are worth a call of oneDNN, which takes about 10 microseconds to start.
MIN_ONEDNN_WORK = 2e5

#: Pixels whose sums cost less than to copy the kernel for oneDNN, and those of a large kernel.
MAX_COPIED_KERNEL_PIXELS, MAX_LARGE_KERNEL_PIXELS = 49, 128

#: Weights of a kernel that a core's own cache does not hold.
MIN_LARGE_KERNEL = 1 << 20


def _pays_for_onednn(p: Problem) -> bool:
    """Whether there is enough work to start oneDNN, to copy the kernel, and for vectors."""
    slow = _has_no_vectors(p) or _costs_to_widen(p)
    if p.work < MIN_ONEDNN_WORK or (_few_terms(p) and slow):
        return False
    large = p.taps * p.pairs >= MIN_LARGE_KERNEL
    few = p.pixels <= (MAX_LARGE_KERNEL_PIXELS if large else MAX_COPIED_KERNEL_PIXELS)
    copied = p.dense and p.rank == 2 and p.geometry.kernel == p.geometry.canonical().kernel
    return not (few and p.bits == 32 and copied and _small_image(p))


def _has_no_vectors(p: Problem) -> bool:
    """Whether oneDNN has scalar code, for few channels that give one; or few taps interleave."""
    interleaves = p.phase and p.depthwise and p.taps <= common.MAX_TAPS_AT_ONCE
    return interleaves or p.coarse_channels == 1 < p.fine_channels


#: Elements of a window of all channels that the first cache holds in float32, of a channel a group.
MAX_WIDENED_WINDOW = 7000


def _costs_to_widen(p: Problem) -> bool:
    """Whether to widen both tensors for oneDNN costs more than multiply-adds, for many channels.

    Channels first, multiply-adds would transpose both tensors, too.
    """
    fine, coarse = (p.geometry.groups * n for n in (p.fine_channels, p.coarse_channels))
    few = p.taps <= common.MAX_TAPS_AT_ONCE and p.fine_channels <= common.MAX_STEM_CHANNELS
    few = few or (p.fine_channels == 1 and p.taps * fine <= MAX_WIDENED_WINDOW)
    many = coarse >= common.MIN_WIDENED_CHANNELS
    return common.is_widened(p) and few and many and not p.channels_first


def _dots_only(p: Problem) -> bool:
    """Whether the stride is 1, or the contraction too much for multiply-adds.

    At stride 1, dots exchange halos; multiply-adds would gather rows that are split over devices.
    """
    return not p.dense and common.over_devices(p) and (not p.strided or not _few_terms(p))


def _many_taps(p: Problem) -> bool:
    """Whether there are groups, and too many taps for a program to write out one by one."""
    return not p.dense and p.taps > (common.MAX_TERMS if p.depthwise else split.MAX_PARTS)


def _dots_of_windows(p: Problem) -> bool:
    """Whether dots win: groups; 16 bits; small images, and few channels that give many.

    And in float64 few channels that give few, which XLA:CPU multiplies one by one.
    """
    few = max(p.fine_channels, p.coarse_channels) <= common.MAX_COARSE_CHANNELS
    if not p.dense or p.bits == 16 or (p.bits == 64 and few and p.fine_channels > 1):
        return True
    return p.rank == 2 and (_small_image(p) or _makes_many_of_few(p))


#: Pixels along an axis for which im2col beats XLA's convolution.
MAX_SMALL_PIXELS = 14

#: Fine channels for which im2col beats XLA's convolution of small images.
MIN_WIDE_CHANNELS = 64


def _small_image(p: Problem) -> bool:
    """Whether an axis has few pixels, and there are enough results to be worth their windows."""
    small = any(a.coarse <= MAX_SMALL_PIXELS for a in p.geometry.axes if a.kernel > 1)
    wide = p.fine_channels >= MIN_WIDE_CHANNELS and p.coarse_channels > common.MAX_COARSE_CHANNELS
    return small and wide


#: Coarse channels for each fine channel of a layer that makes many of few.
MIN_COARSE_PER_FINE = 10

#: The first release of jaxlib whose XLA:CPU convolves such layers as fast as others.
FIRST_STEADY_RELEASE = (0, 12)


def _makes_many_of_few(p: Problem) -> bool:
    """Whether few channels give many, for which this XLA:CPU's convolution is erratic."""
    many = p.coarse_channels >= MIN_COARSE_PER_FINE * p.fine_channels
    few = 1 < p.fine_channels <= common.MAX_STEM_CHANNELS
    return few and many and not has_release(*FIRST_STEADY_RELEASE)


TABLE: Table = (
    common.ONE_TAP_CHANNELS_FIRST,
    common.IN_FLOAT32,
    Line(
        "much-data",
        split.BLOCKS,
        _much_data,
        "much data is read again and again: in blocks",
    ),
    Line("one-dot", dots.ONE, _one_dot, "one tap, or windows that tile: one dot"),
    Line("few-results", col2im.FORM, _few_results, "few result channels: a dot, and added windows"),
    common.FAR,
    Line(
        "few-terms-channels-first",
        multiply_adds.CHANNELS_FIRST,
        common.few_terms_channels_first,
        "few channels: multiply-adds, and no transposition",
    ),
    Line(
        "multiplier", rewrite.REPEAT, _multiplies_channels, "each fine channel repeated: depthwise"
    ),
    Line("onednn", onednn.FORM, _pays_for_onednn, "oneDNN, which jaxlib carries"),
    # Without oneDNN, or for what it cannot compute.
    Line(
        "grouped-sharded",
        dots.BY_TAP,
        _dots_only,
        "a grouped convolution would gather the batch of all devices (openxla/xla#47945)",
    ),
    Line("few-terms", multiply_adds.FORM, _few_terms, common.FEW_TERMS),
    Line("many-taps", split.PIECES, _many_taps, common.MANY_TAPS),
    Line("wide-groups", split.GROUPS, common.wide_groups, common.ALONE),
    Line("dots-of-windows", im2col.FORM, _dots_of_windows, common.DOTS_WIN),
    Line(
        "3-D",
        split.FIRST_AXIS,
        lambda p: p.rank > 2 and not p.partitioned,
        "XLA's fast convolution has two spatial axes",
    ),
    common.SHARDED,
    common.ALL_OTHERS,
)
