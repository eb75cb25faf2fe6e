"""Merge, split, move and pad axes, on meshes with explicit axes too."""

import math
from collections.abc import Mapping, Sequence
from itertools import pairwise

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.sharding import NamedSharding

from jaxconv._base import meshes
from jaxconv._base.typing import Shape


def replace_axes(x: Array, axis: int, count: int, extents: Shape) -> Array:
    """Reshape `count` axes from `axis` on into `extents`.

    The major new axis keeps the explicit sharding of the major old axis.
    """
    shape = (*x.shape[:axis], *extents, *x.shape[axis + count :])
    typed = meshes.explicit(jax.typeof(x))
    if typed is None:
        return lax.reshape(x, shape)
    kept = [*typed.spec[: axis + 1], *[None] * (len(extents) - 1), *typed.spec[axis + count :]]
    spec = meshes.divisible_spec(typed.mesh, shape, dict(enumerate(kept)))
    return lax.reshape(x, shape, out_sharding=NamedSharding(typed.mesh, spec))


def move_groups(x: Array, groups: int, source: int, target: int) -> Array:
    """Move groups from (g, a) on the source axis to (g, b) on the target axis."""
    if groups == 1:
        return x
    x = split_groups(x, groups, source)
    x = jnp.moveaxis(x, source, target)
    return replace_axes(x, target, 2, (groups * x.shape[target + 1],))


def split_groups(x: Array, groups: int, axis: int = -1) -> Array:
    """Split an axis (g, a) into two axes g, a."""
    return replace_axes(x, axis % x.ndim, 1, (groups, x.shape[axis] // groups))


def merge_groups(x: Array) -> Array:
    """Merge the last two axes g, a into one axis (g, a)."""
    return replace_axes(x, x.ndim - 2, 2, (x.shape[-2] * x.shape[-1],))


def transpose(x: Array, order: Sequence[int], kept: int = 1) -> Array:
    """Transpose, with axes merged that stay neighbours, except the first `kept` axes.

    XLA:CPU of JAX 0.12 takes up to four times as long if they are not merged. The batch stays as it
    is where XLA splits a program over devices: it would gather a spatial axis that is split.
    """
    runs = [[order[0]]]
    for before, axis in pairwise(order):
        if axis == before + 1 and before >= kept:
            runs[-1].append(axis)
        else:
            runs.append([axis])
    source = sorted(runs)
    merged = lax.reshape(x, [math.prod(x.shape[axis] for axis in run) for run in source])
    moved = lax.transpose(merged, [source.index(run) for run in runs])
    return lax.reshape(moved, [x.shape[axis] for axis in order])


#: Elements before an axis, after, and between its elements; a number below 0 crops.
Ends = tuple[int, int, int]


def pad(x: Array, ends: Mapping[int, Ends]) -> Array:
    """Pad some axes with zeros."""
    config = [ends.get(axis, (0, 0, 0)) for axis in range(x.ndim)]
    return lax.pad(x, jnp.zeros((), x.dtype), config)
