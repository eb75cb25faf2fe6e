"""The oracle against sums done by hand; `test_literal.py` has those of oneDNN's own unit tests.

Every array is small enough to be checked by reading: the taps are powers of ten, so that the
digits of a result show which elements met which taps.
"""

import ml_dtypes
import numpy as np
import pytest

from tests.support import oracle
from tests.support.oracle import round_to


def line(*values):
    """One batch, one channel, one spatial axis, NXC or XIO or XOI (weights) alike."""
    return np.array(values, np.float64).reshape(1, -1, 1)


def taps(*values):
    return np.array(values, np.float64).reshape(-1, 1, 1)


# By hand: one axis.


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({}, [21, 42, 84]),
        ({"pads_begin": 1}, [10, 21, 42, 84]),
        ({"pads_end": 2}, [21, 42, 84, 8, 0]),
        ({"strides": 2}, [21, 84]),
        ({"strides": 3}, [21]),
        ({"strides": 2, "pads_begin": 1}, [10, 42]),
        ({"dilations": 2}, [41, 82]),
        ({"dilations": 3, "pads_end": 1}, [81, 2]),
        ({"auto_pad": "SAME_UPPER"}, [21, 42, 84, 8]),
        ({"auto_pad": "same_lower", "pads_end": 7}, [10, 21, 42, 84]),
        ({"auto_pad": "same_lower", "strides": 3}, [10, 84]),
        ({"auto_pad": "Valid", "pads_begin": [5], "pads_end": (6,)}, [21, 42, 84]),
        ({"auto_pad": None, "pads_begin": [], "pads_end": [1]}, [21, 42, 84, 8]),
        ({"auto_pad": "NOTSET", "pads_end": 1}, [21, 42, 84, 8]),
    ],
)
def test_convolution_of_a_line(attributes, expected):
    result = oracle.convolution(line(1, 2, 4, 8), taps(1, 10), **attributes)
    np.testing.assert_array_equal(result, line(*expected))


@pytest.mark.parametrize(
    ("attributes", "expected"),
    [
        ({}, [3, 35, 57, 70]),
        ({"strides": 2}, [3, 30, 5, 50, 7, 70]),
        ({"strides": 3}, [3, 30, 0, 5, 50, 0, 7, 70]),
        ({"strides": 2, "pads_begin": 1}, [30, 5, 50, 7, 70]),
        ({"strides": 2, "pads_end": 3}, [3, 30, 5]),
        ({"strides": 2, "output_padding": 3}, [3, 30, 5, 50, 7, 70, 0, 0, 0]),
        ({"strides": 2, "pads_end": 2, "output_padding": 1}, [3, 30, 5, 50, 7]),
        ({"dilations": 2}, [3, 5, 37, 50, 70]),
        ({"auto_pad": "same_upper"}, [3, 35, 57]),
        ({"auto_pad": "same_lower"}, [35, 57, 70]),
        ({"auto_pad": "same_upper", "strides": 3}, [3, 30, 0, 5, 50, 0, 7, 70]),
    ],
)
def test_transpose_of_a_line(attributes, expected):
    """conv_transpose, and convolution_backward_data, which has its sizes without dst_shape."""
    for op in (oracle.conv_transpose, oracle.convolution_backward_data):
        result = op(line(3, 5, 7), taps(1, 10), **attributes)
        np.testing.assert_array_equal(result, line(*expected))


