"""`onednn.apply`: every kind, the names of inputs and attributes, dumps; and what it refuses."""

import re

import jax
import numpy as np
import pytest

from jaxconv import onednn
from jaxconv._base.messages import named
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
    "src": ["input_forward", "input"], "diff_dst": ["output_delta"], "weights": ["filter"],
    "weights_shape": ["filter_shape"], "dst_shape": ["output_shape"],
}  # fmt: skip
TRANSPOSED_TODAY = ("ConvTranspose", "ConvTransposeBackwardData", "ConvTransposeBackwardWeights")
every_shape = pytest.mark.parametrize(
    ("kind", "shape"),
    [(kind, name) for kind in EXAMPLES for name in EXAMPLES[kind][0] if name.endswith("_shape")],
)


def check(kind, inputs, attributes, expected):
    np.testing.assert_array_equal(onednn.apply(kind, inputs, attributes), expected, strict=True)


def test_kinds_are_the_six_of_today_and_the_six_older_ones():
    assert sorted(onednn.KINDS) == sorted(EXAMPLES)


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


@every_kind
def test_weights_format_by_either_name(kind):
    inputs, attributes, expected = EXAMPLES[kind]
    own, other = ("XOI", "XIO") if kind in TRANSPOSED_TODAY else ("XIO", "XOI")
    for name in ("weights_format", "filter_format"):
        check(kind, inputs, attributes | {name: own}, expected)
        with pytest.raises(ValueError, match=f"^{kind}: "):  # 2 and 1 channels, the wrong way
            onednn.apply(kind, inputs, attributes | {name: other})


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
def test_negative_pads_are_refused(kind, name):
    inputs, attributes, _ = EXAMPLES[kind]
    message = f"{kind}: `{name}` must be at least 0 on every axis; got [-1]"
    refused(message, kind, inputs, attributes | {name: [-1]})


@pytest.mark.parametrize(
    ("given", "precision"),
    [
        ({}, None), ({"precision": "highest"}, "HIGHEST"), ({"fpmath_mode": "strict"}, "HIGHEST"),
        ({"fpmath_mode": "tf32"}, "HIGH"), ({"fpmath_mode": "bf16"}, "DEFAULT"),
        ({"fpmath_mode": "f16"}, "DEFAULT"), ({"fpmath_mode": "any"}, "DEFAULT"),
    ],
)  # fmt: skip
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


SRC = {"src": FINE, "weights": TAPS}
INPUTS = "the inputs are src, weights, bias (older: input, input_forward, filter)"
ATTRIBUTES = (
    "the attributes are strides, pads_begin, pads_end, dilations, auto_pad, groups, data_format, "
    "weights_format"
)
KIND = f"`kind` must be one of {', '.join(onednn.KINDS)}"


@pytest.mark.parametrize(
    ("message", "kind", "inputs"),
    [
        ("the input `src` is required; got none", "Convolution", []),
        ("the input `weights` is required; got `src`", "Convolution", [FINE, None]),
        ("the input `diff_dst` is required; got `weights`", "ConvTransposeBackwardData",
         {"weights": TAPS}),
        ("`inputs` must be at most 2, `diff_dst`, `weights`; got 3", "ConvTransposeBackwardData",
         [FINE, TAPS, None]),
        (f"{INPUTS}; got 'weight'; did you mean 'weights'?", "Convolution", {"weight": TAPS}),
        ("the inputs are diff_dst, weights, dst_shape (older: output_delta, filter, "
         "output_shape); got 'src'", "ConvolutionBackwardData", SRC),
        ("the inputs `src` and `input` are two names of the same; got both", "Convolution",
         SRC | {"input": FINE}),
        *(
            ("`inputs` must be a sequence or a dict by name of `src`, `weights`, `bias`; got "
             f"{type(inputs).__name__}", "Convolution", inputs)
            for inputs in (FINE, "src", None)
        ),
    ],
)  # fmt: skip
def test_wrong_inputs(message, kind, inputs):
    error = TypeError if "sequence" in message else ValueError
    refused(f"{kind}: {message}", kind, inputs, EXAMPLES[kind][1], error)


