"""TPU, and whatever else has no table of its own: mostly one convolution in the layouts at hand.

The other lines are worth it by XLA:TPU's own estimates of cycles (`python -m benchmarks.compiled`),
each at least 1.5 on layers that nobody tuned for. Nothing has been timed.
"""

from jaxconv._lowering.form import Line, Table
from jaxconv._lowering.forms import bundle, dot, reference
from jaxconv._lowering.problem import Problem

#: Most channels of a group, fine or coarse, that are worth a bundle, however many bundles there
#: are, and most where there are few.
FEW_CHANNELS, FEW_IN_FEW_BUNDLES, FEW_BUNDLES = 8, 16, 2

#: Most fine channels of a patch whose gradients a dot computes.
FEW_FINE = 4

#: Fewest bytes of the fine tensor that a dot reads faster, patch by patch, and most pixels of a
#: patch along an axis where it has more than a few channels.
MUCH_DATA, SMALL_PATCH = 2 << 20, 2


def _few_channels(p: Problem) -> bool:
    """Several channels in some group, and few: XLA:TPU is good at one by one, and at many."""
    few_bundles = p.geometry.groups <= FEW_BUNDLES * bundle.size(p)
    most = FEW_IN_FEW_BUNDLES if few_bundles else FEW_CHANNELS
    return not p.depthwise and max(p.fine_channels, p.coarse_channels) <= most


def _patches(p: Problem) -> bool:
    """One tap with strides; or windows that tile without a remainder, small or of few channels."""
    axes = p.geometry.axes
    exact = p.tiles and all(a.pad_low == a.pad_high == 0 for a in axes)
    if p.pointwise:  # with strides, pixels that no window reads are zeros of a pad
        return p.result == "fine" and p.strided and p.dense
    if not (exact and p.dense and p.counted) or p.result == "kernel":
        return False
    few = p.fine_channels <= FEW_FINE
    if p.result == "fine":
        return few
    data = (p.batch or 0) * p.fine_channels * p.dtype.itemsize * p.positions * p.taps
    return data >= MUCH_DATA and (few or all(a.kernel <= SMALL_PATCH for a in axes))


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