@pytest.mark.parametrize(
    ("op", "size", "attributes", "expected"),
    [
        # The forward rule splits SAME by the fine size: for 6 with stride 2 nothing is padded.
        (
            "convolution_backward_data",
            5,
            {"strides": 2, "auto_pad": "same_lower"},
            [30, 5, 50, 7, 70],
        ),
        (
            "convolution_backward_data",
            6,
            {"strides": 2, "auto_pad": "same_lower"},
            [3, 30, 5, 50, 7, 70],
        ),
        # A size between strides leaves its end at zero.
        ("convolution_backward_data", 7, {"strides": 2}, [3, 30, 5, 50, 7, 70, 0]),
        # Output padding: the sizes of conv_transpose, also beyond the stride.
        (
            "convolution_backward_data",
            9,
            {"strides": 2, "output_padding": 3},
            [3, 30, 5, 50, 7, 70, 0, 0, 0],
        ),
        ("conv_transpose", 9, {"strides": 2}, [3, 30, 5, 50, 7, 70, 0, 0, 0]),
        ("conv_transpose", 4, {"strides": 2, "auto_pad": "same_upper"}, [30, 5, 50, 7]),
        ("conv_transpose", 3, {"strides": 2, "auto_pad": "same_upper"}, [30, 5, 50]),
        ("conv_transpose", 3, {"strides": 2, "auto_pad": "same_lower"}, [5, 50, 7]),
        ("conv_transpose", 7, {"strides": 2, "auto_pad": "same_lower"}, [3, 30, 5, 50, 7, 70, 0]),
        # 5 + 1 of output padding, of which 7 - 6 = 1 has to be padded away: at the beginning.
        (
            "conv_transpose",
            6,
            {"strides": 2, "auto_pad": "same_lower", "output_padding": 1},
            [30, 5, 50, 7, 70, 0],
        ),
    ],
)
def test_given_size_of_a_line(op, size, attributes, expected):
    result = getattr(oracle, op)(line(3, 5, 7), taps(1, 10), dst_shape=[1, size, 1], **attributes)
    np.testing.assert_array_equal(result, line(*expected))


def test_backward_weights_of_a_line():
    """Taps are sums of src times diff_dst: 1*3 + 2*5, 2*3 + 4*5, and so on."""
    fine, coarse = line(1, 2, 4, 8), line(3, 5)
    for attributes, expected in (
        ({"pads_end": 0, "kernel": 3}, [13, 26, 52]),
        ({"pads_begin": 1, "strides": 3, "kernel": 2}, [20, 3 + 40]),
        ({"dilations": 3, "pads_end": 1, "kernel": 2}, [13, 24]),
        ({"strides": 2, "kernel": 1}, [23]),
    ):
        kernel = attributes.pop("kernel")
        backward = oracle.convolution_backward_weights
        result = backward(fine, coarse, (kernel, 1, 1), **attributes)
        np.testing.assert_array_equal(result, taps(*expected))
        swapped = oracle.conv_transpose_backward_weights
        result = swapped(coarse, fine, np.array([kernel, 1, 1]), **attributes)
        np.testing.assert_array_equal(result, taps(*expected))


def test_conv_transpose_backward_data_of_a_line():
    """The windows of a convolution; what the last stride does not reach is output padding."""
    backward, fine, weights = oracle.conv_transpose_backward_data, line(1, 2, 4, 8, 9), taps(1, 10)
    for attributes, expected in (
        ({}, [21, 42, 84, 98]),
        ({"strides": 2}, [21, 84]),
        ({"strides": 2, "output_padding": 1}, [21, 84]),
        ({"strides": 2, "output_padding": 3}, [21]),
        ({"strides": 2, "pads_begin": 1}, [10, 42, 98]),
        # SAME of a transposed convolution has EK - S zeros whatever the size: here 0.
        ({"strides": 2, "auto_pad": "same_lower"}, [21, 84]),
    ):
        np.testing.assert_array_equal(backward(fine, weights, **attributes), line(*expected))


# By hand: several axes, channels, groups, layouts.


def test_axes_are_not_mixed_up():
    src = np.array([[1, 2, 3], [4, 5, 6]])[None, None]
    weights = np.array([[1, 10], [100, 1000]])[None, None]
    formats = {"data_format": "NCX", "weights_format": "OIX"}
    result = oracle.convolution(src, weights, **formats)
    np.testing.assert_array_equal(result, [[[[5421, 6532]]]])
    result = oracle.convolution(src, weights, strides=(2, 1), pads_begin=[1, 0], **formats)
    np.testing.assert_array_equal(result, [[[[2100, 3200]]]])
    result = oracle.conv_transpose(src, weights, strides=(1, 2), pads_end=(1, 2), **formats)
    np.testing.assert_array_equal(result, [[[[1, 10, 2, 20], [104, 1040, 205, 2050]]]])


