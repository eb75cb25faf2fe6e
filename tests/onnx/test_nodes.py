"""`jaxconv.onnx` without the package onnx: exact sums, rounding, transformations, messages."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxconv
from jaxconv.onnx import apply, apply_node
from tests.support import oracle
from tests.support.activations import FORMULAS
from tests.support.peers import bytes_of, integers

OIX = {"data_format": "NCX", "weights_format": "OIX"}


@pytest.fixture
def rng():
    return np.random.default_rng(3)


def sums_of(x, w, x_zero, w_zero, **attributes):
    """The sums by their definition, in float64: exact."""
    w_zero = np.reshape(np.float64(w_zero), (-1,) + (1,) * (w.ndim - 1))
    return oracle.convolution(
        np.float64(x) - np.float64(x_zero), np.float64(w) - w_zero, **OIX, **attributes
    )


#: Shapes that are summed in each way: XLA's convolution, a dot for each image, float32.
LAYERS = {
    "dense": ((2, 45, 5, 4), (4, 45, 2, 3), 1), "one tap": ((3, 5, 4, 3), (2, 5, 1, 1), 1),
    "1d": ((2, 90, 9), (3, 90, 3), 1), "stem": ((2, 3, 5, 4), (4, 3, 2, 3), 1),
    "one tap in groups": ((2, 518, 3, 2), (4, 259, 1, 1), 2),
    "groups": ((1, 4, 3, 5), (6, 2, 2, 3), 2),
    "3d depthwise": ((1, 3, 4, 3, 5), (6, 1, 2, 2, 3), 3),
    "large groups": ((1, 80, 5, 4), (4, 40, 3, 3), 2),
}  # fmt: skip


@pytest.mark.parametrize("types", ["uint8 int8", "int8 uint8"])
@pytest.mark.parametrize("layer", LAYERS)
def test_sums_are_exact(rng, layer, types):
    """Of any bytes, with pads, which are zero after the zero point is taken off."""
    x_shape, w_shape, groups = LAYERS[layer]
    rank = len(x_shape) - 2
    x, w = (bytes_of(rng, *each) for each in zip((x_shape, w_shape), types.split(), strict=True))
    x_zero, w_zero = bytes_of(rng, (), x.dtype), bytes_of(rng, w_shape[:1], w.dtype)
    strides, pads = [2, 1, 1][:rank], [1, 2, 0][:rank] + [0, 1, 2][:rank]
    attributes = {"group": groups, "strides": strides, "pads": pads}
    window = {
        "groups": groups, "strides": strides, "pads_begin": pads[:rank], "pads_end": pads[rank:],
    }  # fmt: skip
    for zeros in ([x_zero, w_zero], [x_zero], []):
        found = apply("ConvInteger", attributes, [x, w, *zeros])
        expected = sums_of(x, w, *[*zeros, 0, 0][:2], **window)
        assert found.dtype == np.int32
        np.testing.assert_array_equal(found, expected)


def quantised(sums, y_zero, y_scale=1):
    """One pixel of one tap, and a bias that is the sum."""
    sums = np.asarray(sums, np.int32)
    nothing, one = np.zeros((1, 1, 1), np.uint8), np.float32(1)
    w = np.zeros((len(sums), 1, 1), np.int8)
    inputs = [nothing, one, np.uint8(0), w, one, np.int8(0), np.float32(y_scale), y_zero, sums]
    return apply("QLinearConv", {}, inputs)


def test_ties_go_to_the_even_integer_before_the_zero_point_is_added():
    """As QuantizeLinear's page says of `x / y_scale`; ONNX's evaluator rounds after."""
    for zero in (np.uint8(7), np.int8(-4)):
        found = quantised(range(-3, 6), zero, y_scale=2)
        assert found.dtype == zero.dtype
        rounded = [-2, -1, 0, 0, 0, 1, 2, 2, 2]
        assert (found.ravel().astype(int) - int(zero)).tolist() == rounded


@pytest.mark.parametrize("zero", [np.uint8(200), np.int8(-100)])
def test_what_is_out_of_range_saturates(zero):
    ends = np.iinfo(zero.dtype)
    found = quantised([-(2**31), -301, 300, 2**31 - 1], zero)
    assert found.ravel().tolist() == [ends.min, ends.min, ends.max, ends.max]


def test_scales_for_each_channel(rng):
    """Of three axes, where rounding float32 may only decide what is nearly a tie."""
    x, w = bytes_of(rng, (2, 4, 5, 3, 4), np.uint8), bytes_of(rng, (6, 2, 2, 2, 1), np.int8)
    w_zero, bias = bytes_of(rng, (6,), np.int8), integers(rng, (6,), np.int32, 9999)
    x_scale, y_scale = np.float32(0.013), np.float32(3.1)
    w_scale = rng.uniform(0.001, 0.1, 6).astype(np.float32)
    inputs = [x, x_scale, np.uint8(131), w, w_scale, w_zero, y_scale, np.uint8(120), bias]
    found = apply("QLinearConv", {"group": 2}, inputs)
    sums = sums_of(x, w, 131, w_zero, groups=2) + bias.reshape(1, 6, 1, 1, 1)
    exact = sums * (np.float64(x_scale) * w_scale / y_scale).reshape(1, 6, 1, 1, 1)
    ends = [np.round(exact + sign * 4e-7 * abs(exact)) + 120 for sign in (-1, 1)]
    found = np.asarray(found, np.float64)
    assert (np.clip(np.minimum(*ends), 0, 255) <= found).all()
    assert (found <= np.clip(np.maximum(*ends), 0, 255)).all()
    assert ((found > 0) & (found < 255)).any()


def test_gradients_of_floats(rng):
    x, w = integers(rng, (1, 2, 5)), integers(rng, (2, 3, 3))
    attributes = {"strides": [2], "pads": [1, 0]}
    window = {"strides": 2, "pads_begin": 1, "pads_end": 0, "data_format": "NCX"}
    y, pull = jax.vjp(lambda x, w: apply("ConvTranspose", attributes, [x, w]), x, w)
    found = pull(cotangent := jnp.asarray(integers(rng, y.shape)))
    window["weights_format"] = "IOX"
    expected = (
        jaxconv.conv_transpose_backward_data(cotangent, w, **window),
        jaxconv.conv_transpose_backward_weights(x, cotangent, w.shape, **window),
    )
    for result, right in zip(found, expected, strict=True):
        np.testing.assert_array_equal(result, right)


def test_a_sequence_in_steps_is_the_whole(rng):
    x, w, b = (integers(rng, shape) for shape in ((2, 3, 11), (3, 1, 4), (3,)))
    whole, last = apply("CausalConvWithState", {}, [x, w, b])
    doubles = [np.float64(v) for v in (x, w, b, np.zeros((2, 3, 3)))]  # float32 without x64
    assert {y.dtype.name for y in apply("CausalConvWithState", {}, doubles)} == {"float32"}
    state, parts = None, []
    for chunk in np.split(x, [1, 6], axis=2):
        part, state = apply("CausalConvWithState", {}, [chunk, w, b, state])
        parts.append(part)
    np.testing.assert_array_equal(jnp.concatenate(parts, 2), whole)
    np.testing.assert_array_equal(state, last)
    right = oracle.convolution(x, w, b, groups=3, pads_begin=3, **OIX)
    np.testing.assert_array_equal(whole, right)
    with jax.enable_x64(True):
        given = [np.float64(v) for v in (x, w, b)]
        gated, _ = apply("CausalConvWithState", {"activation": "silu"}, given)
    np.testing.assert_allclose(gated, FORMULAS["silu"](right), rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    ("mode", "pads"), [("NOTSET", (2, 1)), ("SAME_LOWER", (2, 1)), ("SAME_UPPER", (1, 2))]
)
def test_output_shape_decides_the_pads(rng, mode, pads):
    """A total of 3 = 2 * 3 + 4 + 1 - 8, of which `pads` say nothing."""
    x, w = integers(rng, (1, 2, 4)), integers(rng, (2, 3, 4))
    attributes = {"strides": [2], "output_shape": [8], "output_padding": [1], "auto_pad": mode}
    attributes |= {"pads": [3, 3]} if mode == "NOTSET" else {}
    expected = oracle.conv_transpose(
        x, w, strides=2, output_padding=1, pads_begin=pads[0], pads_end=pads[1],
        data_format="NCX", weights_format="IOX",
    )  # fmt: skip
    np.testing.assert_array_equal(apply("ConvTranspose", attributes, [x, w]), expected)


def proto(name, kind, value, reference=""):
    field = {2: "i", 3: "s", 7: "ints"}.get(kind, "t")
    return SimpleNamespace(name=name, type=kind, ref_attr_name=reference, **{field: value})


def test_a_node_is_taken_as_it_is(rng):
    x, w = integers(rng, (1, 2, 7)), integers(rng, (4, 1, 3))
    attributes = [proto("auto_pad", 3, b"SAME_LOWER"), proto("group", 2, 2)]
    attributes += [proto("strides", 7, [2])]
    node = SimpleNamespace(op_type="Conv", domain="", attribute=attributes)
    named = {"auto_pad": "SAME_LOWER", "group": 2, "strides": [2]}
    np.testing.assert_array_equal(apply_node(node, [x, w, None]), apply("Conv", named, [x, w]))


@pytest.mark.parametrize("op_type", ["Conv", "ConvTranspose", "CausalConvWithState"])
def test_the_precision_is_passed_on(op_type):
    causal = op_type == "CausalConvWithState"
    x, w = jnp.ones((2, 3, 7)), jnp.ones((3, 1 if causal else 3, 2))
    run = jax.make_jaxpr(lambda x, w: apply(op_type, {}, [x, w], precision="highest"))
    assert "HIGHEST" in str(run(x, w))


X, W, X8, W8 = (
    np.ones(shape, dtype)
    for dtype in (np.float32, np.uint8)
    for shape in ((1, 2, 5, 5), (4, 2, 3, 3))
)
ONE = np.float32(1)
LINEAR = [X8, ONE, np.uint8(0), W8, ONE, np.uint8(0), ONE, np.uint8(0)]


@pytest.mark.parametrize(
    ("op_type", "attributes", "inputs", "text"),
    [
        ("Convolution", {}, [X, W], "onnx.apply: `op_type` must be Conv, "),
        (3, {}, [X, W], "onnx.apply: `op_type` must be a string; got 3"),
        ("Conv", {"stride": [2, 2]}, [X, W], "got 'stride'; did you mean 'strides'?"),
        ("Conv", {"strides": 2}, [X, W], "the attribute `strides` must be a list of ints"),
        ("Conv", {"strides": [2]}, [X, W], "Conv: `strides` must be an int or a sequence of 2"),
        ("Conv", {"auto_pad": "SAME"}, [X, W], "the attribute `auto_pad` must be 'NOTSET', "),
        ("Conv", {"auto_pad": "VALID", "pads": [0, 0, 1, 0]}, [X, W],
         "Conv: `pads` and `auto_pad` cannot both be given"),
        ("Conv", {"pads": [1, 1]}, [X, W], "Conv: `pads` must be 4 ints, the beginnings"),
        ("Conv", {"pads": [-1, 0, 0, 0]}, [X, W], "Conv: `pads` must be at least 0"),
        ("Conv", {"kernel_shape": [3]}, [X, W], "Conv: `kernel_shape` must be that of the weights"),
        ("Conv", {"group": 3}, [X, W],
         "Conv: `group` must divide the X channels; got group=3, channels=2 from X shape"),
        ("Conv", {}, [X], "Conv: the input `W` is required; got none"),
        ("Conv", {}, X, "Conv: `inputs` must be a sequence of `X`, `W`, `B`"),
        ("Conv", {}, [X] * 4, "Conv: `inputs` must be at most 3"),
        ("Conv", {}, [X, W, np.ones(3, np.float32)], "Conv: `B` must have shape (4,)"),
        ("Conv", {}, [X, W8], "Conv: `W` must have type bfloat16, "),
        ("Conv", 3, [X, W], "Conv: `attributes` must be a dict by name, or the `attribute`"),
        ("Conv", [proto("strides", 4, 0)], [X, W], "`strides` must be a number, a string"),
        ("Conv", [proto("strides", 7, [], "s")], [X, W], "got a reference to 's'"),
        ("Conv", {}, [X, W[:, :1]], "Conv: `W` must have"),
        ("ConvTranspose", {"output_shape": [1, 2, 5, 5]}, [X, W[:2]],
         "ConvTranspose: `output_shape` must be 2 ints, of the spatial axes alone"),
        ("ConvTranspose", {"strides": [2], "auto_pad": "SAME_UPPER"}, [X, W[:2]],
         "ConvTranspose: `strides` must be an int or a sequence of 2"),
        ("ConvTranspose", {"pads": [9] * 4}, [X, W[:2]],
         "ConvTranspose: `pads` must leave the result an extent of at least 1"),
        ("ConvTranspose", {"group": 2}, [X, np.ones((1, 4, 1, 1), np.float32)],
         "ConvTranspose: `W` must have the 2 channels of `X` on its first axis; got shape"),
        ("ConvTranspose", {"output_shape": [0, 5]}, [X, W[:2]], "ConvTranspose: `output_shape`"),
        ("ConvInteger", {}, [X, W8], "ConvInteger: `x` must have type int8 or uint8; got float32"),
        ("ConvInteger", {}, [X8, W8, np.int8(1)],
         "ConvInteger: `x_zero_point` must have type uint8; got int8"),
        ("ConvInteger", {}, [X8, W8, np.ones(2, np.uint8)],
         "ConvInteger: `x_zero_point` must have shape () or (1,); got (2,)"),
        ("ConvInteger", {}, [X8, W8, None, np.ones(3, np.uint8)],
         "ConvInteger: `w_zero_point` must have shape () or (1,), or (4,) for the output channels"),
        ("ConvInteger", {"pads": [9] * 3}, [X8, W8], "ConvInteger: `pads` must be 4 ints"),
        ("ConvInteger", {"pads": [2**30] * 4, "strides": [2**30] * 2}, [X8, W8],
         "ConvInteger: `pads` must leave the padded `x` at most 2**48 elements; got padded"),
        ("ConvInteger", {"dilations": [9, 9]}, [X8, W8], "ConvInteger: `w`, dilated, must fit"),
        ("QLinearConv", {}, [*LINEAR, np.ones(3, np.int32)], "QLinearConv: `B` must have shape"),
        ("QLinearConv", {}, [*LINEAR, np.ones(4, np.int16)],
         "QLinearConv: `B` must have type int32; got int16"),
        ("QLinearConv", {}, [*LINEAR[:7], None], "the input `y_zero_point` is required"),
        ("CausalConvWithState", {}, [X, W], "CausalConvWithState: `input` must have 3 axes"),
        ("CausalConvWithState", {}, [X[0], W[0]], "`weight` must have shape (channels, 1, k)"),
        ("CausalConvWithState", {}, [X[0], np.ones((5, 1, 0), np.float32)], "(channels, 1, k)"),
        ("CausalConvWithState", {}, [X[0], np.ones((5, 1, 3), np.float32), None, X[0]],
         "`past_state` must have shape (2, 5, 2), that is (batch, channels, k - 1); got"),
        ("CausalConvWithState", {}, [X[0], np.ones((5, 1, 2**30), np.int8)], "`weight` must have"),
        ("CausalConvWithState", {}, [X[0, :, :0], np.ones((0, 1, 3), np.float32)], "at least 1"),
        ("CausalConvWithState", {}, [np.broadcast_to(np.float32(1), (2**20, 2**20, 1)),
         np.broadcast_to(np.float32(1), (2**20, 1, 2**30))], "at most 2**48 elements; got"),
        ("CausalConvWithState", {"activation": "relu"}, [X[0], W[0]], "'none', 'silu' or 'swish'"),
    ],
)  # fmt: skip
def test_messages(op_type, attributes, inputs, text):
    with pytest.raises((TypeError, ValueError)) as caught:
        apply(op_type, attributes, inputs)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("op_type", "opset", "text"),
    [
        ("QLinearConv", 9, "QLinearConv: `opset` must be from 10, which brought the operator"),
        ("Conv", 999, "the newest that was tested; got 999"),
        ("Conv", "11", "Conv: `opset` must be an int; got '11' (str)"),
    ],
)
def test_messages_about_the_opset(op_type, opset, text):
    with pytest.raises((TypeError, ValueError)) as caught:
        apply(op_type, {}, [X, W], opset=opset)
    assert text in str(caught.value)


def test_messages_about_nodes():
    node = SimpleNamespace(op_type="Conv", domain="com.microsoft", attribute=[])
    with pytest.raises(ValueError, match=r"Conv: `domain` must be ONNX's own.*com\.microsoft"):
        apply_node(node, [X, W])
    with pytest.raises(TypeError, match=r"onnx\.apply_node: `node` must be a NodeProto; got 3"):
        apply_node(3, [X, W])
