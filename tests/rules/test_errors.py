"""Every rule about arguments, broken: the error names op, argument, rule and what was given.

Each op has a valid call, `VALID`; a row changes some of its arguments and gives the message.
Tensors are written as their shapes. All six read their arguments by one parser, as
`test_all_six_share_the_parser` shows; so each of its rules is asked of one op, `OP`.
"""

import inspect
import pickle
import re
import reprlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

import jaxconv
from jaxconv._rules import attributes

FINE, COARSE, KERNEL = (2, 7, 6, 4), (2, 3, 4, 6), (3, 2, 2, 6)
ATTRIBUTES = {"strides": (2, 1), "dilations": (1, 2), "groups": 2}
VALID = {
    "convolution": {"src": FINE, "weights": KERNEL},
    "convolution_backward_data": {"diff_dst": COARSE, "weights": KERNEL, "dst_shape": FINE},
    "convolution_backward_weights": {"src": FINE, "diff_dst": COARSE, "weights_shape": KERNEL},
    "conv_transpose": {"src": COARSE, "weights": KERNEL},
    "conv_transpose_backward_data": {"diff_dst": FINE, "weights": KERNEL},
    "conv_transpose_backward_weights": {"src": COARSE, "diff_dst": FINE, "weights_shape": KERNEL},
}
RESULTS = (COARSE, FINE, KERNEL, FINE, COARSE, KERNEL)
OPS = tuple(VALID)
OP = "conv_transpose"  # which has every attribute
TENSORS = ("src", "diff_dst", "weights", "bias", "residual")
PER_AXIS = ("strides", "dilations", "pads_begin", "pads_end", "output_padding")
SHAPES = [
    ("convolution_backward_data", "dst_shape"),
    ("conv_transpose", "dst_shape"),
    ("convolution_backward_weights", "weights_shape"),
    ("conv_transpose_backward_weights", "weights_shape"),
]


def array(shape, dtype=np.float32):
    return np.arange(1, 1 + np.prod(shape)).reshape(shape).astype(dtype)


def call(op, **changes):
    """The valid call of `op` with some arguments changed; tensors may be given by shape."""
    arguments = VALID[op] | ATTRIBUTES | changes
    for name in TENSORS:
        if type(arguments.get(name)) is tuple:
            arguments[name] = array(arguments[name])
    return getattr(jaxconv, op)(**arguments)


def message(exception, op, **changes):
    """What `op` says of these changes, after its own name."""
    with pytest.raises(exception) as caught:
        call(op, **changes)
    assert type(caught.value) is exception
    prefix, text = str(caught.value).split(": ", 1)
    assert prefix == op
    return text


@pytest.mark.parametrize(("op", "shape"), list(zip(OPS, RESULTS, strict=True)))
def test_the_call_that_the_tests_break_is_valid(op, shape):
    """Empty pads are zeros."""
    assert call(op, pads_begin=[], pads_end=[]).shape == shape


AUTO_PADS = "'none', 'valid', 'same_upper', 'same_lower', 'notset' or 'explicit'"
DATA_FORMATS = "'NXC' or 'NCX'"
WEIGHTS_FORMATS = "'OIX', 'XIO', 'IOX' or 'XOI'"
STRINGS = {"auto_pad": AUTO_PADS, "data_format": DATA_FORMATS, "weights_format": WEIGHTS_FORMATS}
PRECISIONS = (
    "`precision` must be None, a jax.lax.Precision or its name ('default', 'high' or "
    "'highest'), or a pair of these; got"
)
PREFERRED = "`preferred_element_type` must be the operands' type or a wider one, here"


@pytest.mark.parametrize("op", OPS)
def test_all_six_share_the_parser(op):
    attributes = inspect.signature(getattr(jaxconv, op)).parameters
    for name in (name for name in PER_AXIS if name in attributes):
        expected = f"`{name}` must be an int or a sequence of 2 ints, one per spatial axis; got"
        assert message(TypeError, op, **{name: True}) == f"{expected} True (bool)"
        for wrong in [(1,), (1, 2, 3), *[()] * (not name.startswith("pads"))]:
            text = message(ValueError, op, **{name: wrong})
            assert text == f"{expected} {wrong}, of length {len(wrong)}"
        assert message(ValueError, op, **{name: -1}).startswith(f"`{name}` must be at least ")
        assert message(TypeError, op, **{name: Raises()}).startswith(f"`{name}` must be ")
    assert message(TypeError, op, groups=True) == "`groups` must be an int; got True (bool)"
    assert message(ValueError, op, groups=0) == "`groups` must be at least 1; got 0"
    for name, known in STRINGS.items():
        assert message(ValueError, op, **{name: "?"}) == f"`{name}` must be {known}; got '?'"
        assert message(TypeError, op, **{name: 3}) == f"`{name}` must be {known}; got 3 (int)"
    assert message(ValueError, op, precision=1) == f"{PRECISIONS} 1 (int)"
    assert message(TypeError, op, preferred_element_type="f2") == (
        f"{PREFERRED} float32 or float64; got float16 for operands of type float32"
    )
    assert message(TypeError, op, out_sharding="d").startswith("`out_sharding` must be None, ")


