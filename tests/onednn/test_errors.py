"""What `onednn.apply` refuses, in which words: kinds, inputs, attributes."""

import jax
import numpy as np
import pytest

from jaxconv import onednn
from jaxconv._base.messages import named
from tests.support.kinds import (
    COARSE,
    EXAMPLES,
    FINE,
    OLDER_ATTRIBUTES,
    TAPS,
    WINDOW,
    every_kind,
    refused,
)

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
    message = "Convolution: `attributes` must be a dict by name; got ['strides']"
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