FORMATS = ("OIX", "XIO", "IOX", "xoi")


def weights_in(fmt, by_dst_src):
    """Weights of one tap, given as rows for O and columns for I."""
    matrix = np.array(by_dst_src)
    matrix = matrix if fmt.upper().replace("X", "") == "OI" else matrix.T
    return matrix[None] if fmt.upper().startswith("X") else matrix[..., None]


def channels_in(fmt, *values):
    return np.array([[values]]) if fmt == "NXC" else np.array(values)[None, :, None]


@pytest.mark.parametrize("data_format", ["NXC", "NCX"])
@pytest.mark.parametrize("weights_format", FORMATS)
def test_groups_of_a_convolution(data_format, weights_format):
    """Channels (1, 2 | 3, 4) to (a, b, c | d, e, f): the dst axis of the weights has all six."""
    attributes = {"data_format": data_format, "weights_format": weights_format, "groups": 2}
    src = channels_in(data_format, 1, 2, 3, 4)
    weights = weights_in(weights_format, [[1, 10], [2, 20], [3, 30], [4, 40], [5, 50], [6, 60]])
    dst = channels_in(data_format, 21, 42, 63, 172, 215, 258)
    np.testing.assert_array_equal(oracle.convolution(src, weights, **attributes), dst)
    biased = oracle.convolution(src, weights, np.arange(100, 700, 100), **attributes)
    added = channels_in(data_format, 100, 200, 300, 400, 500, 600)
    np.testing.assert_array_equal(biased, dst + added)

    diff_dst = channels_in(data_format, 1, 0, 2, 0, 1, 3)
    diff_src = channels_in(data_format, 7, 70, 23, 230)
    result = oracle.convolution_backward_data(diff_dst, weights, **attributes)
    np.testing.assert_array_equal(result, diff_src)

    diff_weights = weights_in(weights_format, [[1, 2], [0, 0], [2, 4], [0, 0], [3, 4], [9, 12]])
    backward = oracle.convolution_backward_weights
    result = backward(src, diff_dst, list(weights.shape), **attributes)
    np.testing.assert_array_equal(result, diff_weights)


@pytest.mark.parametrize("data_format", ["NXC", "NCX"])
@pytest.mark.parametrize("weights_format", FORMATS)
@pytest.mark.parametrize("reading", ["all src channels", "all dst channels"])
def test_groups_of_a_transposed_convolution(data_format, weights_format, reading):
    """Channels (1, 2 | 3, 4) to (a, b, c | d, e, f), by both readings of the weights.

    One has rows for a group's three dst channels and columns for all src channels, the other
    rows for all dst channels and columns for a group's two src channels.
    """
    attributes = {"data_format": data_format, "weights_format": weights_format, "groups": 2}

    def weights_of(first_group, second_group):
        axis = 1 if reading == "all src channels" else 0
        return weights_in(weights_format, np.concatenate([first_group, second_group], axis))

    src = channels_in(data_format, 1, 2, 3, 4)
    weights = weights_of([[1, 10], [2, 20], [3, 30]], [[4, 40], [5, 50], [6, 60]])
    dst = channels_in(data_format, 21, 42, 63, 172, 215, 258)
    np.testing.assert_array_equal(oracle.conv_transpose(src, weights, **attributes), dst)
    biased = oracle.conv_transpose(src, weights, np.arange(100, 700, 100), **attributes)
    added = channels_in(data_format, 100, 200, 300, 400, 500, 600)
    np.testing.assert_array_equal(biased, dst + added)

    diff_dst = channels_in(data_format, 1, 0, 2, 0, 1, 3)
    diff_src = channels_in(data_format, 7, 70, 23, 230)
    result = oracle.conv_transpose_backward_data(diff_dst, weights, **attributes)
    np.testing.assert_array_equal(result, diff_src)

    diff_weights = weights_of([[1, 2], [0, 0], [2, 4]], [[0, 0], [3, 4], [9, 12]])
    backward = oracle.conv_transpose_backward_weights
    result = backward(src, diff_dst, weights.shape, **attributes)
    np.testing.assert_array_equal(result, diff_weights)


