"""What normalisation leaves of a contraction gives the same sums, and has nothing left to cut."""

import random
from dataclasses import replace

import pytest

from jaxconv._base.geometry import UNIT, Axis
from jaxconv._lowering.normal import normalise
from tests.support.problems import problem
from tests.support.small import any_axis


def problem_of(*axes):
    return problem("coarse", axes, fine=1, coarse=1, batch=1)


def met(axis):
    """The triples (fine pixel, tap, coarse pixel) of the sum."""
    return {
        (axis.stride * q + axis.dilation * t - axis.pad_low, t, q)
        for q in range(axis.coarse)
        for t in range(axis.kernel)
        if 0 <= axis.stride * q + axis.dilation * t - axis.pad_low < axis.fine
    }


def test_nothing_is_left_to_cut():
    rng = random.Random(1)
    for _ in range(3000):
        axis, other = any_axis(rng), Axis(3, 2, 2, 1, 1, 0)
        normal, _ = normalise(problem_of(axis, other))
        if normal.empty or normal.rank == 1:
            continue
        inner = normal.geometry.axes[0]
        pixels, taps, places = (sorted({n[at] for n in met(inner)}) for at in range(3))
        assert (taps[0], taps[-1]) == (0, inner.kernel - 1)
        assert (places[0], places[-1]) == (0, inner.coarse - 1)
        assert inner.pad_low >= 0
        assert inner.pad_high > -inner.stride
        assert 0 <= pixels[0] <= pixels[-1] < inner.fine
        assert inner.dilation == 1 or inner.kernel > 1
        assert inner.stride in (1, inner.kernel) or inner.coarse > 1
        assert normalise(normal) == (normal, None)


def test_axes_of_one_element_go_but_one_stays():
    unit = replace(UNIT, stride=3, dilation=2)
    normal, trim = normalise(problem_of(unit, Axis(5, 2, 4, 1, 1, 0), unit))
    assert ([a.fine for a in normal.geometry.axes], trim.units) == ([5], (0, 2))
    assert normalise(problem_of(unit, unit))[0].rank == 1


def test_one_window_tiles():
    assert normalise(problem_of(Axis(4, 4, 1, 1, 1, 0), Axis(6, 3, 2, 3, 1, 0)))[0].tiles


@pytest.mark.parametrize("far", [10**6, 2**31 - 1, 2**62])
def test_sizes_of_any_size_take_no_time(far):
    """All by arithmetic: a loop over pads, dilations or strides would not end."""
    normal, _ = normalise(problem_of(Axis(5, 3, 5, 1, far, far), Axis(5, 2, 2, far, 1, 0)))
    first, second = normal.geometry.axes
    assert (first.kernel, first.dilation, first.pad_low) == (1, 1, 0)
    assert (second.coarse, second.stride) == (1, second.kernel)
