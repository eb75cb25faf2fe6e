"""The oracle against sums done by hand; `ops/test_literal.py` has those of oneDNN's unit tests.

The taps are powers of ten: the digits of a result show which elements met which taps.
"""

import ml_dtypes
import numpy as np
import pytest

import jaxconv
from tests.support import oracle, small
from tests.support.oracle import round_to


def line(*values):
    """One batch, one channel, one spatial axis, NXC or XIO or XOI (weights) alike."""
    return np.array(values, np.float64).reshape(1, -1, 1)


def taps(*values):
    return np.array(values, np.float64).reshape(-1, 1, 1)


EIGHT = line(1, 2, 4, 8), taps(1, 10)
SEVEN = line(3, 5, 7), taps(1, 10)
LOWER, UPPER = {"auto_pad": "same_lower"}, {"auto_pad": "SAME_UPPER"}
# op, its arrays, its attributes, the result
LINES = [
    ("convolution", EIGHT, {"strides": 2, "pads_begin": 1}, [10, 42]),
    ("convolution", EIGHT, {"dilations": 3, "pads_end": 1}, [81, 2]),
    ("convolution", EIGHT, UPPER, [21, 42, 84, 8]),
    ("convolution", EIGHT, LOWER | {"strides": 3, "pads_end": 7}, [10, 84]),
    ("convolution", EIGHT, {"auto_pad": "Valid", "pads_begin": [5]}, [21, 42, 84]),
    ("convolution", EIGHT, {"auto_pad": None, "pads_begin": [], "pads_end": [1]}, [21, 42, 84, 8]),
    *(
        row
        for op in ("conv_transpose", "convolution_backward_data")
        for row in [
            (op, SEVEN, {"strides": 3}, [3, 30, 0, 5, 50, 0, 7, 70]),
            (op, SEVEN, {"strides": 2, "pads_begin": 1, "output_padding": 1},
             [30, 5, 50, 7, 70, 0]),
            (op, SEVEN, {"dilations": 2, "pads_end": 1}, [3, 5, 37, 50]),
            (op, SEVEN, UPPER, [3, 35, 57]),
            (op, SEVEN, LOWER, [35, 57, 70]),
        ]
    ),
    # The forward rule splits SAME by the fine size: for 6 with stride 2 nothing is padded.
    ("convolution_backward_data", (*SEVEN, [1, 5, 1]), LOWER | {"strides": 2}, [30, 5, 50, 7, 70]),
    ("convolution_backward_data", (*SEVEN, [1, 7, 1]), {"strides": 2}, [3, 30, 5, 50, 7, 70, 0]),
    ("conv_transpose", SEVEN, LOWER | {"strides": 2, "dst_shape": [1, 3, 1]}, [5, 50, 7]),
    ("conv_transpose", SEVEN, UPPER | {"strides": 2, "dst_shape": [1, 4, 1]}, [30, 5, 50, 7]),
    ("conv_transpose", SEVEN, LOWER | {"strides": 2, "dst_shape": [1, 2, 1]}, [5, 50]),
    ("conv_transpose", SEVEN, LOWER | {"strides": 2, "dst_shape": [1, 7, 1]},
     [3, 30, 5, 50, 7, 70, 0]),
    # 5 + 1 of output padding, of which 7 - 6 = 1 has to be padded away: at the beginning
    ("conv_transpose", SEVEN,
     LOWER | {"strides": 2, "output_padding": 1, "dst_shape": [1, 6, 1]}, [30, 5, 50, 7, 70, 0]),
    # SAME of a transposed convolution has EK - S zeros whatever the size: here 0.
    ("conv_transpose_backward_data", EIGHT, LOWER | {"strides": 2}, [21, 84]),
    ("conv_transpose_backward_data", EIGHT, {"strides": 2, "output_padding": 2}, [21]),
    # 1*3 + 2*5, 2*3 + 4*5, and so on
    ("convolution_backward_weights", (EIGHT[0], line(3, 5), (2, 1, 1)),
     {"strides": 3, "pads_begin": 1}, [20, 3 + 40]),
    ("conv_transpose_backward_weights", (line(3, 5), EIGHT[0], (3, 1, 1)), {}, [13, 26, 52]),
]  # fmt: skip


@pytest.mark.parametrize(("op", "arrays", "attributes", "expected"), LINES)
def test_a_line(op, arrays, attributes, expected):
    """Of the oracle, and of the package."""
    result = getattr(oracle, op)(*arrays, **attributes)
    np.testing.assert_array_equal(result.ravel(), expected)
    found = getattr(jaxconv, op)(*map(np.float32, arrays[:2]), *arrays[2:], **attributes)
    np.testing.assert_array_equal(found, result)


def test_axes_are_not_mixed_up():
    src = np.array([[1, 2, 3], [4, 5, 6]])[None, None]
    weights = np.array([[1, 10], [100, 1000]])[None, None]
    formats = {"data_format": "NCX", "weights_format": "OIX"}
    result = oracle.convolution(src, weights, strides=(2, 1), pads_begin=[1, 0], **formats)
    np.testing.assert_array_equal(result, [[[[2100, 3200]]]])
    result = oracle.conv_transpose(src, weights, strides=(1, 2), pads_end=(1, 2), **formats)
    np.testing.assert_array_equal(result, [[[[1, 10, 2, 20], [104, 1040, 205, 2050]]]])


def weights_in(fmt, *by_dst_src):
    """Weights of one tap, given by group as rows for O and columns for I."""
    axis = 0 if fmt.endswith("dst") else 1
    matrix = np.concatenate(by_dst_src, axis)
    matrix = matrix if fmt[:3].replace("X", "") == "OI" else matrix.T
    return matrix[None] if fmt.startswith("X") else matrix[..., None]