# Per-axis attributes: type, length, sign.


NOT_INTS = [
    (True, "True (bool)"),
    (np.True_, "np.True_ (bool)"),
    (1.0, "1.0 (float)"),
    (np.float32(1), "np.float32(1.0) (float32)"),
    ("1", "'1' (str)"),
    (b"1", "b'1' (bytes)"),
    (None, "None"),
    ({1, 2}, "{1, 2} (set)"),
    ({1: 1}, "{1: 1} (dict)"),
    ([1, True], "True (bool)"),
    ([np.True_, 1], "np.True_ (bool)"),
    ((1, 1.0), "1.0 (float)"),
    ([1, np.float64(1)], "np.float64(1.0) (float64)"),
    ([None, 1], "None"),
    (("1", 1), "'1' (str)"),
    ([[1, 1], [1, 1]], "[1, 1] (list)"),
    (np.array([1.0, 1.0]), "an array of type float64 and shape (2,)"),
    (np.array([True, True]), "an array of type bool and shape (2,)"),
    (np.array(1.0), "an array of type float64 and shape ()"),
    (np.array([[1, 1]]), "an array of type int64 and shape (1, 2)"),
    (jnp.array([1.0, 1.0]), "an array of type float32 and shape (2,)"),
    ([1, jnp.array(True)], "Array(True, dtype=bool) (ArrayImpl)"),
    ([1, np.array([1])], "array([1]) (ndarray)"),
]


@pytest.mark.parametrize("name", PER_AXIS)
def test_what_is_not_an_int(name):
    expected = f"`{name}` must be an int or a sequence of 2 ints, one per spatial axis; got"
    for value, got in NOT_INTS:
        assert message(TypeError, OP, **{name: value}) == f"{expected} {got}"


@pytest.mark.parametrize("name", PER_AXIS)
def test_sign_and_size(name):
    least = 1 if name in ("strides", "dilations") else 0
    for value in (least - 1, -7, [1, least - 1], (-2, 1), np.int64(-1)):
        assert message(ValueError, OP, **{name: value}) == (
            f"`{name}` must be at least {least} on every axis; got {value!r}"
        )
    for value in (2**31, 2**63, [1, 2**64]):
        assert message(ValueError, OP, **{name: value}) == (
            f"`{name}` must be at most 2147483647 on every axis; got {value!r}"
        )


@pytest.mark.parametrize("auto_pad", ["valid", "same_upper", "same_lower"])
@pytest.mark.parametrize("name", ["pads_begin", "pads_end"])
def test_pads_are_checked_even_where_auto_pad_ignores_them(auto_pad, name):
    assert f"`{name}`" in message(TypeError, OP, auto_pad=auto_pad, **{name: True})
    assert f"`{name}`" in message(ValueError, OP, auto_pad=auto_pad, **{name: -1})
    assert f"`{name}`" in message(ValueError, OP, auto_pad=auto_pad, **{name: [1]})


@pytest.mark.parametrize("good", [1, (1, 1), [1, 1], np.array([1, 1]), np.int8(1), jnp.array(1)])
def test_ints_of_any_kind_are_ints(good):
    expected = call("convolution", strides=1)
    np.testing.assert_array_equal(call("convolution", strides=good), expected)


@pytest.mark.parametrize("name", ["strides", "dilations", "groups"])
def test_no_cache_takes_true_for_one(name):
    changes = {"weights": (3, 2, 4, 6), "groups": 1, "strides": 1, "dilations": 1}
    for _ in range(2):
        call("convolution", **changes)
        for wrong in (True, 1.0, np.True_, np.float64(1)):
            text = message(TypeError, "convolution", **changes | {name: wrong})
            assert text.startswith(f"`{name}` must be an int")


# Groups and strings.


def test_groups():
    for value, got in [
        (2.0, "2.0 (float)"),
        (None, "None"),
        (np.array([2]), "array([2]) (ndarray)"),
    ]:
        text = message(TypeError, OP, groups=value)
        assert text == f"`groups` must be an int; got {got}"
    call(OP, groups=np.int32(2))


@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [
        ("auto_pad", "SAME", "; did you mean 'same_upper'?"),
        ("auto_pad", "same-lower", "; did you mean 'same_lower'?"),
        ("auto_pad", "valid ", "; did you mean 'valid'?"),
        ("auto_pad", "circular", ""),
        ("auto_pad", "", ""),
        ("data_format", "NHWC", "; did you mean 'NXC'?"),
        ("data_format", "NWC", "; did you mean 'NXC'?"),
        ("data_format", "ncdhw", "; did you mean 'NCX'?"),
        ("data_format", "OIX", ""),
        ("weights_format", "HWIO", "; did you mean 'XIO'?"),
        ("weights_format", "OIDHW", "; did you mean 'OIX'?"),
        ("weights_format", "hwoi", "; did you mean 'XOI'?"),
        ("weights_format", "NCX", ""),
    ],
)
def test_spelling(name, value, hint):
    assert message(ValueError, OP, **{name: value}) == (
        f"`{name}` must be {STRINGS[name]}; got {value!r}{hint}"
    )


