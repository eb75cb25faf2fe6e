"""The padding rules: by hand, and against what they promise, tried out one total after another."""

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


@pytest.mark.parametrize(
    ("f", "stride", "extent", "total"),
    [
        (6, 1, 4, 3),  # c = 6
        (5, 3, 1, 0),  # c = 2, and the window never reaches the end
        (7, 2, 3, 2),  # c = 4
        (8, 2, 3, 1),  # c = 4 too
        (9, 4, 7, 6),  # c = 3
        (1, 3, 5, 4),  # c = 1
    ],
)
def test_same_of_convolution(f, stride, extent, total):
    assert sizes.same_of_convolution(f, stride, extent) == total


def test_same_of_convolution_is_the_least_that_gives_the_rounded_up_quotient():
    for f, stride, extent in product(SIZES, STRIDES, EXTENTS):
        wanted = next(c for c in range(1, 99) if c * stride >= f)
        totals = range(extent + stride)
        least = next(
            t for t in totals if f + t >= extent and (f + t - extent) // stride + 1 == wanted
        )
        assert sizes.same_of_convolution(f, stride, extent) == least


@pytest.mark.parametrize(
    ("stride", "extent", "total"), [(1, 4, 3), (2, 1, 0), (2, 2, 0), (2, 5, 3), (3, 7, 4)]
)
def test_same_of_transpose(stride, extent, total):
    assert sizes.same_of_transpose(stride, extent) == total


def test_same_of_transpose_is_the_least_that_crops_to_the_product():
    for c, stride, extent in product(SIZES, STRIDES, EXTENTS):
        reach = stride * (c - 1) + extent
        least = next(t for t in range(extent + 1) if reach - t <= stride * c)
        assert sizes.same_of_transpose(stride, extent) == least


@pytest.mark.parametrize(
    ("f", "c", "stride", "extent", "output_padding", "total"),
    [
        (7, 3, 2, 3, 0, 0),  # reached as it is
        (5, 3, 2, 3, 0, 2),
        (9, 3, 2, 3, 0, 0),  # out of reach: the rest is output padding
        (5, 3, 2, 3, 1, 3),
        (1, 4, 3, 5, 2, 15),
    ],
)
def test_same_to_reach(f, c, stride, extent, output_padding, total):
    assert sizes.same_to_reach(f, c, stride, extent, output_padding) == total


def test_same_to_reach_is_the_least_that_does_not_pass_the_extent_asked_for():
    for f, c, stride, extent, extra in product(SIZES, range(1, 5), STRIDES, EXTENTS, (0, 3)):
        reach = stride * (c - 1) + extent + extra
        least = next(t for t in range(reach) if reach - t <= f)
        assert sizes.same_to_reach(f, c, stride, extent, extra) == least
