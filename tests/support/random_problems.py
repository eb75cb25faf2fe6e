"""Random contractions of a seed: small, odd in everything, all of which are valid."""

import random
from dataclasses import dataclass
from functools import partial

import jax
import numpy as np

import jaxconv
from jaxconv import _lowering
from jaxconv._base.geometry import OPERANDS
from jaxconv._base.target import Target
from tests.support import oracle

SLOTS = ("coarse", "fine", "kernel")
KINDS = ("dense", "dense", "grouped", "depthwise", "multiplier")


@dataclass(frozen=True)
class Problem:
    """The sizes of a convolution, channels-last."""

    kind: str
    batch: int
    groups: int
    channels: tuple[int, int]  # of one group: fine, coarse
    axes: tuple[oracle.Axis, ...]

    @property
    def shapes(self):
        i, o = self.channels
        return {
            "fine": (self.batch, *(a.fine for a in self.axes), self.groups * i),
            "kernel": (*(a.kernel for a in self.axes), i, self.groups * o),
            "coarse": (self.batch, *(a.coarse for a in self.axes), self.groups * o),
        }

    @property
    def attributes(self):
        return {
            "strides": [a.stride for a in self.axes],
            "dilations": [a.dilation for a in self.axes],
            "pads_begin": [a.pad_begin for a in self.axes],
            "pads_end": [a.pad_end for a in self.axes],
            "groups": self.groups,
        }

    def integers(self, limit=3):
        """Whole numbers for all three tensors: the sums of their products are exact."""
        rng = np.random.default_rng(hash((self.batch, self.channels, self.axes)) % 2**32)
        return {
            slot: rng.integers(-limit, limit, shape, endpoint=True).astype(np.float64)
            for slot, shape in self.shapes.items()
        }

    def operation(self, slot, weights_format="XIO"):
        """The operation that fills a slot, of its two arrays, with results in float32."""
        attributes = self.attributes | {"preferred_element_type": np.float32}
        attributes["weights_format"] = weights_format
        if slot == "coarse":
            return partial(jaxconv.convolution, **attributes)
        if slot == "fine":
            shape = self.shapes["fine"]
            return partial(jaxconv.convolution_backward_data, dst_shape=shape, **attributes)
        shape = self.shapes["kernel"]
        return partial(jaxconv.convolution_backward_weights, weights_shape=shape, **attributes)

    def plan(self, slot, form=None):
        """What the library plans for the contraction to a slot, in float32 on one CPU."""
        shapes = [self.shapes[s] for s in OPERANDS[slot]]
        given = shapes if slot == "coarse" else [*shapes, self.shapes[slot]]
        geometry = jaxconv.resolve(self.operation(slot).func, *given, **self.attributes).geometry
        types = [jax.ShapeDtypeStruct(shape, np.float32) for shape in shapes]
        dtype = np.dtype(np.float32)
        problem = _lowering.problem_of(slot, *types, geometry, dtype, Target("cpu"))
        return _lowering.choose_plan(problem, "cpu", form)

    def expected(self, slot, tensors):
        """The defining sum in float64."""
        if slot == "coarse":
            return oracle.convolution(tensors["fine"], tensors["kernel"], **self.attributes)
        if slot == "fine":
            function, given = oracle.convolution_backward_data, ("coarse", "kernel")
        else:
            function, given = oracle.convolution_backward_weights, ("fine", "coarse")
        return function(*(tensors[s] for s in given), self.shapes[slot], **self.attributes)


def draw(seed, count, ranks=(1, 2, 2, 3), most_channels=24):
    """So many problems, the same for each seed."""
    rng = random.Random(seed)
    return [_one(rng, ranks, most_channels) for _ in range(count)]


def _one(rng, ranks, most_channels):
    kind, rank = rng.choice(KINDS), rng.choice(ranks)
    i, o = (rng.randint(1, most_channels) for _ in range(2))
    groups = {"dense": 1, "grouped": rng.choice((2, 3, 4))}.get(kind, rng.choice((3, 8, 16, 20)))
    if kind == "depthwise":
        i, o = 1, 1
    if kind == "multiplier":
        i, o = 1, rng.choice((2, 3))
    axes = tuple(_axis(rng, (60, 15, 8)[rank - 1]) for _ in range(rank))
    return Problem(kind, rng.randint(1, 4), groups, (i, o), axes)


def _axis(rng, longest):
    while True:
        fine, kernel = rng.randint(1, longest), rng.randint(1, 5)
        stride, dilation = rng.choice((1, 1, 1, 2, 2, 3, 7)), rng.choice((1, 1, 1, 2, 3, 9))
        extent = dilation * (kernel - 1) + 1
        begin, end = (rng.choice((0, 0, 1, extent // 2, extent, rng.randint(0, 6))) for _ in "be")
        coarse = (fine + begin + end - extent) // stride + 1
        if coarse >= 1:
            rest = fine + begin + end - extent - stride * (coarse - 1)
            return oracle.Axis(fine, kernel, coarse, stride, dilation, begin, end, rest)