def test_an_error_is_the_same_in_another_process():
    """Its text has parts, for doors to name; a pickle keeps both."""
    with pytest.raises(ValueError, match="These shapes would fit") as caught:
        call(OP, src=COARSE[::-1])
    again = pickle.loads(pickle.dumps(caught.value))
    assert repr(again) == repr(caught.value) == f"ValueError({str(again)!r})"
    assert again.args[0].parts == caught.value.args[0].parts


# Tensors: what they are, their types and ranks.


def inputs(op):
    return [name for name in VALID[op] if name in TENSORS]


EACH_INPUT = [(op, name) for op in OPS for name in inputs(op)]
WITH_BIAS = [*EACH_INPUT, ("convolution", "bias"), ("conv_transpose", "bias")]


@pytest.mark.parametrize(("op", "name"), WITH_BIAS)
def test_what_is_not_an_array(op, name):
    for value, got in [
        ([1.0, 2.0], "[1.0, 2.0] (list)"),
        (1.5, "1.5 (float)"),
        ("src", "'src' (str)"),
        (np.float32(1), "np.float32(1.0) (float32)"),
        (
            jax.ShapeDtypeStruct((1,), np.float32),
            "ShapeDtypeStr...dtype=float32) (ShapeDtypeStruct)",
        ),
    ]:
        assert message(TypeError, op, **{name: value}) == (
            f"`{name}` must be a JAX or NumPy array; got {got}. "
            f"jax.numpy.asarray makes one of numbers and lists"
        )
    if name != "bias":
        text = message(TypeError, op, **{name: None})
        assert text.startswith(f"`{name}` must be a JAX or NumPy array; got None.")
    text = message(TypeError, op, **{name: Raises()})
    assert text.startswith(f"`{name}` must be a JAX or NumPy array; got <Raises instance")
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


# What is given may be of any size, and may raise whatever is asked of it.


HUGE = [
    (ValueError, "strides", 10**5000),
    (ValueError, "pads_end", [0, 10**5000]),
    (ValueError, "groups", 10**5000),
    (ValueError, "groups", -(10**5000)),
    (ValueError, "strides", [1] * 10**6),
    (ValueError, "auto_pad", "same" * 10**6),
    (ValueError, "data_format", "NHWC" * 10**6),
    (ValueError, "precision", "highest" * 10**6),
    (TypeError, "preferred_element_type", "float32" * 10**6),
    (TypeError, "preferred_element_type", 10**5000),
    (TypeError, "out_sharding", "x" * 10**6),
    (TypeError, "out_sharding", 10**5000),
]


def test_a_message_is_short():
    for exception, name, value in HUGE:
        text = message(exception, OP, **{name: value})
        assert f"`{name}`" in text
        assert len(text) < 300


@pytest.mark.parametrize(("op", "name"), SHAPES)
@pytest.mark.parametrize("value", [(1, 10**5000, 1, 1), [1] * 10**6], ids=["digits", "entries"])
def test_a_message_about_a_shape_is_short(op, name, value):
    text = message(ValueError, op, **{name: value})
    assert text.startswith(f"`{name}`")
    assert len(text) < 300


@pytest.mark.parametrize("shape", [(1, 10**5000, 1), (1,) * 10**5], ids=["digits", "axes"])
def test_a_message_of_resolve_is_short(shape):
    for shapes in ((shape, (3, 1, 1)), (shape, shape)):
        with pytest.raises(ValueError, match=r"^convolution: `(src|weights)`") as caught:
            jaxconv.resolve(jaxconv.convolution, *shapes)
        assert len(str(caught.value)) < 300


class Raises:
    """An int, an array, a shape: all that it is asked for raises."""

    def __index__(self):
        raise RuntimeError("mine")

    __jax_array__ = __repr__ = __index__
    shape = property(__index__)


class RaisingList(list):
    def __iter__(self):
        raise RuntimeError("mine")


def test_what_raises():
    deleted = jnp.ones(2, int)
    deleted.delete()
    for name in (
        "strides", "groups", "auto_pad", "precision", "data_format", "preferred_element_type",
        "out_sharding",
    ):  # fmt: skip
        for value in (Raises(), [1, Raises()], RaisingList([1, 1]), deleted):
            exception = ValueError if name == "precision" else TypeError
            assert message(exception, OP, **{name: value}).startswith(f"`{name}` must be ")


def test_a_shape_that_raises():
    with pytest.raises(TypeError, match=r"^convolution: `src` has no shape to read: <Raises"):
        jaxconv.resolve(jaxconv.convolution, Raises(), KERNEL)


def test_a_dotless_i_is_none():
    """Its capital is I."""
    text = message(ValueError, "convolution", weights_format="X\N{LATIN SMALL LETTER DOTLESS I}O")
    assert text.startswith("`weights_format` must be 'OIX', 'XIO', 'IOX' or 'XOI'; got ")


# Sizes that no memory holds: XLA would end the process.

