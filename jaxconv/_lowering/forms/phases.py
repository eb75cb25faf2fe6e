"""Contractions to fine, rewritten as contractions to coarse.

With stride 1, the sum over t of K[t] * coarse[p + pad - dilation*t] is a convolution of the coarse
tensor with the reversed kernel: one flip.

With zeros between the coarse pixels, a larger stride is a stride of 1 as well, with many products
by zero. Without the zeros, each residue of p + pad modulo the stride meets only some of the taps.
Residues that meet equally many taps, at the same coarse pixels, are of one kind: one contraction of
stride 1, a phase, computes all residues of a kind, as further fine channels. An undilated axis has
at most two kinds, of k // stride taps and of one more, however large the stride. So a program has
few contractions.
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
from jaxconv._base.reshape import merge_groups, move_groups, pad, replace_axes, transpose
from jaxconv._lowering.forms import window
from jaxconv._lowering.problem import Call, Form, Problem

#: Contractions in one program; a dilated kernel may need more.
MAX_PARTS = 64

#: Residues of a depthwise contraction that have a contraction each. As channels, residues would be
#: a channel multiplier, which few forms are good at.
MAX_SEPARATE_RESIDUES = 16

#: Residues of all axes together: a plan looks at each residue.
MAX_RESIDUES = 1 << 16


# Stride 1.


def _exchange_roles(problem: Problem, axes: tuple[Axis, ...], fine: int) -> Problem:
    """Write a contraction to fine with stride 1 as a contraction to coarse."""
    geometry = replace(problem.geometry, axes=tuple(a.reversed() for a in axes))
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


def flip(coarse: Array, kernel: Array, call: Call) -> Array:
    """Contract to coarse by the reversed kernel."""
    return call.part(coarse, _reverse_kernel(kernel, call.geometry))


def _reverse_kernel(kernel: Array, geometry: Geometry) -> Array:
    """Reverse the kernel, and exchange its fine and coarse channels.

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
    parts=lambda p: (_exchange_roles(p, p.geometry.axes, p.fine_channels),),
    layouts="any",
    isolated=False,
    is_its_part=True,
)


# Larger strides, as stride 1 over a coarse tensor with zeros between its pixels.


def spread_problem(problem: Problem) -> tuple[Problem, ...]:
    axes = tuple(replace(a, coarse=a.span, stride=1) for a in problem.geometry.axes)
    return (_exchange_roles(problem, axes, problem.fine_channels),)


def spread(coarse: Array, kernel: Array, call: Call) -> Array:
    """Spread the pixels apart, then contract to coarse by the reversed kernel."""
    geometry = call.geometry
    spatial = zip(geometry.data.spatial, geometry.axes, strict=True)
    return flip(pad(coarse, {at: (0, 0, a.stride - 1) for at, a in spatial}), kernel, call)


SPREAD = Form(
    "spread",
    {"fine": spread},
    cannot=lambda p: not p.strided,
    parts=spread_problem,
    layouts="any",
    is_its_part=True,
)


# Larger strides, by residues.


@dataclass(frozen=True)
class Kind:
    """Residues of one axis that meet equally many taps, at the same coarse pixels."""

    residues: tuple[int, ...]
    #: the first tap of each residue; further taps are `step` apart
    first: tuple[int, ...]
    step: int
    #: the axis of the contraction with stride 1, which has the fine pixels of one residue
    axis: Axis

    @property
    def taps(self) -> np.ndarray[Any, Any]:
        """The taps of each residue."""
        return np.add.outer(self.first, self.step * np.arange(self.axis.kernel))