@pytest.mark.parametrize("data_format", ["NXC", "NCX"])
@pytest.mark.parametrize("weights_format", ["OIX", "XIO", "IOX", "XOI"])
@pytest.mark.parametrize("family", ["convolution dst", "conv_transpose src", "conv_transpose dst"])
def test_groups(data_format, weights_format, family):
    """Channels (1, 2 | 3, 4) to (a, b, c | d, e, f): by the axis that has those of all groups.

    Of the oracle, and of the package.
    """
    op, holds_all = family.split()
    attributes = {"data_format": data_format, "weights_format": weights_format, "groups": 2}
    fmt = weights_format + holds_all

    def channels(*values):
        return np.array(values).reshape((1, 1, -1) if data_format == "NXC" else (1, -1, 1))

    src, diff_dst = channels(1, 2, 3, 4), channels(1, 0, 2, 0, 1, 3)
    weights = weights_in(fmt, [[1, 10], [2, 20], [3, 30]], [[4, 40], [5, 50], [6, 60]])
    dst = channels(121, 242, 363, 572, 715, 858)
    bias = np.arange(100, 700, 100)
    np.testing.assert_array_equal(getattr(oracle, op)(src, weights, bias, **attributes), dst)
    found = getattr(jaxconv, op)(*map(np.float32, (src, weights, bias)), **attributes)
    np.testing.assert_array_equal(found, dst)
    result = getattr(oracle, f"{op}_backward_data")(diff_dst, weights, **attributes)
    np.testing.assert_array_equal(result, channels(7, 70, 23, 230))
    backward = getattr(oracle, f"{op}_backward_weights")
    expected = weights_in(fmt, [[1, 2], [0, 0], [2, 4]], [[0, 0], [3, 4], [9, 12]])
    found = backward(src, diff_dst, list(weights.shape), **attributes)
    np.testing.assert_array_equal(found, expected)


def test_the_three_contractions_are_one_trilinear_form():
    """So those of the package are, too, where each result is that of the oracle."""
    rng = np.random.default_rng(9)
    for form in small.draw(9, 100):
        axes = oracle.resolve("convolution", form.fine, form.kernel, None, **form.attributes)
        channels = (2, 3, 4), (3, 5, 4), (2, 3, 5)  # N G I, G O I, N G O
        sizes = form.fine, form.kernel, form.coarse
        shapes = [(*c, *x) for c, x in zip(channels, sizes, strict=True)]
        fine, kernel, coarse = (rng.integers(-9, 10, shape) for shape in shapes)
        form = np.sum(oracle.to_coarse(fine, kernel, axes) * coarse)
        assert form == np.sum(oracle.to_fine(coarse, kernel, axes) * fine)
        assert form == np.sum(oracle.to_kernel(fine, coarse, axes) * kernel)


def test_only_what_is_read_becomes_non_finite():
    result = oracle.convolution(line(1, 2, np.inf, 8), taps(1, 10), dilations=2)
    np.testing.assert_array_equal(result, line(np.inf, 82))


@pytest.mark.parametrize(
    ("op", "fine", "coarse", "attributes"),
    [
        ("convolution", 1, None, {}),
        ("convolution_backward_data", 8, 3, {"strides": 2}),  # 8 leads to 4
        ("convolution_backward_weights", 8, 3, {"strides": 2}),
        ("conv_transpose", None, 1, {"pads_begin": 1, "pads_end": 1}),
        ("conv_transpose_backward_data", 8, None, {"strides": 2, "output_padding": 1}),
        ("conv_transpose_backward_weights", 8, 3, {"strides": 2, "output_padding": 1}),
    ],
)
def test_sizes_that_do_not_fit(op, fine, coarse, attributes):
    """With a kernel of 2."""
    with pytest.raises(ValueError, match="do not fit"):
        oracle.resolve(op, fine and (fine,), (2,), coarse and (coarse,), **attributes)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_rounding_agrees_with_the_casts_of_numpy(dtype):
    """They round once; to bfloat16 there is no such cast."""
    rng = np.random.default_rng(7)
    x = rng.standard_normal(5000) * 2.0 ** rng.integers(-160, 140, 5000)
    x = np.concatenate([x, [0.0, -0.0, np.inf, -np.inf, np.nan, 65519.0, 65520.0, 2.0**-150]])
    with np.errstate(over="ignore", under="ignore"):
        np.testing.assert_array_equal(round_to(x, dtype), x.astype(dtype), strict=True)


def test_rounding_to_bfloat16_is_to_nearest_even():
    """Against the two neighbours: numbers near ties, which rounding through float32 gets wrong."""
    bits = np.arange(0x7F80, dtype=np.uint16)  # every finite non-negative one
    below = bits[:-1].view(ml_dtypes.bfloat16).astype(np.float64)
    above = bits[1:].view(ml_dtypes.bfloat16).astype(np.float64)
    middle = (below + above) / 2
    for sign in (1, -1):
        nearly = sign * np.nextafter(middle, np.inf), sign * np.nextafter(middle, 0)
        np.testing.assert_array_equal(round_to(nearly[0], ml_dtypes.bfloat16), sign * above)
        np.testing.assert_array_equal(round_to(nearly[1], ml_dtypes.bfloat16), sign * below)
        even = np.where(bits[:-1] % 2 == 0, below, above)
        np.testing.assert_array_equal(round_to(sign * middle, ml_dtypes.bfloat16), sign * even)
    largest = above[-1]
    found = round_to([largest, largest + 2.0**119], ml_dtypes.bfloat16).astype(np.float64)
    np.testing.assert_array_equal(found, [largest, np.inf])
