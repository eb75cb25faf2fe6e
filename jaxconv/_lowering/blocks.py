"""Images in blocks, each with the halo that its windows reach into: for data split over devices.

A padded tensor has more rows than its result, so that XLA splits both differently, and devices
exchange nearly all they have for each tap. As many blocks as devices split as the rows did, and
each tap's slice stays within a block: neighbours exchange halos only, and once. A batch that is
split exchanges nothing.

Channels first, the last axis has the neighbours in memory, which make vectors, and blocks would
make it short. There, what each tap reads is a copy, shifted by a halo at most. Of a batch that all
devices divide, which they will have split, such copies would take 2 to 11 times as long, and if
only rows are split, 1.3 to 3 times.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from typing import Any

import jax.numpy as jnp
from jax import lax

from jaxconv._geometry import Axis, Geometry
from jaxconv._lowering import window
from jaxconv._lowering.apart import apart

#: Of more taps along the last axis, too many copies would be written.
MOST_COPIES = 9


def counts(geometry: Geometry, batch: Any, devices: int) -> tuple[int, ...]:
    """How many blocks along each axis: as many as an even split of it may have parts, or 1."""
    axes = geometry.axes
    if any(min(a.pad_low, a.pad_high) < 0 for a in axes):
        return (1,) * len(axes)
    found = [_count(a, devices) for a in axes]
    divided = not isinstance(batch, int) or batch % devices == 0
    if _in_rows(geometry) and (divided or axes[-1].kernel > MOST_COPIES):
        found[-1] = 1
    return tuple(found)


def _in_rows(geometry: Geometry) -> bool:
    """Whether the last of several axes has the neighbours in memory."""
    return geometry.data.channel == 1 and geometry.rank > 1


def _count(a: Axis, devices: int) -> int:
    blocks = math.gcd(a.fine, devices)
    same = a.stride == 1 and a.fine == a.coarse
    # A halo of more rows than a device has would be all that its neighbour has.
    return blocks if same and 1 < a.extent <= a.fine // blocks + 1 else 1


@apart
def to_coarse(
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
    blocks, last = counts(geometry, fine.shape[0], devices), geometry.axes[-1]
    copies = _in_rows(geometry) and blocks[-1] > 1
    if copies:
        whole = replace(last, kernel=1, dilation=1, pad_low=0)
        geometry = replace(geometry, axes=(*geometry.axes[:-1], whole))
        blocks = (*blocks[:-1], 1)
    fine, inner = _with_halos(fine, geometry, blocks)
    if copies:
        fine, inner = _with_copies(fine, inner, last)
    kernel = kernel.reshape(*(a.kernel for a in inner.axes), *kernel.shape[-2:])
    out = contract("coarse", fine, kernel, geometry=inner, devices=devices, **params)
    return out.reshape(shape)


def _with_halos(fine: Any, geometry: Geometry, blocks: tuple[int, ...]) -> tuple[Any, Geometry]:
    """The padded fine tensor in overlapping blocks, and what is left to do."""
    axes: list[Axis] = []
    split = []
    for count, a in zip(blocks, geometry.axes, strict=True):
        if count > 1:
            axes.append(Axis(fine=count, kernel=1, coarse=count, stride=1, dilation=1, pad_low=0))
            split.append(len(axes))
        axes.append(replace(a, fine=a.fine // count, coarse=a.coarse // count))
    inner = replace(geometry, axes=tuple(axes)).canonical(geometry.data.channel == 1)
    spatial = inner.data.spatial
    first = spatial[0]
    extents = (a.fine for a in axes)
    own = fine.reshape(*fine.shape[:first], *extents, *fine.shape[first + geometry.rank :])
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
    return padded, window.of_padded(inner)


def _with_copies(fine: Any, geometry: Geometry, last: Axis) -> tuple[Any, Geometry]:
    """What each tap along the last axis reads, along an axis before it."""
    shifts = [last.pad_low - last.dilation * tap for tap in range(last.kernel)]
    at = fine.ndim - 1
    same = [(0, 0, 0)] * at
    copies = [lax.pad(fine, jnp.zeros((), fine.dtype), [*same, (n, -n, 0)]) for n in shifts]
    taps = Axis(fine=last.kernel, kernel=last.kernel, coarse=1, stride=1, dilation=1, pad_low=0)
    axes = (*geometry.axes[:-1], taps, geometry.axes[-1])
    return jnp.stack(copies, at), replace(geometry, axes=axes).canonical(channels_first=True)