FAR = 2**31 - 1
TOO_LARGE = [
    ("convolution", {"pads_begin": FAR, "pads_end": FAR}, "the result"),
    ("convolution", {"src": (1, 4, 4, 4, 1), "weights": (3, 3, 3, 1, 1), "pads_begin": 2**21,
                     "pads_end": 2**21}, "the result"),
    ("convolution_backward_data", {"diff_dst": (1, 4, 4, 1), "strides": FAR}, "the result"),
    ("convolution_backward_data", {"diff_dst": (1, 4, 4, 1), "dst_shape": (1, 2**62, 4, 1)},
     "`dst_shape`"),
    ("conv_transpose", {"dst_shape": (0, 2**64, 4, 1)}, "`dst_shape`"),
    ("conv_transpose", {"dst_shape": (1, 2**40, 2**40, 1)}, "`dst_shape`"),
    ("conv_transpose", {"dilations": FAR}, "the result"),
    ("conv_transpose", {"output_padding": FAR}, "the result"),
    ("convolution_backward_weights", {"weights_shape": (FAR, FAR, 1, 1)}, "`weights_shape`"),
    ("conv_transpose_backward_weights", {"weights_shape": (3, 3, 2**30, 2**30)}, "`weights_shape`"),
    ("conv_transpose_backward_data", {"pads_begin": FAR, "pads_end": FAR}, "the result"),
]  # fmt: skip
SMALL = {"src": (1, 4, 4, 1), "diff_dst": (1, 4, 4, 1), "weights": (3, 3, 1, 1)}


@pytest.mark.parametrize("ask", ["operation", "resolve", "explain"])
@pytest.mark.parametrize(("op", "changes", "what"), TOO_LARGE)
def test_too_many_elements(op, changes, what, ask):
    names = {name: SMALL.get(name) for name in VALID[op]}
    given = names | {"strides": 1, "dilations": 1, "groups": 1} | changes
    if ask == "operation":
        text = message(ValueError, op, **given)
    else:
        with pytest.raises(ValueError, match=f"^{op}: ") as caught:
            getattr(jaxconv, ask)(op, **given)
        text = str(caught.value).removeprefix(f"{op}: ")
    assert text.startswith(f"{what} must have ")
    assert "at most 2**48" in text
    for name in changes.keys() - SMALL.keys():
        assert f"`{name}`" in text


def test_symbolic_and_empty_batches_have_no_such_limit():
    (batch,) = export.symbolic_shape("b")
    for n in (batch, 0):
        found = jaxconv.resolve(jaxconv.convolution, (n, 4, 4, 1), (3, 3, 1, 1))
        assert found.dst_shape == (n, 2, 2, 1)


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


# One row per rule: op, what is changed, the message.

