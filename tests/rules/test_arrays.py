"""Tensors broken, and what a sum is rounded to, followed by and split over.

The error names operation, argument, rule and what was given.
"""

import reprlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

from jaxconv._rules import attributes
from tests.support.calls import FINE, KERNEL, OP, TENSORS, VALID, Hostile, array, call, message

PRECISIONS = (
    "`precision` must be None, a jax.lax.Precision or its name ('default', 'high' or "
    "'highest'), or a pair of these; got"
)
PREFERRED = "`preferred_element_type` must be the operands' type or a wider one, here"


def inputs(op):
    return [name for name in VALID[op] if name in TENSORS]


EACH_INPUT = [(op, name) for op in VALID for name in inputs(op)]
WITH_BIAS = [*EACH_INPUT, ("convolution", "bias"), ("conv_transpose", "bias")]


@pytest.mark.parametrize(("op", "name"), WITH_BIAS)
def test_what_is_not_an_array(op, name):
    for value, got in [
        ([1.0, 2.0], "[1.0, 2.0] (list)"), (1.5, "1.5 (float)"), ("src", "'src' (str)"),
        (np.float32(1), "np.float32(1.0) (float32)"),
        (jax.ShapeDtypeStruct((1,), "f4"), "ShapeDtypeStr...dtype=float32) (ShapeDtypeStruct)"),
    ]:  # fmt: skip
        assert message(TypeError, op, **{name: value}) == (
            f"`{name}` must be a JAX or NumPy array; got {got}. "
            f"jax.numpy.asarray makes one of numbers and lists"
        )
    if name != "bias":
        text = message(TypeError, op, **{name: None})
        assert text.startswith(f"`{name}` must be a JAX or NumPy array; got None.")
    text = message(TypeError, op, **{name: Hostile()})
    assert text.startswith(f"`{name}` must be a JAX or NumPy array; got <Hostile instance")
    assert text.endswith("whose __jax_array__ raises RuntimeError")
    deleted = jnp.ones(VALID[op].get(name, 6))
    deleted.delete()
    assert message(ValueError, op, **{name: deleted}) == (
        f"`{name}` must still have its data; got an array of shape {deleted.shape} that was "
        f"deleted. Was it donated?"
    )


class Parameter:
    """Like the parameters of neural network libraries."""

    def __init__(self, value):
        self.value = value

    def __jax_array__(self):
        return self.value


def test_a_parameter_is_an_array_if_it_holds_one():
    expected = call("convolution")
    given = call("convolution", weights=Parameter(jnp.asarray(array(KERNEL))))
    np.testing.assert_array_equal(given, expected)
    endless = Parameter(None)
    endless.value = endless
    for wrong, got in ((Parameter([1.0]), "[1.0] (list)"), (endless, "<")):
        text = message(TypeError, "convolution", weights=wrong)
        assert text.startswith(f"`weights` must be a JAX or NumPy array; got {got}")


def test_a_masked_array():
    masked = np.ma.masked_array(array(FINE), np.ones(FINE, bool))
    assert message(TypeError, "convolution", src=masked) == (
        "`src` must be a JAX or NumPy array; got a masked one. "
        "Its method `filled` makes one without a mask"
    )


REFUSED_TYPES = [
    jnp.int32, jnp.int8, jnp.uint8, jnp.bool_, jnp.complex64, jnp.float8_e4m3fn, jnp.float8_e5m2,
]  # fmt: skip


@pytest.mark.parametrize(("op", "name"), EACH_INPUT)
@pytest.mark.parametrize("dtype", REFUSED_TYPES)
def test_types_that_are_not_accepted(op, name, dtype):
    value = jnp.ones(VALID[op][name], dtype)
    text = message(TypeError, op, **{name: value})
    got = ", ".join(
        f"`{n}` {jnp.dtype(dtype).name if n == name else 'float32'}" for n in inputs(op)
    )
    assert text == f"`{name}` must have type bfloat16, float16, float32 or float64; got {got}"