@pytest.mark.parametrize(
    ("message", "kind", "attributes"),
    [
        (f"{ATTRIBUTES} (older: filter_format); got 'stride'; did you mean 'strides'?",
         "Convolution", {"stride": [1]}),
        (f"{ATTRIBUTES} (older: filter_format); got 0", "Convolution", {0: [1]}),
        (f"{ATTRIBUTES}, output_padding, weights_shape (older: filter_format, filter_shape); got "
         "'filters_shape'; did you mean 'filter_shape'?",
         "ConvTransposeBackpropFilters", {"filters_shape": [1]}),
        (f"{ATTRIBUTES}, output_padding (older: filter_format); got 'weights_shape'; did you mean "
         "'weights_format'?", "ConvTransposeBackwardData", {"weights_shape": [1]}),
        *(
            (f"the attributes `{today}` and `{OLDER_ATTRIBUTES[today]}` are two names of the same; "
             "got both", kind, {today: None, OLDER_ATTRIBUTES[today]: [1]})
            for kind, today in [
                ("Convolution", "weights_format"), ("ConvolutionBackpropData", "dst_shape"),
            ]
        ),
        ("the attribute `strides` must be a value, or a dict of its `type` and `value`; got a dict "
         "of 'type'", "Convolution", {"strides": {"type": "s64[]"}}),
        ("the type of the attribute `strides` must be string, bool, s64, s64[], f32 or f32[]; got "
         "'i64'", "Convolution", {"strides": {"type": "i64", "value": 1}}),
        ("the attribute `strides` must be a list of ints (s64[]); got [1.5] (list)",
         "Convolution", {"strides": {"type": "s64[]", "value": [1.5]}}),
        ("the attribute `strides` must be an int (s64); got True (bool)",
         "Convolution", {"strides": {"type": "s64", "value": True}}),
    ],
)  # fmt: skip
def test_wrong_attributes(message, kind, attributes):
    inputs, valid, _ = EXAMPLES[kind]
    error = TypeError if "(s64" in message else ValueError
    refused(f"{kind}: {message}", kind, inputs, valid | attributes, error)


def test_attributes_that_are_no_dict():
    message = "Convolution: `attributes` must be a dict by name; got ['strides'] (list)"
    refused(message, "Convolution", SRC, ["strides"], TypeError)


@pytest.mark.parametrize(
    ("message", "kind"),
    [
        (f"{KIND}; got 'Convolutions'; did you mean 'Convolution'?", "Convolutions"),
        (f"{KIND}; got 'conv_transpose'; did you mean 'ConvTranspose'?", "conv_transpose"),
        (f"{KIND}; got 'MatMul'", "MatMul"),
        ("`kind` must be a string; got None", None),
    ],
)
def test_an_unknown_kind(message, kind):
    error = ValueError if kind else TypeError
    refused(f"onednn.apply: {message}", kind, SRC, WINDOW, error)


@every_kind
def test_strides_pads_and_dilations_are_required(kind):
    inputs, attributes, _ = EXAMPLES[kind]
    required = f"{kind}: the attributes `strides`, `pads_begin`, `pads_end`, `dilations` are "
    for missing in WINDOW:
        given = {name: value for name, value in attributes.items() if name != missing}
        given["auto_pad"] = "valid"  # also where the pads are ignored
        refused(f"{required}required; missing: `{missing}`", kind, inputs, given)
    every = "`strides`, `pads_begin`, `pads_end`, `dilations`"
    refused(f"{required}required; missing: {every}", kind, inputs, {"groups": 1})


@every_kind
def test_errors_of_the_operation_name_the_kind(kind):
    inputs, attributes, _ = EXAMPLES[kind]
    with pytest.raises(ValueError, match=f"^{kind}: `strides` must .* got") as error:
        onednn.apply(kind, inputs, attributes | {"strides": [0]})
    assert type(error.value) is ValueError
    with pytest.raises(TypeError, match=f"^{kind}: `groups` must .* got"):
        onednn.apply(kind, inputs, attributes | {"groups": 1.0})


def test_other_errors_pass_unchanged():
    with pytest.raises(ValueError, match=r"^Broken: no array today$"), named("Convolution"):
        raise ValueError("Broken: no array today")


def test_what_a_users_array_raises_is_the_cause():
    class Broken:
        def __jax_array__(self):
            raise KeyError("mine")

    text = "^Convolution: `src` must be a JAX or NumPy array; got .* __jax_array__ raises KeyError$"
    with pytest.raises(TypeError, match=text) as caught:
        onednn.apply("Convolution", [Broken(), TAPS], WINDOW)
    assert isinstance(caught.value.__cause__, KeyError)


def test_a_traced_shape_is_refused():
    def diff_src(shape):
        return onednn.apply("ConvolutionBackpropData", [COARSE, TAPS, shape], WINDOW)

    with pytest.raises(TypeError, match=r"^ConvolutionBackpropData: `dst_shape` .* static"):
        jax.jit(diff_src)(np.array([1, 4, 2]))
