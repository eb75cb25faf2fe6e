"""Contractions to fine, rewritten as contractions to coarse.

With stride 1, the sum over t of K[t] * coarse[p + pad - dilation*t] is a convolution of the coarse
tensor with the reversed kernel: one flip.

With larger strides, each residue of p + pad modulo the stride meets only some of the taps. Residues
that meet equally many taps, at the same coarse pixels, are alike: one contraction of stride 1
computes them all, with the residues as further fine channels. An undilated axis has two kinds of
residues, of k // stride taps and of one more, however large its stride. So a program has few
contractions.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxconv._base import meshes
from jaxconv._base.geometry import Axis, Geometry, KernelLayout
from jaxconv._base.reshape import move_groups, replace_axes
from jaxconv._lowering.form import Form, Parts
from jaxconv._lowering.problem import Numerics, Problem

#: Most contractions in one program; a dilated kernel may need more.
MOST = 64

#: Most residues of a depthwise contraction that have one contraction each. As channels, they would
#: be a channel multiplier, which few forms are good at.
MOST_APART = 16

#: Most residues of all axes together: a plan looks at each.
MOST_RESIDUES = 1 << 16


# Stride 1.


def _flipped(problem: Problem) -> tuple[Problem, ...]:
    return (_as_coarse(problem, problem.geometry.axes, problem.fine_channels),)


def _as_coarse(problem: Problem, axes: tuple[Axis, ...], fine: int) -> Problem:
    """A contraction to fine with stride 1 as one to coarse: fine and coarse change roles."""
    flipped = tuple(
        Axis(a.coarse, a.kernel, a.fine, 1, a.dilation, a.extent - 1 - a.pad_low) for a in axes
    )
    geometry = replace(problem.geometry, axes=flipped)
    if problem.dense:
        coarse, fine_at, spatial = geometry.kernel
        geometry = replace(geometry, kernel=KernelLayout(fine_at, coarse, spatial))
    return replace(
        problem,
        result="coarse",
        geometry=geometry,
        fine_channels=problem.coarse_channels,
        coarse_channels=fine,
    )


def flip(
    coarse: Array,
    kernel: Array,
    *,
    problem: Problem,
    numerics: Numerics,
    parts: Parts,
) -> Array:
    """One contraction to coarse by the reversed kernel."""
    geometry = problem.geometry
    (part,) = parts
    return part(coarse, _turned(kernel, geometry), numerics)


def _turned(kernel: Array, geometry: Geometry) -> Array:
    """The kernel reversed, with its fine and coarse channels exchanged.

    With one group, the layout of the part exchanges the channels instead.
    """
    layout = geometry.kernel
    if geometry.groups > 1:
        kernel = move_groups(kernel, geometry.groups, layout.coarse, layout.fine)
        kernel = jnp.swapaxes(kernel, layout.coarse, layout.fine)
    return lax.rev(kernel, layout.spatial)


FLIP = Form(
    "flip",
    {"fine": flip},
    cannot=lambda p: p.strided,
    parts=_flipped,
    any_layout=True,
    isolated=(),
)


# Larger strides.


@dataclass(frozen=True)
class Alike:
    """Residues of one axis that meet the coarse tensor alike."""

    residues: tuple[int, ...]
    #: the first tap of each residue; its others are `step` apart
    first: tuple[int, ...]
    step: int
    #: the axis of the contraction with stride 1: its fine pixels are those of one residue
    axis: Axis

    @property
    def taps(self) -> np.ndarray[Any, Any]:
        """The taps of each residue."""
        return np.add.outer(self.first, self.step * np.arange(self.axis.kernel))


@lru_cache(maxsize=1024)
def alike(axis: Axis, apart: bool = False) -> list[Alike]:
    """The residues of fine pixels modulo the stride, in kinds; if `apart`, one by one.

    Fine pixel p is at p + pad_low = stride*a + r, which is place a of residue r. It meets the taps
    t with dilation*t = r modulo the stride, at coarse pixels a - (dilation*t - r) / stride.
    """
    stride, dilation = axis.stride, axis.dilation
    start, stop = axis.pad_low // stride, (axis.pad_low + axis.fine - 1) // stride + 1
    shared = math.gcd(stride, dilation)
    step, apart_by = stride // shared, dilation // shared
    kinds: dict[tuple[int, int, int | None], list[tuple[int, int]]] = {}
    for r in range(stride):
        # The first tap with dilation*t = r modulo the stride, if there is any.
        t = r // shared * pow(apart_by, -1, step) % step if r % shared == 0 else axis.kernel
        count = len(range(t, axis.kernel, step))
        back = (dilation * t - r) // stride if count else 0
        key = (count, back, r if apart else None)
        kinds.setdefault(key, []).append((r, t))
    return [
        Alike(
            tuple(r for r, _ in members),
            tuple(t for _, t in members) if count else (),
            step,
            Axis(
                fine=stop - start,
                kernel=count,
                coarse=axis.coarse,
                stride=1,
                dilation=apart_by if count > 1 else 1,
                pad_low=start - back,
            ),
        )
        for (count, back, _), members in kinds.items()
    ]


Kinds = tuple[list[Alike], ...]


def _kinds(problem: Problem) -> Kinds:
    axes = problem.geometry.axes
    apart = problem.depthwise and math.prod(a.stride for a in axes) <= MOST_APART
    return tuple(alike(axis, apart) for axis in axes)


def _chosen(kinds: Kinds) -> Iterator[tuple[Alike, ...]]:
    """The contractions: combinations of one kind for each axis, all with taps."""
    return (choice for choice in product(*kinds) if all(kind.axis.kernel for kind in choice))


def _phases(problem: Problem) -> tuple[Problem, ...]:
    problem = replace(problem, phase=True)
    return tuple(
        _as_coarse(
            problem,
            tuple(kind.axis for kind in choice),
            problem.fine_channels * math.prod(len(kind.residues) for kind in choice),
        )
        for choice in _chosen(_kinds(problem))
    )


def phases(
    coarse: Array,
    kernel: Array,
    *,
    problem: Problem,
    numerics: Numerics,
    parts: Parts,
) -> Array:
    """A contraction for each combination of kinds, and the results interleaved."""
    geometry = problem.geometry
    kinds, rank, groups = _kinds(problem), geometry.rank, geometry.groups
    done = dict(zip(_chosen(kinds), parts, strict=True))

    def part(choice: tuple[Alike, ...]) -> Array:
        """The result as (N, a1, r1, a2, r2, ..., C): place a of residue r, for each axis."""
        counts = tuple(len(kind.residues) for kind in choice)
        places = tuple(kind.axis.fine for kind in choice)
        if choice not in done:
            pairs = (n for pair in zip(places, counts, strict=True) for n in pair)
            shape = (coarse.shape[0], *pairs, groups * problem.fine_channels)
            return meshes.vary_alike(jnp.zeros(shape, numerics.dtype), coarse, kernel)[0]
        weights = kernel
        for n, kind in enumerate(choice):
            weights = jnp.moveaxis(_by_residue(weights, kind, n), n, rank + n)
        weights = replace_axes(weights, rank, rank + 1, (math.prod(weights.shape[rank:-1]),))
        out = done[choice](coarse, _turned(weights, geometry), numerics)
        out = replace_axes(out, rank + 1, 1, (groups, *counts, problem.fine_channels))
        # from (N, a1, a2, ..., g, r1, r2, ..., i)
        behind = [at for n in range(rank) for at in (1 + n, rank + 2 + n)]
        out = lax.transpose(out, (0, *behind, rank + 1, 2 * rank + 2))
        return replace_axes(out, out.ndim - 2, 2, (groups * problem.fine_channels,))

    def together(choice: tuple[Alike, ...]) -> Array:
        """The results for the kinds chosen, and for all residues of the axes after these."""
        n = len(choice)
        if n == rank:
            return part(choice)
        at = 2 + 2 * n
        out = jnp.concatenate([together((*choice, kind)) for kind in kinds[n]], at)
        order = [r for kind in kinds[n] for r in kind.residues]
        if order != sorted(order):
            out = jnp.take(out, np.argsort(order), at, mode="clip")
        return out

    out = together(())
    for n, axis in enumerate(geometry.axes):
        # Place a of residue r is pixel stride*a + r; the first `low` of them are padding.
        out = replace_axes(out, 1 + n, 2, (out.shape[1 + n] * axis.stride,))
        low = axis.pad_low % axis.stride
        out = lax.slice_in_dim(out, low, low + axis.fine, axis=1 + n)
    return out


def _by_residue(kernel: Array, kind: Alike, n: int) -> Array:
    """The taps of each residue along axis n, with the residues as an axis before it."""
    if len(kind.first) > MOST_APART:
        return jnp.take(kernel, kind.taps, n, mode="clip")
    last = kind.step * (kind.axis.kernel - 1) + 1
    taps = [lax.slice_in_dim(kernel, t, t + last, kind.step, axis=n) for t in kind.first]
    return jnp.stack(taps, n)


def _too_many(problem: Problem) -> bool:
    """Whether strides are far larger than the fine tensor, or the contractions too many."""
    axes = problem.geometry.axes
    if (
        any(a.stride > 2 * a.fine for a in axes)
        or math.prod(a.stride for a in axes) > MOST_RESIDUES
    ):
        return True
    return sum(1 for _ in _chosen(_kinds(problem))) > MOST


PHASES = Form("phases", {"fine": phases}, cannot=_too_many, parts=_phases)
