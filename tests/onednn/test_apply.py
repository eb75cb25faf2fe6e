"""The oneDNN Graph front door: every kind and name, the API's own rules, its errors.

One example, worked out by hand, serves every kind. A window of 2 taps moves in steps of 2
over 4 places of 2 channels, after one zero in front; the last place is not reached:

    fine    (1, 2) (3, 4) (5, 6) (7, 8)      taps    (1, 10) (100, 1000)      coarse    3  5

    fine . taps       0 + 1*100 + 2*1000 = 2100      3*1 + 4*10 + 5*100 + 6*1000 = 6543
    coarse . taps     3*(100, 1000)    5*(1, 10)    5*(100, 1000)    nothing
    fine . coarse     0 + 5*(3, 4) = (15, 20)        3*(1, 2) + 5*(5, 6) = (28, 36)
"""

import doctest
import re

import jax
import numpy as np
import pytest

from jaxconv import onednn
from jaxconv._base.messages import named


def array(values, *shape):
    return np.array(values, np.float32).reshape(shape)


FINE = array([1, 2, 3, 4, 5, 6, 7, 8], 1, 4, 2)
TAPS = array([1, 10, 100, 1000], 2, 2, 1)  # X, then the fine channels, then the coarse one
COARSE = array([3, 5], 1, 2, 1)

FINE_TAPS = array([2100, 6543], 1, 2, 1)
COARSE_TAPS = array([300, 3000, 5, 50, 500, 5000, 0, 0], 1, 4, 2)
FINE_COARSE = array([15, 20, 28, 36], 2, 2, 1)

WINDOW = {"strides": [2], "pads_begin": [1], "pads_end": [0], "dilations": [1]}
PADDED = WINDOW | {"output_padding": [1]}


def by_xio(taps):
    """The taps of a transposed convolution, XOI, as XIO."""
    return taps.swapaxes(1, 2)


#: kind: (inputs by today's names, attributes, output), with default formats
EXAMPLES = {
    "Convolution": ({"src": FINE, "weights": TAPS}, WINDOW, FINE_TAPS),
    "ConvolutionBackwardData": (
        {"diff_dst": COARSE, "weights": TAPS, "dst_shape": [1, 4, 2]},
        WINDOW,
        COARSE_TAPS,
    ),
    "ConvolutionBackwardWeights": (
        {"src": FINE, "diff_dst": COARSE, "weights_shape": [2, 2, 1]},
        WINDOW,
        FINE_COARSE,
    ),
    "ConvTranspose": ({"src": COARSE, "weights": TAPS}, PADDED, COARSE_TAPS),
    "ConvTransposeBackwardData": ({"diff_dst": FINE, "weights": TAPS}, PADDED, FINE_TAPS),
    "ConvTransposeBackwardWeights": (
        {"src": COARSE, "diff_dst": FINE, "weights_shape": [2, 2, 1]},
        PADDED,
        FINE_COARSE,
    ),
    "ConvTransposeBackpropData": ({"diff_dst": FINE, "weights": by_xio(TAPS)}, PADDED, FINE_TAPS),
    "ConvTransposeBackpropFilters": (
        {"src": COARSE, "diff_dst": FINE, "weights_shape": [2, 1, 2]},
        PADDED,
        by_xio(FINE_COARSE),
    ),
}
EXAMPLES["ConvolutionBackpropData"] = EXAMPLES["ConvolutionBackwardData"]
EXAMPLES["ConvolutionBackpropFilters"] = EXAMPLES["ConvolutionBackwardWeights"]
EXAMPLES["ConvolutionBackpropWeights"] = EXAMPLES["ConvolutionBackwardWeights"]
EXAMPLES["ConvTransposeBackpropWeights"] = EXAMPLES["ConvTransposeBackpropFilters"]

OLDER_INPUTS = {
    "src": ["input_forward", "input"],
    "diff_dst": ["output_delta"],
    "weights": ["filter"],
    "weights_shape": ["filter_shape"],
    "dst_shape": ["output_shape"],
}
OLDER_ATTRIBUTES = {
    "weights_format": "filter_format",
    "weights_shape": "filter_shape",
    "dst_shape": "output_shape",
}
TRANSPOSED_TODAY = ("ConvTranspose", "ConvTransposeBackwardData", "ConvTransposeBackwardWeights")
every_kind = pytest.mark.parametrize("kind", EXAMPLES)
every_shape = pytest.mark.parametrize(
    ("kind", "shape"),
    [(kind, name) for kind in EXAMPLES for name in EXAMPLES[kind][0] if name.endswith("_shape")],
)


def check(kind, inputs, attributes, expected):
    np.testing.assert_array_equal(onednn.apply(kind, inputs, attributes), expected, strict=True)


