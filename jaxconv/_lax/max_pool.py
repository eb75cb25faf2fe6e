"""The gradient of a max pool, which XLA:CPU computes one element at a time.

lax has a primitive for it, select_and_scatter_add: of each window, the element that the pool took
gets the window's cotangent. Here, along each axis,

    chosen[q] = the tap t of window q, at stride*q + t - low, whose element the pool took
    out[stride*m + r - low] = sum_j  cotangent[m - j]  where chosen[m - j] == stride*j + r

for r in 0..stride-1 and j in 0..ceil(taps/stride)-1. So all loops run over contiguous elements,
and the last axis may be a channel or a place. Of the windows that took one element, cotangents are
summed in the order of lax. 2-byte floats are summed in float32; lax rounds each sum.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any

import jax.numpy as jnp
from jax import Array, lax

from jaxconv._base.dtypes import ACCUMULATION
from jaxconv._base.environment import Steps
from jaxconv._base.typing import Shape, Typed
from jaxconv._lax.from_lax import EMPTY

#: lax's primitive.
PRIMITIVE = lax.select_and_scatter_add_p

#: Most taps of a window, and half for windows that overlap. With more, lax's loop compiles faster.
MAX_TAPS = 64

#: Most numbers that tell the taps of a window and the gaps between windows apart.
MAX_NUMBERS = 1 << 30

#: Why a pool stays with lax, and how else it is computed.
SYMBOLIC = "a symbolic extent"
MANY_TAPS = f"lax compiles faster: over {MAX_TAPS} taps, or {MAX_TAPS // 2} of windows that overlap"
FAR = "windows far apart"
ONE_DEVICE = "a max pool in a program that is exported, or split over devices"
STEPS: Steps = (("max pool gradient", "whole rows at a time; XLA's loop takes single elements"),)


@dataclass(frozen=True)
class MaxPool:
    """The windows of a max pool, with one entry for each axis of the operand."""

    taps: Shape
    strides: Shape
    low: Shape  # pads before the operand

    @property
    def overlaps(self) -> Shape:
        """Over how many neighbours of a window, itself included, its elements are spread."""
        return tuple(-(-k // s) for k, s in zip(self.taps, self.strides, strict=True))

    def number(self, tap: Sequence[Any]) -> Any:
        """Number a place of a window, or a place in the gap after a window."""
        number: Any = 0
        for place, s, j in zip(tap, self.strides, self.overlaps, strict=True):
            number = number * s * j + place
        return number


def as_max_pool(operands: Sequence[Typed], **params: Any) -> MaxPool | str:
    """Find the windows of a max pool's gradient, or why it stays with lax.

    The parameters are those of `jax.lax.select_and_scatter_add_p`.
    """
    known = {"select_prim", "window_dimensions", "window_strides", "padding"}
    if unknown := sorted(params.keys() - known):
        return f"unknown parameter {unknown[0]}"
    cotangent, operand = operands
    taps, strides = params["window_dimensions"], params["window_strides"]
    if params["select_prim"] is not lax.ge_p:
        return f"a pool by {params['select_prim']}"
    if operand.dtype not in ACCUMULATION or cotangent.dtype != operand.dtype:
        return f"operands of type {cotangent.dtype} and {operand.dtype}"
    if not all(isinstance(n, int) for n in (*operand.shape, *cotangent.shape)):
        return SYMBOLIC
    if 0 in (*operand.shape, *cotangent.shape):
        return EMPTY
    places = zip(cotangent.shape, taps, strides, strict=True)
    strides = tuple(s if n > 1 else k for n, k, s in places)  # no step beside a single window
    pool = MaxPool(tuple(taps), strides, tuple(low for low, _ in params["padding"]))
    if math.prod(taps) > (MAX_TAPS // 2 if max(pool.overlaps) > 1 else MAX_TAPS):
        return MANY_TAPS
    if math.prod(s * j for s, j in zip(strides, pool.overlaps, strict=True)) > MAX_NUMBERS:
        return FAR
    return pool


def compute(pool: MaxPool, cotangent: Array, operand: Array) -> Array:
    """Compute the gradient of a max pool, given that of its result and its operand."""
    from jaxconv._lowering.forms.blocks import are_small, call_isolated

    choose = partial(_choose, pool, cotangent.shape)
    spread = partial(_spread, pool, operand.shape)
    if are_small(cotangent, operand):
        return spread(cotangent, choose(operand))
    # Overlapping windows, channels last, compile fused in 0.7 of the time. Others run slower fused.
    overlap = max(pool.overlaps) > 1
    fused = overlap and pool.overlaps[-1] == 1
    chosen = choose(operand) if fused else call_isolated(choose, operand)
    return spread(cotangent, chosen) if overlap else call_isolated(spread, cotangent, chosen)


def _choose(pool: MaxPool, windows: Shape, operand: Array) -> Array:
    """Number the taps that lax chooses: the first of equal ones, and what follows a NaN."""
    operand = operand.astype(ACCUMULATION[operand.dtype])
    frames = [n + j - 1 for n, j in zip(windows, pool.overlaps, strict=True)]
    ends = zip(operand.shape, pool.low, frames, pool.strides, strict=True)
    pads = [(low, m * s - n - low, 0) for n, low, m, s in ends]
    framed = lax.pad(operand, jnp.array(-jnp.inf, operand.dtype), pads)
    framed = framed.reshape([n for frame in zip(frames, pool.strides, strict=True) for n in frame])
    largest = jnp.full(windows, -jnp.inf, operand.dtype)
    chosen = jnp.zeros(windows, jnp.int32)  # the number of the first tap
    for tap in itertools.product(*map(range, pool.taps)):
        at = [divmod(t, s) for t, s in zip(tap, pool.strides, strict=True)]
        first = [n for j, r in at for n in (j, r)]
        last = [n for w, (j, r) in zip(windows, at, strict=True) for n in (w + j, r + 1)]
        value = lax.slice(framed, first, last).reshape(windows)
        stays = largest >= value
        chosen = jnp.where(stays, chosen, jnp.int32(pool.number(tap)))
        largest = jnp.where(stays, largest, value)
    return chosen


def _spread(pool: MaxPool, shape: Shape, cotangent: Array, chosen: Array) -> Array:
    """Sum the cotangents of the windows that took an element, for each element."""
    dtype, overlaps, strides = cotangent.dtype, pool.overlaps, pool.strides
    frames = [n + j - 1 for n, j in zip(cotangent.shape, overlaps, strict=True)]
    full = [n for frame in zip(frames, strides, strict=True) for n in frame]
    zero = jnp.zeros((), ACCUMULATION[dtype])
    around = [(j - 1, j - 1, 0) for j in overlaps]
    cotangent = lax.pad(cotangent.astype(zero.dtype), zero, around)
    chosen = lax.pad(chosen, jnp.int32(-1), around)
    place = pool.number([lax.broadcasted_iota(jnp.int32, full, a) for a in range(1, len(full), 2)])
    terms = []
    for back in itertools.product(*(range(j - 1, -1, -1) for j in overlaps)):
        first = [j - 1 - b for j, b in zip(overlaps, back, strict=True)]
        last = [n + m for n, m in zip(first, frames, strict=True)]
        window, gradient = (
            lax.broadcast_in_dim(lax.slice(x, first, last), full, range(0, len(full), 2))
            for x in (chosen, cotangent)
        )
        start = pool.number([s * b for s, b in zip(strides, back, strict=True)])
        terms.append(jnp.where(window == place + start, gradient, zero))
    ends = zip(shape, pool.low, frames, strides, strict=True)
    out = reduce(lax.add, terms).reshape([m * s for m, s in zip(frames, strides, strict=True)])
    pads = [(-low, n + low - m * s, 0) for n, low, m, s in ends]
    return lax.pad(out, zero, pads).astype(dtype)