def test_stranger_types():
    expected = "`src` must have type bfloat16, float16, float32 or float64; got `src` "
    for value, name in [
        (jax.random.wrap_key_data(np.ones((*FINE, 2), np.uint32)), "key<fry>"),
        (array(FINE, object), "object"),
        (array(FINE, ">f4"), ">f4"),
    ]:
        text = message(TypeError, "convolution", src=value)
        assert text == f"{expected}{name}, `weights` float32"
    text = message(TypeError, "convolution", src=array(FINE, int), weights=array(KERNEL, int))
    assert text == f"{expected}int32, `weights` int32"


@pytest.mark.parametrize(("op", "name"), WITH_BIAS)
@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_mixed_types(op, name, dtype):
    shape = (4 if op == "conv_transpose" else 6,) if name == "bias" else VALID[op][name]
    text = message(TypeError, op, **{name: jnp.ones(shape, dtype)})
    names = list(dict.fromkeys([*inputs(op), name]))
    got = ", ".join(f"`{n}` {jnp.dtype(dtype).name if n == name else 'float32'}" for n in names)
    assert text == (
        f"all arrays must have the same type; got {got}. Nothing is promoted: convert with .astype"
    )


def test_float64_is_a_type_of_its_own_only_with_x64():
    wide = {"src": array(FINE, np.float64)}
    assert call("convolution", **wide).dtype == np.float32
    with jax.enable_x64(True):
        text = message(TypeError, "convolution", **wide)
    assert "got `src` float64, `weights` float32." in text


ACTIVATIONS = (
    "'relu', 'relu6', 'leaky_relu', 'elu', 'tanh', 'sigmoid', 'gelu_erf', 'gelu_tanh', 'silu' or "
    "'swish'"
)


@pytest.mark.parametrize(
    ("exception", "changes", "text"),
    [
        (ValueError, {"activation": "rel"},
         f"`activation` must be {ACTIVATIONS}; got 'rel'; did you mean 'relu'?"),
        (TypeError, {"activation": 1}, f"`activation` must be {ACTIVATIONS}; got 1 (int)"),
        (TypeError, {"activation": array},
         f"`activation` must be {ACTIVATIONS}; got a function, {reprlib.repr(array)}. Call a "
         "function of your own on the result"),
        (TypeError, {"activation": array((2,))},
         f"`activation` must be {ACTIVATIONS}; got array([1., 2.], dtype=float32) (ndarray)"),
        (ValueError, {"activation": "elu", "alpha": 10**400},
         "`alpha` must be finite and at least 0; got 100000000000000000...0000000000000000000"),
        (TypeError, {"activation": "leaky_relu"},
         "`alpha` must be given, the slope of 'leaky_relu' below 0; got None"),
        (TypeError, {"activation": "elu", "alpha": "1"},
         "`alpha` of 'elu' must be a Python number; got '1' (str)"),
        (TypeError, {"residual": array((2, 3, 4, 6), np.float16)},
         "`residual` must have type float32; got float16"),
        (TypeError, {"residual": array((2, 3, 4, 6), np.float16),
                     "preferred_element_type": np.float32},
         "`residual` must have type float32; got float16"),
    ],
)  # fmt: skip
def test_what_follows_the_sum(exception, changes, text):
    assert message(exception, "convolution", **changes) == text


@pytest.mark.parametrize(
    ("value", "got"),
    [
        ("hi", "'hi' (str)"), ("HIGHEST", "'HIGHEST' (str)"), (("high",), "('high',) (tuple)"),
        (1, "1 (int)"), (True, "True (bool)"), ("F32_F32_F32", "'F32_F32_F32' (str)"),
        (jnp.float32, "<class 'jax.numpy.float32'> (_ScalarMeta)"),
        (["high", 2], "['high', 2] (list)"), (("high",) * 3, "('high', 'high', 'high') (tuple)"),
        (lax.DotAlgorithmPreset.F32_F32_F32, "DotAlgorithmPreset.F32_F32_F32 (DotAlgorithmPreset)"),
    ],
)  # fmt: skip
def test_precision(value, got):
    assert message(ValueError, OP, precision=value) == f"{PRECISIONS} {got}"


def test_precisions_that_are_accepted():
    default, high, highest = lax.Precision
    for value, pair in [
        (None, (default, default)), ("high", (high, high)), (highest, (highest, highest)),
        (("high", None), (high, default)), (["highest", "default"], (highest, default)),
    ]:  # fmt: skip
        assert attributes.precision("convolution", value) == pair
    with jax.default_matmul_precision("highest"):
        assert attributes.precision("convolution", None) == (highest, highest)
        assert attributes.precision("convolution", "high") == (high, high)


