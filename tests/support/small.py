"""Random convolutions of a seed: small, odd in everything, all of which are valid."""

import random
from collections.abc import Sequence
from functools import cache

import jax
import numpy as np

import jaxconv
from jaxconv import _lowering
from jaxconv._base.environment import Target
from jaxconv._base.geometry import OPERANDS, Axis
from tests.support.forms import Form, integers

#: slot -> the operation that fills it, of arrays in the order of OPERANDS
TO = {
    "coarse": "convolution",
    "fine": "convolution_backward_data",
    "kernel": "convolution_backward_weights",
}
SLOTS = tuple(TO)
#: rank -> the largest extent
LONGEST = {1: 60, 2: 15, 3: 8, 4: 6}
KINDS = ("dense", "dense", "grouped", "depthwise", "multiplier")


def draw(seed: int, count: int, ranks: Sequence = (1, 2, 2, 3), most_channels=24) -> list[Form]:
    """Draw `count` layers, the same for each seed."""
    rng = random.Random(seed)
    return [draw_one(rng, ranks, most_channels) for _ in range(count)]


def draw_one(rng: random.Random, ranks: Sequence, most_channels: int) -> Form:
    """Draw one layer."""
    kind, rank = rng.choice(KINDS), rng.choice(ranks)
    i, o = (rng.randint(1, most_channels) for _ in range(2))
    groups = {"dense": 1, "grouped": rng.choice((2, 3, 4))}.get(kind, rng.choice((3, 8, 16, 20)))
    if kind == "depthwise":
        i, o = 1, 1
    if kind == "multiplier":
        i, o = 1, rng.choice((2, 3))
    axes = zip(*(_axis(rng, LONGEST[rank]) for _ in range(rank)), strict=True)
    return Form(*axes, (groups * i, groups * o), groups, batch=rng.randint(1, 4))


def _axis(rng, longest):
    """Draw fine extent, kernel, stride, dilation and pads that leave a coarse pixel."""
    while True:
        fine, kernel = rng.randint(1, longest), rng.randint(1, 5)
        stride, dilation = rng.choice((1, 1, 1, 2, 2, 3, 7)), rng.choice((1, 1, 1, 2, 3, 9))
        extent = dilation * (kernel - 1) + 1
        begin, end = (
            rng.choice((0, 0, 1, extent // 2, extent, rng.randint(0, 6))) for _ in range(2)
        )
        if fine + begin + end >= extent:
            return fine, kernel, stride, dilation, begin, end


def any_axis(rng: random.Random) -> Axis:
    """Draw any axis at all: negative padding, padding beyond the kernel, strides beyond all."""
    sizes = (rng.randint(1, most) for most in (9, 6, 7))
    steps = (rng.choice((1, 2, 3, 11, 13)) for _ in range(2))
    return Axis(*sizes, *steps, pad_low=rng.randint(-9, 12))


def kind(form: Form) -> str:
    """Say which of KINDS a layer is."""
    i, o = (c // form.groups for c in form.channels)
    if form.groups == 1 or i > 1:
        return "dense" if form.groups == 1 else "grouped"
    return "depthwise" if o == 1 else "multiplier"


def tensors(form: Form, limit: int = 3) -> dict[str, np.ndarray]:
    """Whole numbers for all three tensors: the sums of their products are exact."""
    return {
        slot: integers(shape, seed, np.float64, limit)
        for seed, (slot, shape) in enumerate(form.shapes.items())
    }


def expected(form: Form, slot: str, of: dict[str, np.ndarray]) -> np.ndarray:
    """The defining sum in float64."""
    return form.exact(TO[slot], *(of[s] for s in OPERANDS[slot]))


@cache
def problem(form: Form, slot: str, dtype=np.float32):
    """What is to be planned for the contraction to a slot, on one CPU."""
    types = [jax.ShapeDtypeStruct(form.shapes[s], dtype) for s in OPERANDS[slot]]
    bound = form.op(TO[slot])
    geometry = jaxconv.resolve(bound.func, *types, **bound.keywords).geometry
    return _lowering.problem_of(slot, *types, geometry, np.dtype(dtype), Target("cpu"))


def claims(form: Form, slot: str, name: str, dtype=np.float32) -> bool:
    """Whether a form of the library's is part of the plan that forcing it makes."""
    try:
        plan = _lowering.choose_plan(problem(form, slot, dtype), "cpu", name)
    except ValueError:
        return False
    return name == _lowering.PORTABLE or name in dict(plan.steps())
