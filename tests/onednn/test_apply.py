"""`onednn.apply`: every kind, the names of inputs and attributes, what dumps write."""

import doctest
import re

import jax
import numpy as np
import pytest

from jaxconv import onednn
from tests.support.graphs import wrapped
from tests.support.kinds import (
    COARSE,
    COARSE_TAPS,
    EXAMPLES,
    FINE,
    FINE_TAPS,
    OLDER_ATTRIBUTES,
    PADDED,
    TAPS,
    WINDOW,
    array,
    every_kind,
    refused,
)

OLDER_INPUTS = {
    "src": ["input_forward", "input"],
    "diff_dst": ["output_delta"],
    "weights": ["filter"],
    "weights_shape": ["filter_shape"],
    "dst_shape": ["output_shape"],
}
TRANSPOSED_TODAY = ("ConvTranspose", "ConvTransposeBackwardData", "ConvTransposeBackwardWeights")
every_shape = pytest.mark.parametrize(
    ("kind", "shape"),
    [(kind, name) for kind in EXAMPLES for name in EXAMPLES[kind][0] if name.endswith("_shape")],
)


def check(kind, inputs, attributes, expected):
    np.testing.assert_array_equal(onednn.apply(kind, inputs, attributes), expected, strict=True)


def test_kinds_are_the_six_of_today_and_the_six_older_ones():
    assert sorted(onednn.KINDS) == sorted(EXAMPLES)


def test_the_docstring_example_runs():
    result = doctest.testmod(onednn)
    assert result.attempted > 5
    assert result.failed == 0


# Inputs


@every_kind
def test_inputs_in_order_by_name_and_by_older_names(kind):
    inputs, attributes, expected = EXAMPLES[kind]
    older = [{OLDER_INPUTS[name][at]: x for name, x in inputs.items()} for at in (0, -1)]
    for given in (list(inputs.values()), dict(reversed(inputs.items())), *older):
        before = str(given), str(attributes)
        check(kind, given, attributes, expected)
        assert before == (str(given), str(attributes))


@every_shape
def test_a_shape_may_be_an_attribute_or_an_input(kind, shape):
    """Given as both, it is the input."""
    inputs, attributes, expected = EXAMPLES[kind]
    tensors = {name: value for name, value in inputs.items() if name != shape}
    for by in (list, tuple, np.array, jax.numpy.array):
        value = by(inputs[shape])
        check(kind, tensors | {shape: value}, attributes, expected)
        for name in (shape, OLDER_ATTRIBUTES[shape]):
            check(kind, tensors, attributes | {name: value}, expected)
            check(kind, [*tensors.values(), None], attributes | {name: value}, expected)
            check(kind, inputs, attributes | {name: [9]}, expected)


def test_an_extent_that_only_the_shape_tells():
    # 3 places and 4 places both lead to the 2 of coarse
    three = onednn.apply("ConvolutionBackwardData", [COARSE, TAPS, [1, 3, 2]], WINDOW)
    np.testing.assert_array_equal(three, COARSE_TAPS[:, :3])


def test_bias():
    bias = array([7], 1)
    check("Convolution", [FINE, TAPS, bias], WINDOW, FINE_TAPS + 7)
    check("Convolution", {"bias": bias, "src": FINE, "weights": TAPS}, WINDOW, FINE_TAPS + 7)
    check("Convolution", [FINE, TAPS, None], WINDOW, FINE_TAPS)
    check("ConvTranspose", [COARSE, TAPS, array([7, 9], 2)], PADDED, COARSE_TAPS + array([7, 9], 2))


# Attributes


@every_kind
def test_weights_format_by_either_name(kind):
    inputs, attributes, expected = EXAMPLES[kind]
    own, other = ("XOI", "XIO") if kind in TRANSPOSED_TODAY else ("XIO", "XOI")
    for name in ("weights_format", "filter_format"):
        check(kind, inputs, attributes | {name: own}, expected)
        with pytest.raises(ValueError, match=f"^{kind}: "):  # 2 and 1 channels, the wrong way
            onednn.apply(kind, inputs, attributes | {name: other})


