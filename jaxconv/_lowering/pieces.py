"""Many taps, some at a time: a loop over pieces of the kernel, each a contraction of its own.

A grouped convolution has no fast form in XLA:CPU, and gathers a batch that is split over
devices. With few taps it is multiply-adds or dots instead. A program with one for each of many
taps would take too long to compile, and one loop over very many multiply-adds is slow. Of depthwise
channels only so many are taken at a time that what a piece reads stays in the cache.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxconv import _sharding
from jaxconv._geometry import Geometry
from jaxconv._lowering import cores, window
from jaxconv._lowering.apart import apart
from jaxconv._lowering.groups import at_most, equal_part
from jaxconv._reshape import replace_axes

#: As many taps as one piece has, of depthwise and of other groups. Of twice as many, a depthwise
#: 31 x 31 takes twice as long; of half as many, 17 x 17 with 16 channels a group does (AMD).
DEPTHWISE, OTHERS = 32, 64

#: As many channels as are taken together, depthwise, so that what a piece reads stays in a core's
#: first cache: 31 x 31, 512 channels, forward, 15, and all together 106; weights 16 and 28 (AMD).
TOGETHER = 128


@apart
def to_coarse(fine: Any, kernel: Any, *, geometry: Geometry, devices: int, **params: Any) -> Any:
    """The sum over pieces."""
    return _in_blocks(_to_coarse, fine, kernel, geometry=geometry, devices=devices, **params)


@apart
def to_kernel(fine: Any, coarse: Any, *, geometry: Geometry, devices: int, **params: Any) -> Any:
    """The pieces one after the other; the last overlaps its neighbour.

    A sum over devices in each step would wait for all of them. So a batch that may be split over
    devices has a sum for each of so many parts, and those are added up after the loop.
    """

    def whole(fine: Any, coarse: Any) -> Any:
        return _in_blocks(_to_kernel, fine, coarse, geometry=geometry, devices=devices, **params)

    batch = fine.shape[0]
    if devices == 1 or not isinstance(batch, int) or batch % devices:
        return whole(fine, coarse)
    parts = (replace_axes(x, 0, 1, (devices, batch // devices)) for x in (fine, coarse))
    return jnp.sum(jax.vmap(whole)(*parts), 0)


def _in_blocks(
    spelling: Callable[..., Any],
    first: Any,
    second: Any,
    *,
    geometry: Geometry,
    devices: int,
    **params: Any,
) -> Any:
    """Some channels after the other, in equal parts, unless they may be split over devices.

    All together if only much smaller parts were equal, as of a prime number of channels.
    """

    def some(groups: int, first: Any, second: Any) -> Any:
        inner = replace(geometry, groups=groups)
        return spelling(first, second, geometry=inner, devices=devices, **params)

    groups = geometry.groups
    large = equal_part(groups, TOGETHER) > TOGETHER // 4
    blocks = devices == 1 and large and first.shape[-1] == groups
    return at_most(TOGETHER if blocks else groups, some, first, second, groups)


def _to_coarse(
    fine: Any, kernel: Any, *, geometry: Geometry, contract: Callable[..., Any], **params: Any
) -> Any:
    at, size = _pieces(fine, geometry)
    shape = geometry.shape("coarse", fine.shape, kernel.shape)
    fine = window.padded(fine, geometry)

    def piece(start: Any, size: int) -> Any:
        some = lax.dynamic_slice_in_dim(kernel, start, size, axis=at)
        read, inner = _read(fine, geometry, at, start, size)
        return contract("coarse", read, some, geometry=inner, **params)

    def step(n: Any, out: Any) -> Any:
        return out + piece(cores.step(n) * size, size)

    count, left = divmod(geometry.axes[at].kernel, size)
    out, *_ = _sharding.vary_alike(jnp.zeros(shape, params["dtype"]), fine, kernel)
    out = lax.fori_loop(0, count, step, out)
    return out + piece(count * size, left) if left else out


def _to_kernel(
    fine: Any, coarse: Any, *, geometry: Geometry, contract: Callable[..., Any], **params: Any
) -> Any:
    at, size = _pieces(fine, geometry)
    taps = geometry.axes[at].kernel
    shape = geometry.shape("kernel", fine.shape, coarse.shape)
    fine = window.padded(fine, geometry)

    def step(n: Any, out: Any) -> Any:
        start = jnp.minimum(cores.step(n) * size, taps - size)
        read, inner = _read(fine, geometry, at, start, size)
        piece = contract("kernel", read, coarse, geometry=inner, **params)
        return lax.dynamic_update_slice_in_dim(out, piece, start, axis=at)

    out, *_ = _sharding.vary_alike(jnp.zeros(shape, params["dtype"]), fine, coarse)
    return lax.fori_loop(0, -(-taps // size), step, out)


def _pieces(fine: Any, geometry: Geometry) -> tuple[int, int]:
    """The axis whose taps make pieces, and how many of them one has."""
    most = DEPTHWISE if fine.shape[-1] == geometry.groups else OTHERS
    kernel = [a.kernel for a in geometry.axes]
    at = next((n for n, k in enumerate(kernel) if k > 1), 0)
    return at, min(max(most * kernel[at] // math.prod(kernel), 1), kernel[at])


def _read(fine: Any, geometry: Geometry, at: int, start: Any, size: int) -> tuple[Any, Geometry]:
    """What so many taps along an axis read of the padded fine tensor."""
    axes = list(geometry.axes)
    axes[at] = replace(axes[at], kernel=size)
    inner = window.of_padded(replace(geometry, axes=tuple(axes)))
    axis = inner.axes[at]
    read = lax.dynamic_slice_in_dim(fine, axis.dilation * start, axis.fine, axis=1 + at)
    return read, inner
