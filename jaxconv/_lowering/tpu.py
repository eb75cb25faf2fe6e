"""TPU: mostly one convolution in the layouts at hand, as on every platform without a table.

By XLA:TPU's own estimates of cycles (`python -m benchmarks.compiled`), each other line is worth
1.5 and more by the mean of layers that nobody tuned for; single ones lose. Nothing has been timed.
"""

from dataclasses import replace

import jax.numpy as jnp
from jax import Array, lax

from jaxconv._base.geometry import OPERANDS, Geometry, reorder
from jaxconv._base.reshape import replace_axes, split_groups
from jaxconv._base.typing import Index
from jaxconv._lowering.forms import dots, phases, reference
from jaxconv._lowering.forms.blocks import find_divisor, unless_finite
from jaxconv._lowering.problem import Call, Form, Line, Problem, Table, Tables, wherever_it_can

# Groups of few channels, several at once: bundles as wide as the matrix unit of a TPU.
#
# The unit multiplies 128 lanes by 128, and a group of a few channels fills few lanes. So several
# groups make a bundle, whose kernel is zero outside of the groups' own blocks. A weights gradient
# computes all pairs of channels of a bundle, and keeps the pairs within groups.
#
# To fine and to coarse, foreign channels are multiplied by zero, which makes NaN of an infinity. So
# a result that is not finite throughout is computed again, group by group. A weights gradient mixes
# nothing.

#: Channels of a bundle, fine or coarse, at most.
LANES = 128


def count_groups(problem: Problem) -> int:
    """Count the groups of a bundle: a divisor of the number of groups."""
    widest = max(problem.fine_channels, problem.coarse_channels)
    return find_divisor(problem.geometry.groups, LANES // widest)


def _split_bundles(problem: Problem) -> tuple[Problem, ...]:
    """The parts: all bundles, and one group where bundles cannot be used."""
    count, geometry = count_groups(problem), _with_taps_first(problem.geometry)
    bundles = replace(
        problem,
        geometry=geometry.with_groups(geometry.groups // count),
        fine_channels=count * problem.fine_channels,
        coarse_channels=count * problem.coarse_channels,
    )
    if problem.result == "kernel":
        return (bundles,)
    return bundles, replace(problem, geometry=geometry.with_groups(1))


def _with_taps_first(geometry: Geometry) -> Geometry:
    """Change the layout of the kernel to (X, fine, coarse)."""
    return replace(geometry, kernel=geometry.canonical().kernel)


def to_kernel(fine: Array, coarse: Array, call: Call) -> Array:
    """Compute the gradient of each bundle, and keep the blocks of its groups."""
    problem, geometry = call.problem, call.geometry
    count, groups = count_groups(problem), geometry.groups
    out = call.part(fine, coarse)  # X, (b, i), (G, b, o)
    *extents, _, _ = out.shape
    out = out.reshape(
        *extents, count, problem.fine_channels, groups // count, count, problem.coarse_channels
    )
    blocks = jnp.where(_own_pairs(count), out, jnp.zeros((), out.dtype)).sum(-5)
    blocks = blocks.reshape(*extents, problem.fine_channels, groups * problem.coarse_channels)
    return reorder(blocks, _with_taps_first(geometry).kernel.spec, geometry.kernel.spec)


def _own_pairs(count: int) -> Array:
    """Mask the pairs of groups in a bundle (b, i, G, b, o) that pair a group with itself."""
    return jnp.eye(count, dtype=bool)[:, None, None, :, None]


def to_data(first: Array, kernel: Array, call: Call) -> Array:
    """Compute all bundles, or group by group where infinities would cross within bundles."""
    geometry, (bundles, group) = call.geometry, call.parts
    kernel = reorder(kernel, geometry.kernel.spec, _with_taps_first(geometry).kernel.spec)
    out = bundles(first, _spread(kernel, geometry.groups, count_groups(call.problem)))
    channel = geometry.data.channel

    def group_by_group() -> Array:
        data = split_groups(first, geometry.groups, channel)
        weights = split_groups(kernel, geometry.groups)

        def one(n: Index) -> Array:
            return group(
                lax.dynamic_index_in_dim(data, n, channel, keepdims=False),
                lax.dynamic_index_in_dim(weights, n, -2, keepdims=False),
            )

        each = jnp.moveaxis(lax.map(one, jnp.arange(geometry.groups)), 0, channel)
        return replace_axes(each, channel, 2, (out.shape[channel],))

    return unless_finite(out, group_by_group)


def _spread(kernel: Array, groups: int, count: int) -> Array:
    """Spread (X, i, (G, b, o)) to (X, (b, i), (G, b, o)), zero outside of groups' own blocks."""
    *extents, fine, coarse = kernel.shape
    split = kernel.reshape(*extents, 1, fine, groups // count, count, coarse // groups)
    own = jnp.where(_own_pairs(count), split, jnp.zeros((), kernel.dtype))
    return own.reshape(*extents, count * fine, coarse)


BUNDLE = Form(
    "bundle",
    {"coarse": to_data, "fine": to_data, "kernel": to_kernel},
    cannot=lambda p: p.dense or count_groups(p) < 2,
    gathers=True,
    parts=_split_bundles,
    layouts="any",
)


# The table.

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
#: images are; pixels of few images; and the fine tensor that a dot reads faster, patch by patch.
MAX_PATCH_CHANNELS, MIN_PATCH_TAPS, MIN_PATCH_PIXELS, MIN_DATA_BYTES = 4, 64, 64, 2 << 20


def _few_channels(p: Problem) -> bool:
    """Whether groups have few channels, or bundles many groups; XLA:TPU is good at depthwise."""
    if p.depthwise or (p.result == "coarse" and p.fine_channels == 1):
        return False
    few = max(p.fine_channels, p.coarse_channels) <= MAX_GROUP_CHANNELS
    return few or (p.pixels >= MIN_BUNDLE_PIXELS and count_groups(p) >= MIN_GROUPS)


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
    exact = all(a.pad_low == a.pad_high == 0 for a in p.geometry.axes)
    if not (exact and p.dense and p.counted) or p.pointwise or p.result == "kernel":
        return False
    alone = p.taps >= MIN_PATCH_TAPS or not _images_together(p)
    few = p.fine_channels <= MAX_PATCH_CHANNELS and alone
    if p.result == "fine":
        large = p.fine_channels >= LANES and p.positions >= MIN_PATCH_PIXELS
        return few or (_few_images(p) and large)
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
        BUNDLE,
        _few_channels,
        "groups of few channels: several make one, as wide as the matrix unit",
    ),
    Line("one tap", dots.ONE, _one_tap, "one tap: one dot"),
    Line("patches", dots.ONE, _patches, "windows that tile: one dot"),
    Line("few images, to fine", phases.FLIP, _taps, "few images: by the reversed kernel"),
    Line("few images", dots.BY_TAP, _taps, "few images and taps: a dot for each tap"),
    Line("all others", reference.FORM, wherever_it_can, "one convolution"),
)

TABLES: Tables = dict.fromkeys(OPERANDS, _LINES)

#: Of platforms without a table.
OTHERS: Tables = dict.fromkeys(OPERANDS, _LINES[-1:])