FITS = ". These shapes would fit"
RULES = [
    # Ranks and extents.
    ("convolution", {"src": (7, 4)},
     "`src` must have a batch axis, a channel axis and at least one spatial axis; "
     "got shape (7, 4)"),
    ("convolution", {"src": (7, 6, 4)},
     "`weights` must have as many axes as `src`; got shapes (3, 2, 2, 6) and (7, 6, 4). "
     "Does `src` lack its batch axis?"),
    ("convolution", {"weights": (3, 2, 6)},
     "`weights` must have as many axes as `src`; got shapes (3, 2, 6) and (2, 7, 6, 4)"),
    ("convolution_backward_weights", {"diff_dst": (3, 4, 6)},
     "`diff_dst` must have as many axes as `src`; got shapes (3, 4, 6) and (2, 7, 6, 4). "
     "Does `diff_dst` lack its batch axis?"),
    ("convolution", {"src": (2, 0, 6, 4)},
     "`src` must have extents of at least 1 (only the batch may be 0); got shape (2, 0, 6, 4)"),
    ("convolution_backward_weights", {"weights_shape": (0, 2, 2, 6)},
     "`weights_shape` must have extents of at least 1 (only the batch may be 0); "
     "got shape (0, 2, 2, 6)"),
    ("convolution_backward_data", {"dst_shape": (2, 7, -6, 4)},
     "`dst_shape` must have extents of at least 1 (only the batch may be 0); "
     "got shape (2, 7, -6, 4)"),
    # Batch and channels.
    ("convolution_backward_weights", {"diff_dst": (1, 3, 4, 6)},
     "`diff_dst` must have the batch of `src`; got shapes (1, 3, 4, 6) and (2, 7, 6, 4) (NXC)"),
    ("convolution", {"groups": 3},
     "`groups` must divide the src channels; got groups=3, channels=4 from src shape "
     "(2, 7, 6, 4) (NXC)"),
    ("convolution", {"weights": (3, 2, 2, 5)},
     "`groups` must divide axis O of `weights`; got groups=2, 5 in shape (3, 2, 2, 5) (XIO)"),
    ("convolution", {"weights": (3, 2, 3, 6)},
     "`weights` must have src channels / groups = 2 on axis I; got 3 in shape (3, 2, 3, 6) "
     "(XIO), groups=2, channels=4 from src shape (2, 7, 6, 4) (NXC)"),
    ("convolution_backward_data", {"weights": (3, 2, 2, 8), "dst_shape": None},
     "`weights` must have all 6 diff_dst channels on axis O; got 8 in shape (3, 2, 2, 8) (XIO), "
     "groups=2, channels=6 from diff_dst shape (2, 3, 4, 6) (NXC)"),
    ("conv_transpose", {"weights": (4, 2, 2, 5)},
     "`weights` must have all 6 src channels (or src channels / groups = 3) on axis I; got 5 in "
     "shape (4, 2, 2, 5) (XOI), groups=2, channels=6 from src shape (2, 3, 4, 6) (NXC)"),
    ("conv_transpose", {"weights": (4, 2, 2, 5), "groups": 1},
     "`weights` must have all 6 src channels on axis I; got 5 in shape (4, 2, 2, 5) (XOI), "
     "groups=1, channels=6 from src shape (2, 3, 4, 6) (NXC)"),
    ("conv_transpose_backward_data", {"weights": (3, 2, 3, 6)},
     "`weights` must have diff_dst channels / groups = 2 (or all 4 diff_dst channels) on axis O; "
     "got 3 in shape (3, 2, 3, 6) (XOI), groups=2, channels=4 from diff_dst shape (2, 7, 6, 4) "
     "(NXC)"),
    # Of the two readings of transposed weights, the one that an axis fits is meant.
    ("conv_transpose", {"weights": (5, 2, 5, 3)},
     "`groups` must divide axis O of `weights`; got groups=2, 5 in shape (5, 2, 5, 3) (XOI)"),
    ("conv_transpose_backward_weights", {"weights_shape": (3, 2, 2, 3)},
     "exactly one of the axes I and O of `weights_shape` must hold the channels of one group; "
     "got both divided, 3 and 2 in shape (3, 2, 2, 3) (XOI), groups=2, channels=4 from diff_dst "
     "shape (2, 7, 6, 4) (NXC)"),
    ("conv_transpose_backward_weights", {"weights_shape": (3, 2, 4, 6)},
     "exactly one of the axes I and O of `weights_shape` must hold the channels of one group; "
     "got both whole, 6 and 4 in shape (3, 2, 4, 6) (XOI), groups=2, channels=4 from diff_dst "
     "shape (2, 7, 6, 4) (NXC)"),
    ("conv_transpose_backward_weights", {"weights_shape": (3, 2, 5, 3)},
     "`weights_shape` must have all 4 diff_dst channels on axis O; got 5 in shape (3, 2, 5, 3) "
     "(XOI), groups=2, channels=4 from diff_dst shape (2, 7, 6, 4) (NXC)"),
    ("conv_transpose_backward_weights", {"weights_shape": (3, 2, 2, 5)},
     "`weights_shape` must have all 6 src channels (or src channels / groups = 3) on axis I; got "
     "5 in shape (3, 2, 2, 5) (XOI), groups=2, channels=6 from src shape (2, 3, 4, 6) (NXC)"),
    # Sizes.
    ("convolution", {"dilations": (1, 7)},
     "`weights`, dilated, must fit into the padded `src`; got an extent of 8 "
     "(kernel 2, dilation 7) over 6 (src 6, pads 0 and 0) (spatial axis 1)"),
    ("convolution_backward_weights", {"weights_shape": (9, 2, 2, 6), "pads_end": (1, 0)},
     "`weights_shape`, dilated, must fit into the padded `src`; got an extent of 9 "
     "(kernel 9, dilation 1) over 8 (src 7, pads 0 and 1) (spatial axis 0)"),
    ("convolution_backward_weights", {"diff_dst": (2, 4, 4, 6)},
     "`diff_dst` must have the extent that convolution gives, 3; got 4 for src 7, kernel 3, "
     "stride 2, dilation 1, pads 0 and 0 (spatial axis 0)"),
    ("convolution_backward_data", {"dst_shape": (2, 6, 6, 4)},
     "`dst_shape` must have an extent from which convolution gives that of diff_dst, 3; got 6, "
     "and 7 to 8 fit (spatial axis 0)"),
    ("convolution_backward_data", {"dst_shape": (2, 8, 7, 4)},
     "`dst_shape` must have an extent from which convolution gives that of diff_dst, 4; got 7, "
     "and only 6 fits (spatial axis 1)"),
    ("convolution_backward_data", {"pads_begin": (5, 0), "pads_end": (3, 0)},
     "`dst_shape` must have an extent from which convolution gives that of diff_dst, 3; got 7, "
     "and no extent fits (spatial axis 0)"),
    ("convolution_backward_data", {"dst_shape": None, "pads_begin": (0, 7)},
     "`pads_begin` and `pads_end` must leave the result an extent of at least 1; got -1 = "
     "1 * 3 + 3 + 0 - 7 = stride * (diff_dst - 1) + dilated kernel + output_padding - pads "
     "(spatial axis 1)"),
    ("convolution_backward_data", {"dst_shape": (2, 9, 6, 4), "output_padding": (1, 0)},
     "`dst_shape` and `output_padding` must agree; got 9, which implies an output_padding of 2, "
     "and output_padding=1 (spatial axis 0)"),
    ("conv_transpose", {"pads_begin": (3, 0), "pads_end": (5, 0), "output_padding": (1, 0)},
     "`pads_begin` and `pads_end` must leave the result an extent of at least 1; got 0 = "
     "2 * 2 + 3 + 1 - 8 = stride * (src - 1) + dilated kernel + output_padding - pads "
     "(spatial axis 0)"),
    ("conv_transpose", {"dst_shape": (2, 7, 4, 4), "pads_end": (0, 1)},
     "`dst_shape` must have an extent of at least 5, that without output_padding; got 4 "
     "(spatial axis 1)"),
    ("conv_transpose_backward_data", {"output_padding": (1, 0)},
     "`output_padding` must leave a multiple of stride 2 of the 4 = diff_dst + pads - dilated "
     "kernel; got 1. Left out, it is 0 (spatial axis 0)"),
    ("conv_transpose_backward_data", {"output_padding": (6, 0), "pads_end": (1, 0)},
     "`output_padding` must leave a multiple of stride 2 of the 5 = diff_dst + pads - dilated "
     "kernel; got 6. Left out, it is 1 (spatial axis 0)"),
    ("conv_transpose_backward_weights", {"weights_shape": (4, 2, 2, 6)},
     "`diff_dst` must have an extent of at least 8, what conv_transpose gives without "
     "output_padding; got 7 for src 3, kernel 4, stride 2, dilation 1, pads 0 and 0 "
     "(spatial axis 0)"),
    ("conv_transpose_backward_weights", {"output_padding": (0, 2), "pads_begin": (0, 1)},
     "`output_padding` must be what the extents imply, 1; got 2 for src 4, diff_dst 6, kernel 2, "
     "stride 1, dilation 2, pads 1 and 0 (spatial axis 1)"),
    # Bias.
    ("convolution", {"bias": (5,)},
     "`bias` must have shape (6,), one entry for each dst channel; got shape (5,) for dst shape "
     "(2, 3, 4, 6)"),
    ("conv_transpose", {"bias": (2,)},
     "`bias` must have shape (4,), one entry for each dst channel; got shape (2,) for dst shape "
     "(2, 7, 6, 4)"),
    # Residual and activation.
    ("convolution", {"residual": (2, 3, 4, 5)},
     "`residual` must have the shape of dst, (2, 3, 4, 6); got (2, 3, 4, 5)"),
    ("conv_transpose", {"activation": "gelu"},
     "`activation` must be 'gelu_erf', the definition, or 'gelu_tanh', the approximation that "
     "jax.nn.gelu computes by default; got 'gelu'"),
    ("conv_transpose", {"activation": "relu", "alpha": 0.5},
     "`alpha` must be None unless `activation` is 'leaky_relu' or 'elu'; got 0.5 for 'relu'"),
    ("conv_transpose", {"activation": "elu", "alpha": -1},
     "`alpha` must be finite and at least 0; got -1"),
    # Layouts.
    ("convolution", {"data_format": "NCX"},
     "`groups` must divide the src channels; got groups=2, channels=7 from src shape "
     f"(2, 7, 6, 4) (NCX){FITS} data_format='NXC'"),
    ("conv_transpose", {"weights_format": "XIO"},
     "`weights` must have all 6 src channels (or src channels / groups = 3) on axis I; got 2 in "
     "shape (3, 2, 2, 6) (XIO), groups=2, channels=6 from src shape (2, 3, 4, 6) (NXC)"
     f"{FITS} weights_format='IOX' or weights_format='XOI'"),
    ("convolution_backward_weights", {"weights_shape": (6, 2, 3, 2)},
     "`weights_shape` must have src channels / groups = 2 on axis I; got 3 in shape "
     "(6, 2, 3, 2) (XIO), groups=2, channels=4 from src shape (2, 7, 6, 4) "
     f"(NXC){FITS} weights_format='OIX'"),
    ("convolution", {"src": (2, 4, 7, 6), "weights_format": "IOX"},
     "`weights`, dilated, must fit into the padded `src`; got an extent of 11 "
     "(kernel 6, dilation 2) over 7 (src 7, pads 0 and 0) (spatial axis 1)"
     f"{FITS} data_format='NCX' and weights_format='XIO'"),
    ("convolution", {"src": (1, 5, 4), "weights": (2, 2, 6), "strides": (2, 1), "dilations": 1},
     "`strides` must be an int or a sequence of 1 int, one per spatial axis; "
     "got (2, 1), of length 2"),
]  # fmt: skip


