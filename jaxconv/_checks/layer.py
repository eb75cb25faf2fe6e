"""The sizes of a convolution, and the defining sum in NumPy float64.

The sum is over ``fine[g, n, p, i] * kernel[g, t, i, o] * coarse[g, n, q, o]`` for all taps t and
places q, with ``p = strides*q + dilations*t - pads`` in bounds: a product of matrices for each tap
and group. The self-check, the tests and the benchmarks share this. `benchmarks.layer` loads this
file alone, so it imports nothing of the package.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

Array = np.ndarray[Any, Any]
Ints = tuple[int, ...]
Slot = Literal["fine", "kernel", "coarse"]  # as in geometry.py


@dataclass(frozen=True)
class Layer:
    """A fine tensor, a kernel and a coarse tensor; `Ints` have an int for each spatial axis.

    A convolution makes the coarse tensor from the fine tensor, a transposed convolution the fine
    tensor from the coarse tensor. Shapes are channels last: the kernel's shape is XIO for a
    convolution, and XOI for a transposed convolution.
    """

    fine: Ints
    kernel: Ints
    strides: Ints
    dilations: Ints
    pads_begin: Ints
    #: A negative pad leaves out the end of the fine tensor.
    pads_end: Ints
    #: Of the fine and of the coarse tensor, in all groups.
    channels: tuple[int, int]
    groups: int = 1
    batch: int = 2

    @property
    def rank(self) -> int:
        """The number of spatial axes."""
        return len(self.kernel)

    @property
    def extents(self) -> Ints:
        """The extents of the dilated kernel."""
        return _each(lambda k, d: d * (k - 1) + 1, self.kernel, self.dilations)

    @property
    def _room(self) -> Ints:
        """The pixels by which the kernel can move over the padded fine tensor."""
        sizes = (self.fine, self.pads_begin, self.pads_end, self.extents)
        return _each(lambda f, b, e, extent: f + b + e - extent, *sizes)

    @property
    def coarse(self) -> Ints:
        """The spatial extents of the coarse tensor."""
        return _each(lambda room, s: room // s + 1, self._room, self.strides)

    @property
    def output_padding(self) -> Ints:
        """The end of the fine tensor that no window reaches, as transposed operations name it."""
        unread = _each(lambda room, s: room % s, self._room, self.strides)
        return _each(lambda u, e: u + max(-e, 0), unread, self.pads_end)

    @property
    def attributes(self) -> dict[str, Any]:
        """The attributes that all six operations take."""
        return {
            "strides": self.strides,
            "pads_begin": self.pads_begin,
            "pads_end": tuple(max(e, 0) for e in self.pads_end),
            "dilations": self.dilations,
            "groups": self.groups,
        }

    @property
    def shapes(self) -> dict[Slot, Ints]:
        """The shapes of the three tensors."""
        fine, coarse = self.channels
        return {
            "fine": (self.batch, *self.fine, fine),
            "kernel": (*self.kernel, fine // self.groups, coarse),
            "coarse": (self.batch, *self.coarse, coarse),
        }

    def orders(self, data_format: str, weights_format: str, transposed: bool) -> dict[Slot, Ints]:
        """Find the order of the axes of `shapes` in an operation's formats."""
        rank = self.rank
        data = {"N": [0], "X": [*range(1, rank + 1)], "C": [rank + 1]}
        kernel = {"X": [*range(rank)], "I": [rank + transposed], "O": [rank + 1 - transposed]}
        of_data = tuple(at for letter in data_format for at in data[letter])
        of_kernel = tuple(at for letter in weights_format for at in kernel[letter])
        return {"fine": of_data, "kernel": of_kernel, "coarse": of_data}

    def terms(self, slot: Slot) -> int:
        """Count the products that an element of this tensor sums at most, as a result."""
        fine, coarse = (c // self.groups for c in self.channels)
        if slot == "kernel":
            return self.batch * math.prod(_each(min, self.coarse, self.fine))
        if slot == "coarse":
            return math.prod(_each(min, self.kernel, self.fine)) * fine
        # Along an axis, the taps that reach one fine pixel are this far apart: stride / gcd.
        sizes = (self.kernel, self.strides, self.dilations)
        reach = _each(lambda k, s, d: -(-k * math.gcd(s, d) // s), *sizes)
        return math.prod(_each(min, reach, self.coarse)) * coarse


def contract(layer: Layer, result: Slot, given: dict[Slot, Array]) -> Array:
    """Fill one tensor of a layer from the other two, in the shapes of the layer."""
    shapes, groups = layer.shapes, layer.groups
    tensors = {slot: np.array(x, np.float64) for slot, x in given.items()}
    out = tensors[result] = np.zeros(shapes[result])
    # Views, with groups first: what is written to one of these fills `out`.
    fine, kernel, coarse = (
        np.moveaxis(tensors[slot].reshape(*shape[:-1], groups, shape[-1] // groups), -2, 0)
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


def _each(rule: Callable[..., int], *sizes: Ints) -> Ints:
    return tuple(rule(*of_axis) for of_axis in zip(*sizes, strict=True))


def _meet(
    tap: int, fine: int, coarse: int, stride: int, dilation: int, pad: int
) -> tuple[slice, slice]:
    """Find the places of the fine and of the coarse axis that a tap joins."""
    offset = dilation * tap - pad
    first = max(0, -(offset // stride))
    last = min(coarse - 1, (fine - 1 - offset) // stride)
    count = max(0, last - first + 1)
    start = stride * first + offset
    return slice(start, start + stride * count, stride), slice(first, first + count)
