"""Groups of few channels, several at once: bundles as wide as the matrix unit of a TPU.

The unit multiplies 128 lanes by 128, and a group of a few channels fills few of them. So several
groups make one, of a kernel that is zero outside of the groups' own blocks. A weights gradient
computes all pairs of channels of a bundle, and keeps those within groups.

To fine and to coarse, foreign channels are multiplied by zero, and an infinity of theirs would be
NaN. No product with a factor that is not finite is finite. So a result that is finite throughout is
right; any other is computed again, group by group. A weights gradient mixes nothing.
"""

from dataclasses import replace

import jax.numpy as jnp
from jax import Array, lax

from jaxconv._base.geometry import Geometry
from jaxconv._base.reshape import reorder, replace_axes, split_groups
from jaxconv._base.typing import Index
from jaxconv._lowering.form import Form, Parts, Rewrite
from jaxconv._lowering.forms.blocks import divisor
from jaxconv._lowering.problem import Numerics, Problem

#: Most channels of a bundle, fine or coarse.
LANES = 128


def size(problem: Problem) -> int:
    """How many groups make a bundle: a divisor of all there are."""
    return divisor(
        problem.geometry.groups, LANES // max(problem.fine_channels, problem.coarse_channels, 1)
    )


def _bundles(problem: Problem) -> tuple[Problem, ...]:
    """All bundles, and one group for where they cannot be used."""
    count, geometry = size(problem), _by_taps(problem.geometry)
    bundles = replace(
        problem,
        geometry=geometry.with_groups(geometry.groups // count),
        fine_channels=count * problem.fine_channels,
        coarse_channels=count * problem.coarse_channels,
    )
    if problem.result == "kernel":
        return (bundles,)
    return bundles, replace(problem, geometry=geometry.with_groups(1))


def _by_taps(geometry: Geometry) -> Geometry:
    """The geometry with a kernel (X, fine, coarse)."""
    return replace(geometry, kernel=geometry.canonical().kernel)


def to_kernel(
    fine: Array, coarse: Array, *, problem: Problem, numerics: Numerics, parts: Parts
) -> Array:
    """The gradient of each bundle, of which the blocks of its groups are kept."""
    (part,) = parts
    geometry = problem.geometry
    count, groups = size(problem), geometry.groups
    out = part(fine, coarse, numerics)  # X, (b, i), (G, b, o)
    *extents, _, _ = out.shape
    out = out.reshape(
        *extents, count, problem.fine_channels, groups // count, count, problem.coarse_channels
    )
    blocks = jnp.where(_own(count), out, jnp.zeros((), out.dtype)).sum(-5)
    blocks = blocks.reshape(*extents, problem.fine_channels, groups * problem.coarse_channels)
    return reorder(blocks, _by_taps(geometry).kernel.spec, geometry.kernel.spec)


def _own(count: int) -> Array:
    """Of pairs of groups in a bundle (b, i, G, b, o), those of a group with itself."""
    return jnp.eye(count, dtype=bool)[:, None, None, :, None]


def _to_data(guarded: bool) -> Rewrite:
    """The form that fills a slot of data; if not `guarded`, infinities cross within bundles."""

    def emit(
        first: Array, kernel: Array, *, problem: Problem, numerics: Numerics, parts: Parts
    ) -> Array:
        bundles, group = parts
        geometry = problem.geometry
        kernel = reorder(kernel, geometry.kernel.spec, _by_taps(geometry).kernel.spec)
        out = bundles(first, _blocks(kernel, geometry.groups, size(problem)), numerics)
        if not guarded:
            return out
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

        safe: Array = lax.cond(jnp.isfinite(out).all(), lambda: out, group_by_group)
        return safe

    return emit


def _blocks(kernel: Array, groups: int, count: int) -> Array:
    """From (X, i, (G, b, o)) to (X, (b, i), (G, b, o)), zero outside of the groups' own blocks."""
    *extents, fine, coarse = kernel.shape
    split = kernel.reshape(*extents, 1, fine, groups // count, count, coarse // groups)
    own = jnp.where(_own(count), split, jnp.zeros((), kernel.dtype))
    return own.reshape(*extents, count * fine, coarse)


FORM = Form(
    "bundle",
    {
        "coarse": _to_data(guarded=True),
        "fine": _to_data(guarded=True),
        "kernel": to_kernel,
    },
    cannot=lambda p: p.dense or size(p) < 2,
    gathers=True,
    parts=_bundles,
    any_layout=True,
)