def refused(message, kind, inputs, attributes, error=ValueError):
    """The call raises exactly this error."""
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        onednn.apply(kind, inputs, attributes)


def test_kinds_are_the_six_of_today_and_the_six_older_ones():
    assert isinstance(onednn.KINDS, tuple)
    assert len(onednn.KINDS) == 12
    assert set(onednn.KINDS) == set(EXAMPLES)


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


@pytest.mark.parametrize(
    ("message", "kind", "inputs"),
    [
        ("the input `src` is required; got none", "Convolution", []),
        ("the input `weights` is required; got `src`", "Convolution", [FINE, None]),
        ("the input `diff_dst` is required; got `weights`", "ConvTransposeBackwardData",
         {"weights": TAPS}),
        ("`inputs` must be at most 2, `diff_dst`, `weights`; got 3", "ConvTransposeBackwardData",
         [FINE, TAPS, None]),
        ("the inputs are src, weights, bias (older: input, input_forward, filter); got 'weight'; "
         "did you mean 'weights'?", "Convolution", {"src": FINE, "weight": TAPS}),
        ("the inputs are diff_dst, weights, dst_shape (older: output_delta, filter, "
         "output_shape); got 'src'", "ConvolutionBackwardData", {"src": COARSE, "weights": TAPS}),
        ("the inputs `src` and `input` are two names of the same; got both", "Convolution",
         {"src": FINE, "weights": TAPS, "input": FINE}),
        ("the inputs `dst_shape` and `output_shape` are two names of the same; got both",
         "ConvolutionBackpropData",
         EXAMPLES["ConvolutionBackpropData"][0] | {"output_shape": [1, 4, 2]}),
    ],
)  # fmt: skip
def test_wrong_inputs(message, kind, inputs):
    refused(f"{kind}: {message}", kind, inputs, EXAMPLES[kind][1])


@pytest.mark.parametrize(("inputs", "got"), [(FINE, "ndarray"), ("src", "str"), (None, "NoneType")])
def test_inputs_that_are_no_collection(inputs, got):
    listed = "a sequence or a dict by name of `src`, `weights`, `bias`"
    message = f"Convolution: `inputs` must be {listed}; got {got}"
    refused(message, "Convolution", inputs, WINDOW, TypeError)


# Attributes


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


@every_shape
def test_a_shape_is_required(kind, shape):
    inputs, attributes, _ = EXAMPLES[kind]
    message = f"{kind}: `{shape}` is required, as an input or as an attribute; got neither"
    tensors = list(inputs.values())[:2]
    refused(message, kind, tensors, attributes)
    refused(message, kind, [*tensors, None], attributes | {shape: None})


@every_kind
def test_weights_format_by_either_name(kind):
    inputs, attributes, expected = EXAMPLES[kind]
    own, other = ("XOI", "XIO") if kind in TRANSPOSED_TODAY else ("XIO", "XOI")
    for name in ("weights_format", "filter_format"):
        check(kind, inputs, attributes | {name: own}, expected)
        with pytest.raises(ValueError, match=f"^{kind}: "):  # 2 and 1 channels, the wrong way
            onednn.apply(kind, inputs, attributes | {name: other})


def test_the_older_transposed_kinds_differ_in_the_default_weights_format():
    older, attributes, expected = EXAMPLES["ConvTransposeBackpropData"]
    check("ConvTransposeBackwardData", older, attributes | {"weights_format": "XIO"}, expected)
    with pytest.raises(ValueError, match=r"^ConvTransposeBackwardData: "):
        onednn.apply("ConvTransposeBackwardData", older, attributes)
    shaped = EXAMPLES["ConvTransposeBackpropFilters"][0]
    with pytest.raises(ValueError, match=r"^ConvTransposeBackwardWeights: "):
        onednn.apply("ConvTransposeBackwardWeights", shaped, attributes)


@pytest.mark.parametrize("spelling", ["None", "none", None])
def test_auto_pad_none_takes_the_pads(spelling):
    check("Convolution", [FINE, TAPS], WINDOW | {"auto_pad": spelling}, FINE_TAPS)


LISTED = (
    "the attributes are strides, pads_begin, pads_end, dilations, auto_pad, groups, data_format, "
    "weights_format"
)


