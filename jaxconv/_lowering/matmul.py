"""Kernels of one tap, and windows that tile the fine tensor: a reshape and one dot, per group.

A dot runs at the machine's peak, in 16 bits too as long as it may give a float32
result. No axis is merged but the taps and channels, which nobody shards: a batch
sharded over devices stays so.
"""

import math
from typing import Any

import jax.numpy as jnp
from jax import lax

from jaxconv._attributes import Precision
from jaxconv._dtypes import DType
from jaxconv._geometry import Geometry
from jaxconv._lowering import rows, window
from jaxconv._lowering.apart import apart
from jaxconv._lowering.groups import by_group


@by_group()
@apart
def to_coarse(
    fine: Any, kernel: Any, *, geometry: Geometry, precision: Precision, dtype: DType
) -> Any:
    """Each window is a row of patches."""
    weights = kernel.reshape(-1, kernel.shape[-1])
    return rows.by_weights(_patches(fine, geometry), weights, precision, dtype)


@by_group()
@apart
def to_fine(
    coarse: Any, kernel: Any, *, geometry: Geometry, precision: Precision, dtype: DType
) -> Any:
    """Each coarse element makes a window of its own."""
    windows = lax.dot_general(
        coarse,
        kernel.reshape(-1, kernel.shape[-1]),
        (((geometry.rank + 1,), (1,)), ((), ())),
        precision=precision,
        preferred_element_type=dtype,
    )
    return _unpatched(windows, kernel.shape[-2], geometry)


@by_group()
@apart
def to_kernel(
    fine: Any, coarse: Any, *, geometry: Geometry, precision: Precision, dtype: DType
) -> Any:
    """All windows at once: one dot over batch and extents."""
    out = rows.by_rows(_patches(fine, geometry), coarse, precision, dtype)
    return out.reshape(*(a.kernel for a in geometry.axes), fine.shape[-1], coarse.shape[-1])


def _patches(fine: Any, geometry: Geometry) -> Any:
    """(N, coarse extents, taps * C): the windows, which do not overlap."""
    if all(a.kernel == 1 for a in geometry.axes):
        return window.read_by((0,) * geometry.rank, window.padded(fine, geometry), geometry)
    fine = window.padded(fine, geometry)  # kernel == stride: exactly coarse * kernel long
    extents = [n for a in geometry.axes for n in (a.coarse, a.kernel)]
    batch, channels = fine.shape[0], fine.shape[-1]
    split = fine.reshape(batch, *extents, channels).transpose(_outside_in(geometry))
    taps = math.prod(a.kernel for a in geometry.axes)
    return split.reshape(batch, *(a.coarse for a in geometry.axes), taps * channels)


def _unpatched(windows: Any, channels: int, geometry: Geometry) -> Any:
    """The reverse: lay the windows (N, coarse extents, taps * C) side by side and crop."""
    batch = windows.shape[0]
    if any(a.kernel > 1 for a in geometry.axes):
        apart = windows.reshape(
            batch,
            *(a.coarse for a in geometry.axes),
            *(a.kernel for a in geometry.axes),
            channels,
        )
        order = _outside_in(geometry)
        inverse = sorted(range(len(order)), key=order.__getitem__)
        windows = apart.transpose(inverse)
    tiled = windows.reshape(batch, *(a.coarse * a.kernel for a in geometry.axes), channels)
    crop = [(-a.pad_low, -a.pad_high, a.stride - 1 if a.kernel == 1 else 0) for a in geometry.axes]
    return lax.pad(tiled, jnp.zeros((), tiled.dtype), [(0, 0, 0), *crop, (0, 0, 0)])


def _outside_in(geometry: Geometry) -> list[int]:
    """From (N, c1, k1, c2, k2, ..., C) to (N, c1, c2, ..., k1, k2, ..., C)."""
    rank = geometry.rank
    return [0, *range(1, 2 * rank, 2), *range(2, 2 * rank + 1, 2), 2 * rank + 1]
