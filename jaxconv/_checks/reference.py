"""The defining sum in NumPy float64: a product of matrices for each tap and group.

The sum is that of ``fine[g, n, p, i] * kernel[g, t, i, o] * coarse[g, n, q, o]`` over all taps t
and places q, with ``p = strides*q + dilations*t - pads`` in bounds. It shares no code with the
operations.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxconv._base.geometry import Slot

Array = np.ndarray[Any, Any]


def fill(
    result: Slot,
    tensors: dict[Slot, Array],
    strides: Sequence[int],
    dilations: Sequence[int],
    pads: Sequence[int],
) -> Array:
    """Fill one of the tensors fine, kernel and coarse, given as zeros, from the other two."""
    fine, kernel, coarse = (np.array(tensors[n], np.float64) for n in ("fine", "kernel", "coarse"))
    groups, (i, o) = kernel.shape[0], kernel.shape[-2:]
    extents = list(zip(fine.shape[2:-1], coarse.shape[2:-1], strides, dilations, pads, strict=True))
    for tap in np.ndindex(kernel.shape[1:-2]):
        p, q = zip(*(_meet(t, *axis) for t, axis in zip(tap, extents, strict=True)), strict=True)
        fine_part, coarse_part = fine[:, :, *p], coarse[:, :, *q]
        a, b = fine_part.reshape(groups, -1, i), coarse_part.reshape(groups, -1, o)
        at: Any = (slice(None), *tap)
        k = kernel[at]
        if result == "coarse":
            coarse_part += (a @ k).reshape(coarse_part.shape)
        elif result == "fine":
            fine_part += (b @ k.swapaxes(1, 2)).reshape(fine_part.shape)
        else:
            kernel[at] = a.swapaxes(1, 2) @ b
    return {"fine": fine, "kernel": kernel, "coarse": coarse}[result]


def _meet(
    tap: int, fine: int, coarse: int, stride: int, dilation: int, pad: int
) -> tuple[slice, slice]:
    """The places of the fine and of the coarse axis that a tap joins."""
    offset = dilation * tap - pad
    first = max(0, -(offset // stride))
    last = min(coarse - 1, (fine - 1 - offset) // stride)
    count = max(0, last - first + 1)
    start = stride * first + offset if count else 0
    return slice(start, start + stride * count, stride), slice(first, first + count)