@pytest.mark.parametrize(
    ("kind", "name", "message"),
    [
        ("Convolution", "stride", f"{LISTED} (older: filter_format); got 'stride'; did you mean "
         "'strides'?"),
        ("Convolution", "dst_shape", f"{LISTED} (older: filter_format); got 'dst_shape'"),
        ("Convolution", 0, f"{LISTED} (older: filter_format); got 0"),
        ("ConvTransposeBackpropFilters", "filters_shape", f"{LISTED}, output_padding, "
         "weights_shape (older: filter_format, filter_shape); got 'filters_shape'; did you mean "
         "'filter_shape'?"),
        ("ConvTransposeBackwardData", "weights_shape", f"{LISTED}, output_padding (older: "
         "filter_format); got 'weights_shape'; did you mean 'weights_format'?"),
        *(
            (kind, OLDER_ATTRIBUTES[today], f"the attributes `{today}` and "
             f"`{OLDER_ATTRIBUTES[today]}` are two names of the same; got both")
            for kind, today in [
                ("Convolution", "weights_format"), ("ConvolutionBackwardData", "dst_shape"),
                ("ConvTransposeBackpropFilters", "weights_shape"),
            ]
        ),
    ],
)  # fmt: skip
def test_wrong_attributes(kind, name, message):
    inputs, attributes, _ = EXAMPLES[kind]
    today = {older: name for name, older in OLDER_ATTRIBUTES.items()}
    both = {today[name]: None} if name in today else {}
    refused(f"{kind}: {message}", kind, inputs, attributes | both | {name: [1]})


def test_attributes_that_are_no_dict():
    message = "Convolution: `attributes` must be a dict by name; got ['strides']"
    refused(message, "Convolution", [FINE, TAPS], ["strides"], TypeError)


# What dumps of the engine write


def dumped(attributes):
    """Each value with its type beside it."""
    types = {int: "s64", str: "string", list: "s64[]", tuple: "s64[]", float: "f32", bool: "bool"}
    return {n: {"type": types[type(v)], "value": v} for n, v in attributes.items()}


@every_kind
def test_attributes_with_their_types(kind):
    inputs, attributes, expected = EXAMPLES[kind]
    check(kind, inputs, dumped(attributes | {"groups": 1, "auto_pad": "None"}), expected)


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
    tensors = [value for name, value in inputs.items() if name != shape]
    zeros = attributes | {shape: [0] * 12}
    check(kind, [*tensors, inputs[shape]], zeros, expected)
    message = f"{kind}: `{shape}` is required, as an input or as an attribute; got neither"
    refused(message, kind, tensors, zeros)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"type": "s64[]"},
         "must be a value, or a dict of its `type` and `value`; got a dict of 'type'"),
        ({"type": "s64[]", "value": [1.5]}, "must be a list of ints (s64[]); got [1.5] (list)"),
        ({"type": "s64", "value": True}, "must be an int (s64); got True (bool)"),
    ],
)  # fmt: skip
def test_wrong_types_of_attributes(value, message):
    error = TypeError if "value" in value else ValueError
    message = f"Convolution: the attribute `strides` {message}"
    refused(message, "Convolution", [FINE, TAPS], WINDOW | {"strides": value}, error)


def test_an_unknown_type_of_an_attribute():
    refused(
        "Convolution: the type of the attribute `strides` must be string, bool, s64, s64[], f32 "
        "or f32[]; got 'i64'",
        "Convolution", [FINE, TAPS], WINDOW | {"strides": {"type": "i64", "value": 1}},
    )  # fmt: skip


@pytest.mark.parametrize("name", ["pads_begin", "pads_end"])
@every_kind
def test_negative_pads_are_refused_as_the_engine_does(kind, name):
    inputs, attributes, _ = EXAMPLES[kind]
    refused(
        f"{kind}: `{name}` must be at least 0 on every axis, as in the engine's own schema; got "
        f"[-1]. A negative pad would crop: slice the tensor instead, or give its size as "
        f"`dst_shape`, where the kind takes one",
        kind,
        inputs,
        attributes | {name: [-1]},
    )


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


# Kinds and what the operations themselves refuse


@pytest.mark.parametrize(
    ("kind", "hint"),
    [
        ("Convolutions", "; did you mean 'Convolution'?"),
        ("ConvTransposeBackwardFilters", "; did you mean 'ConvTransposeBackpropFilters'?"),
        ("conv_transpose", "; did you mean 'ConvTranspose'?"),
        ("MatMul", ""),
    ],
)
def test_an_unknown_kind(kind, hint):
    message = f"onednn.apply: `kind` must be one of {', '.join(onednn.KINDS)}; got {kind!r}{hint}"
    refused(message, kind, [FINE, TAPS], WINDOW)


@pytest.mark.parametrize("kind", [None, 3, ["Convolution"]])
def test_a_kind_that_is_no_string(kind):
    message = f"onednn.apply: `kind` must be a string; got {kind!r}"
    refused(message, kind, [FINE, TAPS], WINDOW, TypeError)


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