@pytest.mark.parametrize(("op", "changes", "text"), RULES)
def test_rule(op, changes, text):
    """The same words of the same shapes under jit and vmap, and nothing added to the trace."""
    assert message(ValueError, op, **changes) == text
    arguments = VALID[op] | changes
    tensors = {name: array(arguments.pop(name)) for name in TENSORS if name in arguments}

    def body(tensors):
        assert message(ValueError, op, **arguments, **tensors) == text
        return 0

    assert not jax.make_jaxpr(body)(tensors).eqns
    jax.vmap(body, out_axes=None)({name: np.stack([x] * 3) for name, x in tensors.items()})


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


# Shapes as arguments.


@pytest.mark.parametrize(("op", "name"), SHAPES)
def test_what_is_not_a_shape(op, name):
    order = {"dst_shape": "NXC", "convolution_backward_weights": "XIO"}
    order = order.get(name) or order.get(op, "XOI")
    expected = f"`{name}` must be a sequence of 4 ints, in {order} order; got"
    for value, got in [
        (7, "7 (int)"),
        ("2764", "'2764' (str)"),
        ({2, 7, 6, 4}, "{2, 4, 6, 7} (set)"),
        ((2, 7.0, 6, 4), "7.0 (float)"),
        ([True, 7, 6, 4], "True (bool)"),
        ((2, 7, "6", 4), "'6' (str)"),
        ((2, None, 6, 4), "None"),
        (np.array(7), "array(7) (ndarray)"),
        (np.array([2.0, 7, 6, 4]), "an array of type float64 and shape (4,)"),
        (jnp.array([2.0, 7, 6, 4]), "an array of type float32 and shape (4,)"),
        (np.array([[2, 7, 6, 4]]), "an array of type int64 and shape (1, 4)"),
    ]:
        assert message(TypeError, op, **{name: value}) == f"{expected} {got}"
    for value in [(2, 7, 6), (2, 7, 6, 4, 1), ()]:
        assert message(ValueError, op, **{name: value}) == (
            f"{expected} {value}, of length {len(value)}"
        )
    if name == "weights_shape":
        assert message(TypeError, op, **{name: None}) == f"{expected} None"