def test_an_algorithm_set_for_dots_is_none_for_convolutions():
    """As in lax, which lowers a convolution under such a setting to the default precision."""
    pointwise = {"weights": (1, 1, 2, 6), "dilations": 1}
    expected = call("convolution", **pointwise)
    with jax.default_matmul_precision("TF32_TF32_F32"):  # which CPU dots do not have
        np.testing.assert_array_equal(call("convolution", **pointwise), expected)


@pytest.mark.parametrize(
    ("operands", "asked", "got"),
    [
        (jnp.float32, jnp.bfloat16, "bfloat16"), (jnp.float32, "float16", "float16"),
        (jnp.bfloat16, jnp.float16, "float16"), (jnp.float16, jnp.bfloat16, "bfloat16"),
        (jnp.bfloat16, jnp.float8_e4m3fn, "float8_e4m3fn"), (jnp.bfloat16, int, "int32"),
        (jnp.bfloat16, jnp.complex64, "complex64"), (jnp.float32, "wide", "'wide' (str)"),
        (jnp.float32, True, "True (bool)"), (jnp.float32, jax.random.key(0).dtype, "key<fry>"),
    ],
)  # fmt: skip
def test_preferred_element_type(operands, asked, got):
    tensors = {n: array(s, operands) for n, s in VALID[OP].items() if n in TENSORS}
    text = message(TypeError, OP, **tensors, preferred_element_type=asked)
    name = jnp.dtype(operands).name
    wider = "float32 or float64" if name == "float32" else f"{name}, float32 or float64"
    assert text == f"{PREFERRED} {wider}; got {got} for operands of type {name}"


def test_preferred_element_type_of_float64():
    wide = {"src": array(FINE, np.float64), "weights": array(KERNEL, np.float64)}
    expected = f"{PREFERRED} float64"
    with jax.enable_x64(True):
        for asked, got in [(np.float32, "float32"), ("wide", "'wide' (str)")]:
            text = message(TypeError, "convolution", **wide, preferred_element_type=asked)
            assert text == f"{expected}; got {got} for operands of type float64"


def test_out_sharding_needs_a_mesh_with_explicit_axes():
    spec = PartitionSpec("d")
    assert message(TypeError, "convolution", out_sharding="d") == (
        "`out_sharding` must be None, a jax.sharding.PartitionSpec or NamedSharding; got 'd' (str)"
    )
    automatic = jax.make_mesh((1,), ("d",), axis_types=(AxisType.Auto,))
    expected = "`out_sharding` must be on a mesh with explicit axes, set by jax.set_mesh; got "
    for sharding in (spec, NamedSharding(automatic, spec)):
        assert message(ValueError, "convolution", out_sharding=sharding).startswith(expected)
    with jax.set_mesh(automatic):
        text = message(ValueError, "conv_transpose", out_sharding=spec)
    assert text.startswith(expected)
    assert text.endswith("use jax.lax.with_sharding_constraint on the result")


@pytest.mark.parametrize(
    ("spec", "rule"),
    [
        (PartitionSpec("e"), "name explicit mesh axes, of ('d',)"),
        (PartitionSpec(None, ("d", "e")), "name explicit mesh axes, of ('d',)"),
        (PartitionSpec("a"), "name explicit mesh axes, of ('d',)"),
        (PartitionSpec(("d", "m")), "name explicit mesh axes, of ('d',)"),
        (PartitionSpec("d", "d"), "name each mesh axis once"),
        (PartitionSpec(None, "d"), "divide the axes evenly, unlike 3 by 2"),
        (PartitionSpec("d", None, None, None, None), "have one entry for each of 4 axes at most"),
    ],
)
def test_out_sharding_must_fit_the_result(spec, rule):
    kinds = (AxisType.Explicit, AxisType.Auto, AxisType.Manual)
    mesh = AbstractMesh((2, 2, 2), ("d", "a", "m"), axis_types=kinds)
    with jax.sharding.use_abstract_mesh(mesh):
        text = message(ValueError, "convolution", out_sharding=spec)
    assert text == (f"`out_sharding` must {rule}; got {spec} for a result of shape (2, 3, 4, 6)")
