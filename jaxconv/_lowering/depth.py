"""Strides that divide the kernel become channels: k taps, s apart, are k / s taps and stride 1.

Place s*a + r of the fine axis and tap s*b + r of the kernel are place a and tap b of channel
(r, i), since a window that starts at s*q reads with tap s*b + r the place s*(q + b) + r. To the
fine tensor, that is one convolution instead of a phase for each residue r. To the kernel, it is
fewer taps of more channels, and along the last axis no element moves.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax.numpy as jnp
from jax import lax

from jaxconv._geometry import Geometry
from jaxconv._lowering import window
from jaxconv._lowering.apart import apart
from jaxconv._reshape import replace_axes


@apart
def to_fine(
    coarse: Any, kernel: Any, *, geometry: Geometry, contract: Callable[..., Any], **params: Any
) -> Any:
    """Channels-last, of one group, along all axes."""
    strides = [a.stride for a in geometry.axes]
    kernel = _folded(kernel, 0, strides)
    out = contract("fine", coarse, kernel, geometry=_inner(geometry, strides), **params)
    out = _unfolded(out, 1, strides)
    crops = [(0, 0, 0), *((-a.pad_low, -a.pad_high, 0) for a in geometry.axes), (0, 0, 0)]
    return lax.pad(out, jnp.zeros((), out.dtype), crops)


def to_kernel(
    fine: Any, coarse: Any, *, geometry: Geometry, contract: Callable[..., Any], **params: Any
) -> Any:
    """Channels-last, of one group, along the last axis."""
    strides = [1] * (geometry.rank - 1) + [geometry.axes[-1].stride]
    fine = _folded(window.padded(fine, geometry), 1, strides)
    out = contract("kernel", fine, coarse, geometry=_inner(geometry, strides), **params)
    return _unfolded(out, 0, strides)


def _inner(geometry: Geometry, strides: list[int]) -> Geometry:
    """With these strides folded, and the fine tensor padded to what is read."""
    axes = (
        replace(
            a,
            fine=(a.span - 1 + a.extent) // s,
            kernel=a.kernel // s,
            stride=a.stride // s,
            pad_low=0,
        )
        for a, s in zip(geometry.axes, strides, strict=True)
    )
    return replace(geometry, axes=tuple(axes))


def _folded(x: Any, first: int, strides: list[int]) -> Any:
    """(X1, X2, ..., i), X1 being axis `first`, to (X1/s1, X2/s2, ..., (s1, s2, ..., i))."""
    rank = len(strides)
    for at, s in reversed(list(enumerate(strides, first))):
        x = replace_axes(x, at, 1, (x.shape[at] // s, s))
    residues = [first + 1 + 2 * n for n in range(rank)]
    x = jnp.moveaxis(x, residues, range(first + rank, first + 2 * rank))
    channels = x.shape[first + 2 * rank] * math.prod(strides)
    return replace_axes(x, first + rank, rank + 1, (channels,))


def _unfolded(x: Any, first: int, strides: list[int]) -> Any:
    """The reverse."""
    rank = len(strides)
    channels = x.shape[first + rank] // math.prod(strides)
    x = replace_axes(x, first + rank, 1, (*strides, channels))
    residues = [first + 1 + 2 * n for n in range(rank)]
    x = jnp.moveaxis(x, range(first + rank, first + 2 * rank), residues)
    for at, s in enumerate(strides, first):
        x = replace_axes(x, at, 2, (x.shape[at] * s,))
    return x