def test_batch_elements_are_apart_and_summed_in_weights():
    src, diff_dst = np.array([[[1], [2]], [[4], [8]]]), np.array([[[3]], [[5]]])
    expected = [[[21]], [[84]]]
    np.testing.assert_array_equal(oracle.convolution(src, taps(1, 10)), expected)
    result = oracle.convolution_backward_weights(src, diff_dst, (2, 1, 1))
    np.testing.assert_array_equal(result, taps(3 + 20, 6 + 40))
    none = oracle.convolution_backward_weights(src[:0], diff_dst[:0], (2, 1, 1))
    np.testing.assert_array_equal(none, taps(0, 0))


def test_only_what_is_read_becomes_non_finite():
    result = oracle.convolution(line(1, 2, np.inf, 8), taps(1, 10), dilations=2)
    np.testing.assert_array_equal(result, line(np.inf, 82))
    result = oracle.convolution(line(1, 2), taps(np.nan, 10), pads_begin=1)
    np.testing.assert_array_equal(result, line(10, np.nan))


@pytest.mark.parametrize(
    ("op", "fine", "coarse", "attributes"),
    [
        ("convolution", 1, None, {}),
        ("convolution_backward_data", 8, 3, {"strides": 2}),  # 8 leads to 4
        ("convolution_backward_data", 5, 3, {"strides": 2}),  # 5 leads to 2
        ("convolution_backward_data", 8, 3, {"strides": 2, "output_padding": 1}),
        ("convolution_backward_data", None, 1, {"pads_begin": 1, "pads_end": 1}),
        ("convolution_backward_weights", 8, 3, {"strides": 2}),
        ("conv_transpose", None, 1, {"pads_begin": 1, "pads_end": 1}),
        ("conv_transpose", 5, 3, {"strides": 2}),
        ("conv_transpose", 8, 3, {"strides": 2, "output_padding": 1}),
        ("conv_transpose_backward_data", 8, None, {"strides": 2, "output_padding": 1}),
        ("conv_transpose_backward_data", 3, None, {"output_padding": 2}),
        ("conv_transpose_backward_weights", 5, 3, {"strides": 2}),
        ("conv_transpose_backward_weights", 8, 3, {"strides": 2, "output_padding": 1}),
    ],
)
def test_sizes_that_do_not_fit(op, fine, coarse, attributes):
    """With a kernel of 2."""
    with pytest.raises(ValueError, match="do not fit"):
        oracle.resolve(op, fine and (fine,), (2,), coarse and (coarse,), **attributes)


# Rounding.


def test_rounding_agrees_with_exact_casts():
    """NumPy's own casts to float16 and float32 round once."""
    rng = np.random.default_rng(7)
    x = rng.standard_normal(5000) * 2.0 ** rng.integers(-160, 140, 5000)
    x = np.concatenate([x, [0.0, -0.0, np.inf, -np.inf, np.nan, 65519.0, 65520.0, 2.0**-150]])
    for dtype in (np.float16, np.float32, np.float64):
        with np.errstate(over="ignore", under="ignore"):
            expected = x.astype(dtype)
        result = round_to(x, dtype)
        assert result.dtype == dtype
        np.testing.assert_array_equal(result, expected)
        np.testing.assert_array_equal(np.signbit(result), np.signbit(expected))


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
        np.testing.assert_array_equal(round_to(sign * below, ml_dtypes.bfloat16), sign * below)
    through_float32 = np.nextafter(middle, np.inf).astype(np.float32).astype(ml_dtypes.bfloat16)
    assert (through_float32.astype(np.float64) != above).any()  # the error this guards against


def test_rounding_to_bfloat16_overflows_at_half_a_unit_above_the_largest():
    largest = float(ml_dtypes.finfo(ml_dtypes.bfloat16).max)
    middle = largest + 2.0**119
    result = round_to([largest, np.nextafter(middle, 0), middle], ml_dtypes.bfloat16)
    np.testing.assert_array_equal(result.astype(np.float64), [largest, largest, np.inf])
