"""One spatial axis fewer: a contraction for each tap of the first axis, the axis into the batch.

XLA:CPU has fast convolutions of two spatial axes only; cuDNN has none of more than three.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import reduce
from typing import Any

import jax.numpy as jnp
from jax import lax

from jaxconv._geometry import Geometry
from jaxconv._reshape import replace_axes


def to_coarse(
    fine: Any, kernel: Any, *, geometry: Geometry, contract: Callable[..., Any], **params: Any
) -> Any:
    """The sum over the first axis's taps."""
    rest = _without_first(geometry)
    sums = [
        contract(
            "coarse", slab, lax.index_in_dim(kernel, tap, keepdims=False), geometry=rest, **params
        )
        for tap, slab in enumerate(_slabs(fine, geometry))
    ]
    out = reduce(lax.add, sums)
    return replace_axes(out, 0, 1, (fine.shape[0], geometry.axes[0].coarse))


def to_kernel(
    fine: Any, coarse: Any, *, geometry: Geometry, contract: Callable[..., Any], **params: Any
) -> Any:
    """The first axis's taps one by one."""
    rest = _without_first(geometry)
    coarse = _into_batch(coarse)
    taps = [
        contract("kernel", slab, coarse, geometry=rest, **params) for slab in _slabs(fine, geometry)
    ]
    return jnp.stack(taps)


def _slabs(fine: Any, geometry: Geometry) -> list[Any]:
    """What each tap of the first axis reads, with that axis in the batch."""
    first = geometry.axes[0]
    low, high = [0] * fine.ndim, [0] * fine.ndim
    low[1], high[1] = first.pad_low, first.pad_high
    config = list(zip(low, high, [0] * fine.ndim, strict=True))
    fine = lax.pad(fine, jnp.zeros((), fine.dtype), config)
    return [
        _into_batch(
            lax.slice_in_dim(
                fine, first.dilation * t, first.dilation * t + first.span, first.stride, axis=1
            )
        )
        for t in range(first.kernel)
    ]


def _into_batch(x: Any) -> Any:
    """(N, X1, ...) to ((N, X1), ...): the batch stays major, so that it may be sharded."""
    return replace_axes(x, 0, 2, (x.shape[0] * x.shape[1],))


def _without_first(geometry: Geometry) -> Geometry:
    return replace(geometry, axes=geometry.axes[1:]).canonical()
