"""Merge, split and reorder axes, on meshes with explicit axes too."""

from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.sharding import NamedSharding

from jaxconv import _sharding


def replace_axes(x: Any, axis: int, count: int, extents: tuple[Any, ...]) -> Any:
    """Reshape `count` axes from `axis` on into `extents`.

    Of explicit shardings, that of the major axis is kept, on the major new one.
    """
    shape = (*x.shape[:axis], *extents, *x.shape[axis + count :])
    typed = _sharding.explicit(jax.typeof(x))
    if typed is None:
        return lax.reshape(x, shape)
    kept = [*typed.spec[: axis + 1], *[None] * (len(extents) - 1), *typed.spec[axis + count :]]
    spec = _sharding.divisible(typed.mesh, shape, dict(enumerate(kept)))
    return lax.reshape(x, shape, out_sharding=NamedSharding(typed.mesh, spec))


def move_groups(x: Any, groups: int, source: int, target: int) -> Any:
    """From (g, a) on the source axis and b on the target axis to a and (g, b)."""
    if groups == 1:
        return x
    x = replace_axes(x, source, 1, (groups, x.shape[source] // groups))
    x = jnp.moveaxis(x, source, target)
    return replace_axes(x, target, 2, (groups * x.shape[target + 1],))


def split_groups(x: Any, groups: int, axis: int = -1) -> Any:
    """From (g, a) on an axis to g, a on two."""
    return replace_axes(x, axis % x.ndim, 1, (groups, x.shape[axis] // groups))


def merge_groups(x: Any) -> Any:
    """From g, a on the last two axes to (g, a) on the last."""
    return replace_axes(x, x.ndim - 2, 2, (x.shape[-2] * x.shape[-1],))


def reorder(x: Any, source: tuple[int, ...], target: tuple[int, ...]) -> Any:
    """Move each axis from its place in one layout to its place in another."""
    place = dict(zip(target, source, strict=True))
    return lax.transpose(x, [place[axis] for axis in range(x.ndim)])