@pytest.mark.parametrize(("op", "name"), SHAPES)
def test_a_shape_of_any_kind_is_a_shape(op, name):
    shape = FINE if name == "dst_shape" else KERNEL
    expected = call(op, **{name: shape})
    for value in (list(shape), np.array(shape), jnp.array(shape), tuple(map(np.int8, shape))):
        np.testing.assert_array_equal(call(op, **{name: value}), expected)


FULL = "`dst_shape` must be the full shape of the result, with the batch of "


@pytest.mark.parametrize(
    ("op", "entry", "value"),
    [
        ("convolution_backward_data", 0, 3),
        ("convolution_backward_data", 0, -2),
        ("convolution_backward_data", 3, 2),
        ("conv_transpose", 0, 1),
        ("conv_transpose", 3, 8),
    ],
)
def test_batch_and_channels_of_a_shape(op, entry, value):
    shape = list(FINE)
    shape[entry] = value
    text = message(ValueError, op, dst_shape=shape)
    assert text.startswith(FULL)
    assert text.endswith(f"{FINE} (NXC); got {tuple(shape)}")


# Traced and symbolic values.


STATIC = (
    "Shapes and attributes must be static: pass Python ints or a NumPy array, or name the "
    "argument in jax.jit's static_argnames"
)


@pytest.mark.parametrize(("op", "name"), [*((OP, name) for name in (*PER_AXIS, "groups")), *SHAPES])
def test_traced_attributes(op, name):
    shape = {"dst_shape": FINE, "weights_shape": KERNEL}.get(name)
    wholly = jnp.array(shape or 1)
    partly = [lambda v: (*shape[:3], v)] if shape else [lambda v: (1, v)]
    if name == "groups":
        partly = []

    def body(value):
        for spelled, kind in [(value, wholly.aval), *((p(value.max()), "int32[]") for p in partly)]:
            text = message(TypeError, op, **{name: spelled})
            assert text.startswith(f"`{name}` must be a")
            kind = re.escape(str(kind)).replace("int32", "~?int32")
            assert re.search(
                f", known when the function is traced; got a traced value of type {kind}\\. "
                f"{re.escape(STATIC)}$",
                text,
            ), text
        return 0

    jax.make_jaxpr(body)(wholly)


