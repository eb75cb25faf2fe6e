"""What must hold of every rule, over random contractions: nothing is compiled here."""

import math

import jax.numpy as jnp
import numpy as np
import pytest

from jaxconv._geometry import Axis, DataLayout, Geometry, KernelLayout
from jaxconv._lowering import alike, contenders, cpu
from jaxconv._lowering.choice import choose, possible
from jaxconv._lowering.problem import MOST_TAPS, Problem

TYPES = [np.float32, np.float32, np.float64, jnp.bfloat16, np.float16]
#: Those that have a piece of the program for each tap.
UNROLLED = {"columns", "dots", "products", "slabs", "strips", "taps"}


def problem(rng):
    """Any contraction, from one element to large layers; extents and steps are often 1."""

    def some(most):
        return int(rng.choice([1, rng.integers(1, 9), math.ceil(most ** rng.random())]))

    rank = int(rng.integers(1, 5))
    axes = []
    for _ in range(rank):
        kernel, stride, dilation, coarse = some(70), some(40), some(8), some(300)
        stride = int(rng.choice([stride, kernel]))
        needed = stride * (coarse - 1) + dilation * (kernel - 1) + 1
        low = int(rng.integers(0, needed)) if rng.random() < 0.4 else 0
        fine = max(needed - low - int(rng.integers(-3, 4)), 1)
        axes.append(Axis(fine, kernel, coarse, stride, dilation, low))
    spatial = tuple(range(rank))
    geometry = Geometry(
        tuple(axes),
        int(rng.choice([1, some(512)])),
        DataLayout(0, 1, tuple(a + 2 for a in spatial)),
        KernelLayout(rank + 1, rank, spatial),
    )
    return Problem(
        rng.choice(["coarse", "fine", "kernel"]).item(),
        geometry.canonical(channels_first=bool(rng.integers(2))),
        [None, 0, 1, some(64)][rng.integers(4)],
        some(512),
        some(512),
        np.dtype(TYPES[rng.integers(len(TYPES))]),
        devices=int(rng.choice([1, 1, 2, 8])),
        phase=bool(rng.integers(2)),
    )


@pytest.mark.parametrize("seed", range(5))
def test_every_choice_can_be_spelled(seed):
    """In its layout, and by a program that does not grow with the kernel or the strides."""
    rng = np.random.default_rng(seed)
    chosen = set()
    for _ in range(2000):
        p = problem(rng)
        rule = choose(p)
        chosen.add(rule.spelling)
        forms = {**cpu.SPELLINGS, **cpu.REWRITES}[rule.spelling]
        first = p.channels_first if rule.channels_first is None else rule.channels_first
        assert possible(rule.spelling, p), (rule, p)
        assert p.result in forms, (rule, p)
        assert first or rule.spelling != "planes", (rule, p)
        assert p.dense or not (first and rule.spelling == "columns"), (rule, p)
        assert p.taps <= MOST_TAPS or rule.spelling not in UNROLLED, (rule, p)
        assert not (rule.spelling == "phases" and p.many_phases), (rule, p)
        assert rule.spelling != "alike" or alike.contractions(p.geometry) <= 64, p
        assert p.counted or rule.spelling not in ("abreast", "images", "swapped"), (rule, p)
    assert len(chosen) > 10


def test_measure_tries_nothing_that_cannot_be_spelled():
    rng = np.random.default_rng(0)
    for _ in range(2000):
        p = problem(rng)
        assert all(possible(name, p) for name in contenders.contenders(p)), p
