"""Views of the fine tensor, channels-last: what each tap of the kernel reads."""

from collections.abc import Iterator
from itertools import product
from typing import Any

import jax.numpy as jnp
from jax import lax

from jaxconv._geometry import Geometry

Tap = tuple[int, ...]


def padded(fine: Any, geometry: Geometry) -> Any:
    """The fine tensor from the first element that any window reads to the last."""
    config = [(a.pad_low, a.pad_high, 0) for a in geometry.axes]
    return lax.pad(fine, jnp.zeros((), fine.dtype), [(0, 0, 0), *config, (0, 0, 0)])


def taps(geometry: Geometry) -> Iterator[Tap]:
    """All taps of the kernel, in its own order."""
    return product(*(range(a.kernel) for a in geometry.axes))


def read_by(tap: Tap, fine: Any, geometry: Geometry) -> Any:
    """What one tap reads of the padded fine tensor: (N, coarse extents, C)."""
    starts = [a.dilation * t for a, t in zip(geometry.axes, tap, strict=True)]
    return lax.slice(
        fine,
        (0, *starts, 0),
        (
            fine.shape[0],
            *(s + a.span for s, a in zip(starts, geometry.axes, strict=True)),
            fine.shape[-1],
        ),
        (1, *(a.stride for a in geometry.axes), 1),
    )


def at(tap: Tap, kernel: Any) -> Any:
    """The weights of one tap: (fine channels, coarse channels)."""
    limits = (*(t + 1 for t in tap), *kernel.shape[-2:])
    return lax.slice(kernel, (*tap, 0, 0), limits).reshape(kernel.shape[-2:])
