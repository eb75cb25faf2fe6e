"""Contractions to fine of large strides: residues that meet the coarse tensor alike, as channels.

`phases` has a piece of the program for each residue by the strides, of which an upsampling by 16
in two dimensions has 256. Nearly all of them meet the same places of the coarse tensor, each with
taps of its own. So those are one contraction of stride 1, with the residues as more fine channels.
(Where the strides divide the kernel, `depth` is a single one, and gathers no taps.)
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxconv._geometry import Axis, Geometry
from jaxconv._lowering.phases import Phase, phase
from jaxconv._reshape import reorder, replace_axes

Residues = dict[int, Phase]  # of one axis


def to_fine(
    coarse: Any, kernel: Any, *, geometry: Geometry, contract: Callable[..., Any], **params: Any
) -> Any:
    """Spell with `contract`, to fine, in the same layout of the data."""
    there = replace(geometry, kernel=geometry.canonical().kernel)
    kernel = reorder(kernel, geometry.layout("kernel"), there.layout("kernel"))

    def interleave(chosen: tuple[Residues, ...]) -> Any:
        """All residues of the axes that are not chosen yet."""
        if len(chosen) == geometry.rank:
            return _together(coarse, kernel, chosen, there, contract, **params)
        axis, alike = geometry.axes[len(chosen)], _alike(geometry.axes[len(chosen)])
        # Each axis before has its residues right behind it, and so has this one.
        at = geometry.data.spatial[len(chosen)] + len(chosen)
        whole = jnp.concatenate([interleave((*chosen, some)) for some in alike], at + 1)
        order = [r for some in alike for r in some]
        if order != sorted(order):
            whole = jnp.take(whole, np.argsort(order), at + 1, mode="clip")
        whole = replace_axes(whole, at, 2, (whole.shape[at] * axis.stride,))
        return lax.slice_in_dim(whole, 0, axis.fine, axis=at)

    return interleave(())


def contractions(geometry: Geometry) -> int:
    """How many there are: undilated, up to three for each axis, and with dilations up to all."""
    return math.prod(len(_alike(axis)) for axis in geometry.axes)


def _alike(axis: Axis) -> list[Residues]:
    """The residues of an axis by what they meet: undilated, up to three intervals of them."""
    alike: dict[Axis, Residues] = {}
    for r in range(axis.stride):
        found = phase(axis, r)
        alike.setdefault(found.axis, {})[r] = found
    return list(alike.values())


def _together(
    coarse: Any,
    kernel: Any,
    chosen: tuple[Residues, ...],
    geometry: Geometry,
    contract: Callable[..., Any],
    **params: Any,
) -> Any:
    """One contraction for residues of each axis, which stand behind their axes in its result."""
    rank, channel, spatial = geometry.rank, geometry.data.channel, geometry.data.spatial
    counts = tuple(len(some) for some in chosen)
    for n, (some, axis) in enumerate(zip(chosen, geometry.axes, strict=True)):
        met = np.array([range(axis.kernel)[p.taps] for p in some.values()], int)
        kernel = jnp.take(kernel, met, n, mode="clip")  # the residues, and the taps of each
        kernel = jnp.moveaxis(kernel, n, rank + n)
    kernel = replace_axes(kernel, rank, rank + 1, (math.prod(kernel.shape[rank:-1]),))
    axes = tuple(next(iter(some.values())).axis for some in chosen)
    unstrided = replace(geometry, axes=axes)
    if all(a.kernel for a in axes):
        out = contract("fine", coarse, kernel, geometry=unstrided, **params)
    else:
        out = jnp.zeros(unstrided.shape("fine", coarse.shape, kernel.shape), params["dtype"])
    channels = out.shape[channel] // math.prod(counts)
    groups = geometry.groups
    out = replace_axes(out, channel, 1, (groups, *counts, channels // groups))
    first = channel < spatial[0]
    behind = [at + n + 1 + first for n, at in enumerate(spatial)]
    out = jnp.moveaxis(out, range(channel + 1, channel + 1 + rank), behind)
    return replace_axes(out, channel if first else channel + rank, 2, (channels,))
