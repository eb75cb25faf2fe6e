"""Groups of few channels, several at once: bundles as wide as the matrix unit of a TPU.

The unit multiplies 128 lanes by 128, and a group of a few channels fills few lanes. So several
groups make a bundle, whose kernel is zero outside of the groups' own blocks. A weights gradient
computes all pairs of channels of a bundle, and keeps the pairs within groups.

To fine and to coarse, foreign channels are multiplied by zero, which makes NaN of an infinity. So a
result that is not finite throughout is computed again, group by group. A weights gradient mixes
nothing.
"""

from dataclasses import replace

import jax.numpy as jnp
from jax import Array, lax

from jaxconv._base.geometry import Geometry
from jaxconv._base.reshape import reorder, replace_axes, split_groups
from jaxconv._base.typing import Index
from jaxconv._lowering.forms.blocks import find_divisor, unless_finite
from jaxconv._lowering.problem import Call, Form, Problem

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
    out = call.part(fine, coarse, call.numerics)  # X, (b, i), (G, b, o)
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
    geometry, numerics = call.geometry, call.numerics
    bundles, group = call.parts
    kernel = reorder(kernel, geometry.kernel.spec, _with_taps_first(geometry).kernel.spec)
    out = bundles(first, _spread(kernel, geometry.groups, count_groups(call.problem)), numerics)
    channel = geometry.data.channel

    def group_by_group() -> Array:
        data = split_groups(first, geometry.groups, channel)
        weights = split_groups(kernel, geometry.groups)

        def one(n: Index) -> Array:
            return group(
                lax.dynamic_index_in_dim(data, n, channel, keepdims=False),
                lax.dynamic_index_in_dim(weights, n, -2, keepdims=False),
                numerics,
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


FORM = Form(
    "bundle",
    {"coarse": to_data, "fine": to_data, "kernel": to_kernel},
    cannot=lambda p: p.dense or count_groups(p) < 2,
    gathers=True,
    parts=_split_bundles,
    layouts="any",
)
