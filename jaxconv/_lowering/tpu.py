"""TPU, and every other platform without a table: mostly one convolution in the layouts at hand.

By XLA:TPU's own estimates of cycles (`python -m benchmarks.compiled`), each other line is worth at
least 1.5 on layers that nobody tuned for. Nothing has been timed.
"""

from jaxconv._lowering.form import Line, Table
from jaxconv._lowering.forms import bundle, dot, reference
from jaxconv._lowering.problem import Problem

#: Channels of a group, fine or coarse, that are worth a bundle, for any number of bundles; channels
#: if there are few bundles; and the bundles that are few.
MAX_GROUP_CHANNELS, MAX_CHANNELS_IF_FEW, MAX_FEW_BUNDLES = 8, 16, 2

#: Fine channels of a patch whose gradients a dot computes.
MAX_PATCH_CHANNELS = 4

#: The fine tensor that a dot reads faster, patch by patch; and a patch of more than a few channels,
#: along an axis.
MIN_DATA_BYTES, MAX_PATCH_PIXELS = 2 << 20, 2


def _few_channels(p: Problem) -> bool:
    """Whether groups have several channels, and few: XLA:TPU is good at one by one, and at many."""
    few_bundles = p.geometry.groups <= MAX_FEW_BUNDLES * bundle.count_groups(p)
    most = MAX_CHANNELS_IF_FEW if few_bundles else MAX_GROUP_CHANNELS
    return not p.depthwise and max(p.fine_channels, p.coarse_channels) <= most


def _patches(p: Problem) -> bool:
    """Whether one tap has strides; or small windows, or of few channels, tile without remainder."""
    axes = p.geometry.axes
    exact = p.tiles and all(a.pad_low == a.pad_high == 0 for a in axes)
    if p.pointwise:  # with strides, pixels that no window reads are zeros of a pad
        return p.result == "fine" and p.strided and p.dense
    if not (exact and p.dense and p.counted) or p.result == "kernel":
        return False
    few = p.fine_channels <= MAX_PATCH_CHANNELS
    if p.result == "fine":
        return few
    data = (p.batch or 0) * p.fine_channels * p.dtype.itemsize * p.positions * p.taps
    return data >= MIN_DATA_BYTES and (few or all(a.kernel <= MAX_PATCH_PIXELS for a in axes))


TABLE: Table = (
    Line("empty", reference.ZEROS, lambda p: p.empty, "nothing is summed"),
    Line(
        "few channels a group",
        bundle.FORM,
        _few_channels,
        "groups of few channels: several make one, as wide as the matrix unit",
    ),
    Line("patches", dot.FORM, _patches, "one tap, or windows that tile: one dot"),
    Line("all others", reference.FORM, lambda p: True, "one convolution"),
)