@lru_cache(maxsize=1024)
def find_kinds(axis: Axis, separate: bool = False) -> list[Kind]:
    """Find the kinds of residues of an axis; if `separate`, each residue is a kind.

    Fine pixel p is at p + pad_low = stride*a + r, which is place a of residue r. The pixel meets
    taps t with dilation*t = r modulo the stride, at coarse pixels a - (dilation*t - r) / stride.
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
        key = (count, back, r if separate else None)
        kinds.setdefault(key, []).append((r, t))
    return [
        Kind(
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


Kinds = tuple[list[Kind], ...]


def _kinds_of_axes(problem: Problem) -> Kinds:
    axes = problem.geometry.axes
    separate = problem.depthwise and math.prod(a.stride for a in axes) <= MAX_SEPARATE_RESIDUES
    return tuple(find_kinds(axis, separate) for axis in axes)


def _combine_kinds(kinds: Kinds) -> Iterator[tuple[Kind, ...]]:
    """Combine one kind for each axis, all with taps: each combination is a contraction."""
    return (choice for choice in product(*kinds) if all(kind.axis.kernel for kind in choice))


def split_phases(problem: Problem) -> tuple[Problem, ...]:
    problem = replace(problem, phase=True)
    return tuple(
        _exchange_roles(
            problem,
            tuple(kind.axis for kind in choice),
            problem.fine_channels * math.prod(len(kind.residues) for kind in choice),
        )
        for choice in _combine_kinds(_kinds_of_axes(problem))
    )


def phases(coarse: Array, kernel: Array, call: Call) -> Array:
    """Compute a contraction for each combination of kinds, and interleave the results."""
    problem, numerics = call.problem, call.numerics
    geometry = problem.geometry
    kinds, rank, groups = _kinds_of_axes(problem), geometry.rank, geometry.groups
    part = dict(zip(_combine_kinds(kinds), call.parts, strict=True))

    def compute(choice: tuple[Kind, ...]) -> Array:
        """Compute (N, a1, r1, a2, r2, ..., C): place a of residue r, for each axis."""
        counts = tuple(len(kind.residues) for kind in choice)
        places = tuple(kind.axis.fine for kind in choice)
        if choice not in part:
            pairs = (n for pair in zip(places, counts, strict=True) for n in pair)
            shape = (coarse.shape[0], *pairs, groups * problem.fine_channels)
            return meshes.vary_alike(jnp.zeros(shape, numerics.dtype), coarse, kernel)[0]
        weights = kernel
        for n, kind in enumerate(choice):
            weights = jnp.moveaxis(_taps_by_residue(weights, kind, n), n, rank + n)
        weights = replace_axes(weights, rank, rank + 1, (math.prod(weights.shape[rank:-1]),))
        out = part[choice](coarse, _reverse_kernel(weights, geometry))
        out = replace_axes(out, rank + 1, 1, (groups, *counts, problem.fine_channels))
        # from (N, a1, a2, ..., g, r1, r2, ..., i)
        behind = [at for n in range(rank) for at in (1 + n, rank + 2 + n)]
        order = (0, *behind, rank + 1, 2 * rank + 2)
        out = transpose(out, order, kept=1 if problem.partitioned else 0)
        return merge_groups(out)

    def interleave(choice: tuple[Kind, ...]) -> Array:
        """Put together the results of chosen kinds, for all residues of the axes after these."""
        n = len(choice)
        if n == rank:
            return compute(choice)
        at = 2 + 2 * n
        out = jnp.concatenate([interleave((*choice, kind)) for kind in kinds[n]], at)
        order = [r for kind in kinds[n] for r in kind.residues]
        if order != sorted(order):
            out = jnp.take(out, np.argsort(order), at, mode="clip")
        return out

    out = interleave(())
    for n, axis in enumerate(geometry.axes):
        # Place a of residue r is pixel stride*a + r; the first `low` pixels are padding.
        out = replace_axes(out, 1 + n, 2, (out.shape[1 + n] * axis.stride,))
        low = axis.pad_low % axis.stride
        out = lax.slice_in_dim(out, low, low + axis.fine, axis=1 + n)
    return out


def _taps_by_residue(kernel: Array, kind: Kind, n: int) -> Array:
    """Split axis n of a kernel into residues, and the taps of each residue."""
    if len(kind.first) > MAX_SEPARATE_RESIDUES:
        return jnp.take(kernel, kind.taps, n, mode="clip")
    last = kind.step * (kind.axis.kernel - 1) + 1
    taps = [window.slice_box(kernel, [range(t, t + last, kind.step)], [n]) for t in kind.first]
    return jnp.stack(taps, n)


def _too_many(problem: Problem) -> bool:
    """Whether strides are far larger than the fine tensor, or the contractions too many."""
    axes = problem.geometry.axes
    if any(a.stride > 2 * a.fine for a in axes) or math.prod(a.stride for a in axes) > MAX_RESIDUES:
        return True
    return sum(1 for _ in _combine_kinds(_kinds_of_axes(problem))) > MAX_PARTS


PHASES = Form("phases", {"fine": phases}, cannot=_too_many, parts=split_phases)