# What dumps of the engine write


@every_kind
def test_attributes_with_their_types(kind):
    inputs, attributes, expected = EXAMPLES[kind]
    given = attributes | {"groups": 1, "auto_pad": "None"}
    check(kind, inputs, {name: wrapped(value) for name, value in given.items()}, expected)


@pytest.mark.parametrize("zeros", [[0] * 12, (0, 0), np.zeros(12, np.int64)], ids=str)
def test_output_padding_of_more_zeros_than_axes_is_none(zeros):
    # without padding at the end the last place is gone
    check("ConvTranspose", [COARSE, TAPS], WINDOW | {"output_padding": zeros}, COARSE_TAPS[:, :3])
    for kind in ("ConvolutionBackwardData", "ConvTransposeBackwardData"):
        inputs, _, expected = EXAMPLES[kind]
        check(kind, inputs, WINDOW | {"output_padding": zeros}, expected)


def test_output_padding_of_more_than_zeros_must_fit():
    for wrong in ([0] * 11 + [1], [1, 0], [False] * 12):
        with pytest.raises((TypeError, ValueError), match=r"^ConvTranspose: `output_padding` must"):
            onednn.apply("ConvTranspose", [COARSE, TAPS], WINDOW | {"output_padding": wrong})


@every_shape
def test_a_shape_of_zeros_is_none(kind, shape):
    inputs, attributes, expected = EXAMPLES[kind]
    *tensors, _ = inputs.values()
    zeros = attributes | {shape: [0] * 12}
    check(kind, inputs, zeros, expected)
    message = f"{kind}: `{shape}` is required, as an input or as an attribute; got neither"
    for given in (attributes, attributes | {shape: None}, zeros):
        refused(message, kind, [*tensors, None], given)


@pytest.mark.parametrize("name", ["pads_begin", "pads_end"])
@every_kind
def test_negative_pads_are_refused_as_the_engine_does(kind, name):
    inputs, attributes, _ = EXAMPLES[kind]
    message = (
        f"{kind}: `{name}` must be at least 0 on every axis, as in the engine's own schema; got "
        f"[-1]. A negative pad would crop: slice the tensor instead, or give its size as "
        f"`dst_shape`, where the kind takes one"
    )
    refused(message, kind, inputs, attributes | {name: [-1]})


@pytest.mark.parametrize(
    ("given", "precision"),
    [
        ({}, None),
        ({"precision": "highest"}, "HIGHEST"),
        ({"fpmath_mode": "strict"}, "HIGHEST"),
        ({"fpmath_mode": "tf32"}, "HIGH"),
        ({"fpmath_mode": "bf16"}, "DEFAULT"),
        ({"fpmath_mode": "f16"}, "DEFAULT"),
        ({"fpmath_mode": "any"}, "DEFAULT"),
    ],
)
def test_the_precision_is_that_of_the_mode(given, precision):
    def dst(src, weights):
        return onednn.apply("Convolution", [src, weights], WINDOW, **given)

    with jax.default_matmul_precision("high"):
        jaxpr = str(jax.make_jaxpr(dst)(FINE, TAPS))
    found = set(re.findall(r"\b(HIGHEST|HIGH|DEFAULT)\b", jaxpr))
    assert found == {precision or "HIGH"}


def test_a_precision_and_a_mode_are_one_too_many():
    with pytest.raises(ValueError, match=r"^Convolution: `precision` and `fpmath_mode` say the"):
        onednn.apply("Convolution", [FINE, TAPS], WINDOW, precision="high", fpmath_mode="any")
    with pytest.raises(ValueError, match=r"^Convolution: `fpmath_mode` must be 'strict', .* 'f32'"):
        onednn.apply("Convolution", [FINE, TAPS], WINDOW, fpmath_mode="f32")
