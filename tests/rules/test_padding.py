"""The padding rules against what they promise, tried out one total after another."""

from itertools import product

import pytest

from jaxconv._rules import sizes

STRIDES, EXTENTS, SIZES = range(1, 5), range(1, 9), range(1, 12)


@pytest.mark.parametrize(
    ("total", "upper", "lower"),
    [(0, (0, 0), (0, 0)), (1, (0, 1), (1, 0)), (4, (2, 2), (2, 2)), (7, (3, 4), (4, 3))],
)
def test_split(total, upper, lower):
    assert sizes.share_out(total, "same_upper") == upper
    assert sizes.share_out(total, "same_lower") == lower


def test_same_of_convolution_is_the_least_that_gives_the_rounded_up_quotient():
    for f, stride, extent in product(SIZES, STRIDES, EXTENTS):
        wanted = next(c for c in range(1, 99) if c * stride >= f)
        totals = range(extent + stride)
        least = next(
            t for t in totals if f + t >= extent and (f + t - extent) // stride + 1 == wanted
        )
        assert sizes.same_of_convolution(f, stride, extent) == least


def test_same_of_transpose_is_the_least_that_crops_to_the_product():
    for c, stride, extent in product(SIZES, STRIDES, EXTENTS):
        reach = stride * (c - 1) + extent
        least = next(t for t in range(extent + 1) if reach - t <= stride * c)
        assert sizes.same_of_transpose(stride, extent) == least


def test_same_to_reach_is_the_least_that_does_not_pass_the_extent_asked_for():
    for f, c, stride, extent, extra in product(SIZES, range(1, 5), STRIDES, EXTENTS, (0, 1, 2, 3)):
        reach = stride * (c - 1) + extent + extra
        least = next(t for t in range(reach) if reach - t <= f)
        assert sizes.same_to_reach(f, c, stride, extent, extra) == least
