"""Images in blocks, each with the halo that its windows reach into: for data split over devices.

A padded tensor has more rows than its result, so that XLA splits both differently, and devices
exchange nearly all they have for each tap. As many blocks as devices split as the rows did, and
each tap's slice stays within a block: neighbours exchange halos only, and once. A batch that is
split exchanges nothing.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import accumulate, product
from typing import Any

import jax.numpy as jnp
from jax import lax

from jaxconv._geometry import UNIT, Axis, Geometry
from jaxconv._lowering import window
from jaxconv._lowering.apart import apart


def counts(geometry: Geometry, devices: int) -> tuple[int, ...]:
    """How many blocks along each axis: as many as an even split of it may have parts, or 1."""
    if any(min(a.pad_low, a.pad_high) < 0 for a in geometry.axes):
        return (1,) * geometry.rank
    return tuple(_count(a, devices) for a in geometry.axes)


def _count(a: Axis, devices: int) -> int:
    blocks = math.gcd(a.fine, devices)
    same = a.stride == 1 and a.fine == a.coarse
    # A halo of more rows than a device has would be all that its neighbour has.
    return blocks if same and 1 < a.extent <= a.fine // blocks + 1 else 1


def to_coarse(fine: Any, kernel: Any, *, geometry: Geometry, **params: Any) -> Any:
    """Channels last, halos and their sum in one branch: apart, it takes up to twice as long.

    Channels first, each in its own: a loop that knows which neighbours are in other blocks takes
    mostly 1.9 to 2.5 times as long, of 14 x 14 images with 3x3 0.7 (AMD, AVX-512).
    """
    spelling = _to_coarse if geometry.data.channel == 1 else apart(_to_coarse)
    return spelling(fine, kernel, geometry=geometry, **params)


def _to_coarse(
    fine: Any,
    kernel: Any,
    *,
    geometry: Geometry,
    devices: int,
    contract: Callable[..., Any],
    **params: Any,
) -> Any:
    """Along the blocks, which are more spatial axes, the kernel has one tap."""
    shape = geometry.shape("coarse", fine.shape, kernel.shape)
    blocks = counts(geometry, devices)
    fine = _with_halos(fine, geometry=geometry, blocks=blocks)
    inner = window.of_padded(_in_blocks(geometry, blocks))
    kernel = kernel.reshape(*(a.kernel for a in inner.axes), *kernel.shape[-2:])
    out = contract("coarse", fine, kernel, geometry=inner, devices=devices, **params)
    return out.reshape(shape)


def _in_blocks(geometry: Geometry, blocks: tuple[int, ...]) -> Geometry:
    """Of an axis in several blocks, those are an axis, and then the places of each."""
    axes: list[Axis] = []
    for count, a in zip(blocks, geometry.axes, strict=True):
        if count > 1:
            axes.append(replace(UNIT, fine=count, coarse=count))
        axes.append(replace(a, fine=a.fine // count, coarse=a.coarse // count))
    return replace(geometry, axes=tuple(axes)).canonical(geometry.data.channel == 1)


@apart
def _with_halos(fine: Any, *, geometry: Geometry, blocks: tuple[int, ...]) -> Any:
    """The padded fine tensor in overlapping blocks."""
    inner = _in_blocks(geometry, blocks)
    axes, spatial = inner.axes, inner.data.spatial
    extents = (a.fine for a in axes)
    rest = fine.shape[geometry.data.spatial[-1] + 1 :]
    own = fine.reshape(*fine.shape[: spatial[0]], *extents, *rest)
    ends = accumulate(1 + (count > 1) for count in blocks)
    split = [end - 1 for end, count in zip(ends, blocks, strict=True) if count > 1]
    padded = window.padded(own, inner)
    for steps in product((0, 1, -1), repeat=len(split)):
        starts, limits = [0] * own.ndim, list(own.shape)
        place, shift = [0] * own.ndim, [(0, 0, 0)] * own.ndim
        for at, a in zip(spatial, axes, strict=True):
            place[at] = a.pad_low
        for step, n in zip(steps, split, strict=True):
            at, a = spatial[n], axes[n]
            shift[at - 1] = (step, -step, 0)
            if step == 1:  # the end of the block before
                starts[at], place[at] = a.fine - a.pad_low, 0
            if step == -1:  # the start of the next one
                limits[at], place[at] = a.pad_high, a.pad_low + a.fine
        if any(steps):
            halo = lax.pad(lax.slice(own, starts, limits), jnp.zeros((), own.dtype), shift)
            padded = lax.dynamic_update_slice(padded, halo, place)
    return padded