def test_only_the_batch_may_be_symbolic():
    batch, other = export.symbolic_shape("b, s")

    def body(op, **changes):
        tensors = {
            name: jax.ShapeDtypeStruct(shape, np.float32)
            for name, shape in (VALID[op] | changes).items()
            if name in TENSORS
        }
        rest = {k: v for k, v in (VALID[op] | changes).items() if k not in TENSORS}
        return jax.eval_shape(lambda tensors: call(op, **tensors, **rest), tensors)

    for op, changes, shape in [
        ("convolution", {"src": (batch, *FINE[1:])}, (batch, *COARSE[1:])),
        ("convolution_backward_data",
         {"diff_dst": (batch, *COARSE[1:]), "dst_shape": (batch, *FINE[1:])},
         (batch, *FINE[1:])),
        ("conv_transpose",
         {"src": (2 * batch, *COARSE[1:]), "dst_shape": (2 * batch, *FINE[1:])},
         (2 * batch, *FINE[1:])),
        ("convolution_backward_weights",
         {"src": (batch, *FINE[1:]), "diff_dst": (batch, *COARSE[1:])},
         KERNEL),
    ]:  # fmt: skip
        assert body(op, **changes).shape == shape

    constant = "must have constant extents (only the batch may be symbolic); got shape"
    for op, changes, text in [
        ("convolution", {"src": (batch, other, 6, 4)}, f"`src` {constant} (b, s, 6, 4)"),
        ("convolution", {"src": (2, 7, 6, other)}, f"`src` {constant} (2, 7, 6, s)"),
        ("conv_transpose", {"weights": (3, 2, 2, other)}, f"`weights` {constant} (3, 2, 2, s)"),
        ("convolution_backward_data", {"dst_shape": (2, other, 6, 4)},
         f"`dst_shape` {constant} (2, s, 6, 4)"),
        ("conv_transpose_backward_weights", {"weights_shape": (other, 2, 2, 6)},
         f"`weights_shape` {constant} (s, 2, 2, 6)"),
        ("convolution_backward_weights", {"src": (batch, *FINE[1:])},
         "`diff_dst` must have the batch of `src`; got shapes (2, 3, 4, 6) and (b, 7, 6, 4) (NXC)"),
        ("conv_transpose", {"src": (batch, *COARSE[1:]), "dst_shape": FINE},
         f"{FULL}`src` and the channels of the weights, (b, 7, 6, 4) (NXC); got (2, 7, 6, 4)"),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=op) as caught:
            body(op, **changes)
        assert str(caught.value) == f"{op}: {text}"
    for name in ("strides", "groups"):
        assert "got b (_DimExpr)" in message(TypeError, "convolution", **{name: batch})


# Numerics and shardings.


@pytest.mark.parametrize(
    ("value", "got"),
    [
        ("hi", "'hi' (str)"),
        ("HIGHEST", "'HIGHEST' (str)"),
        (1, "1 (int)"),
        (True, "True (bool)"),
        (jnp.float32, "<class 'jax.numpy.float32'> (_ScalarMeta)"),
        (("high",), "('high',) (tuple)"),
        (["high", 2], "['high', 2] (list)"),
        (("high",) * 3, "('high', 'high', 'high') (tuple)"),
        ("F32_F32_F32", "'F32_F32_F32' (str)"),
        (lax.DotAlgorithmPreset.F32_F32_F32, "DotAlgorithmPreset.F32_F32_F32 (DotAlgorithmPreset)"),
    ],
)
def test_precision(value, got):
    assert message(ValueError, OP, precision=value) == f"{PRECISIONS} {got}"


def test_precisions_that_are_accepted():
    default, high, highest = lax.Precision
    for value, pair in [
        (None, (default, default)),
        ("high", (high, high)),
        (highest, (highest, highest)),
        (("high", None), (high, default)),
        (["highest", "default"], (highest, default)),
    ]:
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
        (jnp.float32, jnp.bfloat16, "bfloat16"),
        (jnp.float32, "float16", "float16"),
        (jnp.bfloat16, jnp.float16, "float16"),
        (jnp.float16, jnp.bfloat16, "bfloat16"),
        (jnp.bfloat16, jnp.float8_e4m3fn, "float8_e4m3fn"),
        (jnp.bfloat16, int, "int32"),
        (jnp.bfloat16, jnp.complex64, "complex64"),
        (jnp.float32, "wide", "'wide' (str)"),
        (jnp.float32, True, "True (bool)"),
        (jnp.float32, jax.random.key(0).dtype, "key<fry>"),
    ],
)
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


# Layout hints: whatever they name does fit, and the layout meant is among them.


def in_layout(shape, given, wanted):
    """A shape of two spatial axes, from one format's order to another's."""
    axes = dict(zip(given.replace("X", "XY"), shape, strict=True))
    return tuple(axes[letter] for letter in wanted.replace("X", "XY"))


LAYOUTS = [(d, w) for d in ("NXC", "NCX") for w in ("OIX", "XIO", "IOX", "XOI")]


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("meant", LAYOUTS)
def test_hint_at_another_layout(op, meant):
    default = "XIO" if op.startswith("convolution") else "XOI"
    shapes = {
        name: in_layout(shape, default, meant[1])
        if name.startswith("weights")
        else in_layout(shape, "NXC", meant[0])
        for name, shape in VALID[op].items()
    }

    def resolve(data_format, weights_format):
        layout = {"data_format": data_format, "weights_format": weights_format}
        return jaxconv.resolve(op, **shapes, **ATTRIBUTES, **layout)

    def hinted(declared, text):
        words = dict(zip(("data_format", "weights_format"), declared, strict=True))
        return {tuple((words | dict(re.findall(r"(\w+)='(\w+)'", t))).values()) for t in text}

    for declared in LAYOUTS:
        try:
            resolve(*declared)
        except ValueError as error:
            _, hint = str(error).split(FITS)
            found = hinted(declared, re.split(", | or ", hint))
            for layout in found:
                resolve(*layout)
            changes = [
                sum(a != b for a, b in zip(declared, f, strict=True)) for f in (*found, meant)
            ]
            assert min(changes) == max(changes[:-1])
            assert meant in found or changes[-1] > changes[0]
