"""The defining sum in NumPy float64: a product of matrices for each tap and group.

The sum is over ``fine[g, n, p, i] * kernel[g, t, i, o] * coarse[g, n, q, o]`` for all taps t and
places q, with ``p = strides*q + dilations*t - pads`` in bounds. The code shares nothing with the
operations, and imports nothing of the package: the benchmarks load this file alone.
"""

from typing import TYPE_CHECKING, Any, Literal

import numpy as np

if TYPE_CHECKING:
    from jaxconv._checks.layer import Layer

Array = np.ndarray[Any, Any]
Slot = Literal["fine", "kernel", "coarse"]  # as in geometry.py


def contract(layer: "Layer", result: Slot, given: dict[Slot, Array]) -> Array:
    """Fill one tensor of a layer from the other two, in the shapes of the layer."""
    shapes, groups = layer.shapes, layer.groups
    tensors = {slot: np.array(x, np.float64) for slot, x in given.items()}
    out = tensors[result] = np.zeros(shapes[result])
    # groups first: the last axis of each tensor has the channels of all groups
    fine, kernel, coarse = (
        np.moveaxis(tensors[slot].reshape(*shape[:-1], groups, -1), -2, 0)
        for slot, shape in shapes.items()
    )
    i, o = kernel.shape[-2:]
    axes = (layer.fine, layer.coarse, layer.strides, layer.dilations, layer.pads_begin)
    for tap in np.ndindex(*layer.kernel):
        p, q = zip(*map(_meet, tap, *axes), strict=True)
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
    return out


def _meet(
    tap: int, fine: int, coarse: int, stride: int, dilation: int, pad: int
) -> tuple[slice, slice]:
    """Find the places of the fine and of the coarse axis that a tap joins."""
    offset = dilation * tap - pad
    first = max(0, -(offset // stride))
    last = min(coarse - 1, (fine - 1 - offset) // stride)
    count = max(0, last - first + 1)
    start = stride * first + offset if count else 0
    return slice(start, start + stride * count, stride), slice(first, first + count)
