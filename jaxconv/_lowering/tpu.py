"""TPU, and every other platform without a table: mostly one convolution in the layouts at hand.

By XLA:TPU's own estimates of cycles (`python -m benchmarks.compiled`), each other line is worth at
least 1.5 on layers that nobody tuned for. Nothing has been timed.
"""

from jaxconv._base.geometry import OPERANDS
from jaxconv._lowering.forms import bundle, dots, phases, reference
from jaxconv._lowering.problem import Line, Problem, Table, Tables

#: Channels of a group that are worth a bundle of any groups; and, for more channels, groups of a
#: bundle and coarse pixels.
MAX_GROUP_CHANNELS, MIN_GROUPS, MIN_BUNDLE_PIXELS = 8, 4, 3 << 10

#: Images that XLA:TPU's convolution takes side by side. Of fewer images, XLA first makes more by
#: cutting each image, which moves all data. A dot takes pixels.
IMAGES = 8

#: Coarse pixels of several images that are worth the dot of one tap.
MIN_DOT_PIXELS = 1 << 10

#: Coarse pixels that are worth dots by tap, taps that have a dot each, and channels of the result:
#: the sums of each dot may go through memory.
MIN_PIXELS, MAX_TAPS, MAX_RESULT_CHANNELS = 1 << 14, 9, 48

#: Fine channels of a patch whose gradients a dot computes; taps that are worth the dot wherever
#: images are; and the fine tensor that a dot then reads faster, patch by patch.
MAX_PATCH_CHANNELS, MIN_PATCH_TAPS, MIN_DATA_BYTES = 4, 64, 2 << 20


def _few_channels(p: Problem) -> bool:
    """Whether groups have few channels, or bundles many groups; XLA:TPU is good at depthwise."""
    if p.depthwise or (p.result == "coarse" and p.fine_channels == 1):
        return False
    few = max(p.fine_channels, p.coarse_channels) <= MAX_GROUP_CHANNELS
    return few or (p.pixels >= MIN_BUNDLE_PIXELS and bundle.count_groups(p) >= MIN_GROUPS)


def _few_images(p: Problem) -> bool:
    return p.batch is not None and p.batch < IMAGES


def _images_together(p: Problem) -> bool:
    """Whether XLA has images side by side as they come: images fill vectors, and rows do not."""
    return p.batch is None or p.batch % IMAGES == 0 < p.geometry.axes[-1].coarse % IMAGES


def _one_tap(p: Problem) -> bool:
    if p.result == "kernel" or not p.pointwise or not p.dense:
        return False
    if p.strided:  # to fine, pixels that no window reads are zeros of a pad
        return p.result == "fine"
    many = p.batch == 1 or p.pixels >= MIN_DOT_PIXELS
    return p.rank > 1 and many and not _images_together(p)


def _patches(p: Problem) -> bool:
    """Whether windows of few channels, or to fine of few images, tile without remainder."""
    exact = p.tiles and all(a.pad_low == a.pad_high == 0 for a in p.geometry.axes)
    if not (exact and p.dense and p.counted) or p.pointwise or p.result == "kernel":
        return False
    apart = p.taps >= MIN_PATCH_TAPS or not _images_together(p)
    few = p.fine_channels <= MAX_PATCH_CHANNELS and apart
    if p.result == "fine":
        return few or (_few_images(p) and p.fine_channels >= bundle.LANES)
    data = (p.batch or 0) * p.fine_channels * p.dtype.itemsize * p.positions * p.taps
    return few and data >= MIN_DATA_BYTES


def _taps(p: Problem) -> bool:
    """Whether few images have few taps, plain ones, many pixels, and several channels, not many."""
    plain = p.dense and not p.strided and not p.dilated and p.rank > 1
    several = min(p.fine_channels, p.coarse_channels) > MAX_PATCH_CHANNELS
    found = p.fine_channels if p.result == "fine" else p.coarse_channels
    small = 1 < p.taps <= MAX_TAPS and several and found <= MAX_RESULT_CHANNELS
    return p.result != "kernel" and plain and small and _few_images(p) and p.pixels >= MIN_PIXELS


_LINES: Table = (
    Line(
        "few channels a group",
        bundle.FORM,
        _few_channels,
        "groups of few channels: several make one, as wide as the matrix unit",
    ),
    Line("one tap", dots.ONE, _one_tap, "one tap: one dot"),
    Line("patches", dots.ONE, _patches, "windows that tile: one dot"),
    Line("few images, to fine", phases.FLIP, _taps, "few images: by the reversed kernel"),
    Line("few images", dots.BY_TAP, _taps, "few images and taps: a dot for each tap"),
    Line("all others", reference.FORM, lambda p: True, "one convolution"),
)

TABLES: Tables = dict.fromkeys(OPERANDS, _LINES)
