"""Attributes broken: the error names operation, argument, rule and what was given."""

import inspect
import pickle
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxconv
from tests.support.calls import FINE, KERNEL, OP, VALID, Hostile, call, message

PER_AXIS = ("strides", "dilations", "pads_begin", "pads_end", "output_padding")

AUTO_PADS = "'none', 'valid', 'same_upper', 'same_lower', 'notset' or 'explicit'"
DATA_FORMATS = "'NXC' or 'NCX'"
WEIGHTS_FORMATS = "'OIX', 'XIO', 'IOX' or 'XOI'"
STRINGS = {"auto_pad": AUTO_PADS, "data_format": DATA_FORMATS, "weights_format": WEIGHTS_FORMATS}


@pytest.mark.parametrize("op", VALID)
def test_all_six_share_the_parser(op):
    attributes = inspect.signature(getattr(jaxconv, op)).parameters
    for name in (name for name in PER_AXIS if name in attributes):
        expected = f"`{name}` must be an int or a sequence of 2 ints, one per spatial axis; got"
        assert message(TypeError, op, **{name: True}) == f"{expected} True (bool)"
        for wrong in [(1,), (1, 2, 3), *[()] * (not name.startswith("pads"))]:
            text = message(ValueError, op, **{name: wrong})
            assert text == f"{expected} {wrong}, of length {len(wrong)}"
        assert message(ValueError, op, **{name: -1}).startswith(f"`{name}` must be at least ")
        assert message(TypeError, op, **{name: Hostile()}).startswith(f"`{name}` must be ")
    assert message(TypeError, op, groups=True) == "`groups` must be an int; got True (bool)"
    assert message(ValueError, op, groups=0) == "`groups` must be at least 1; got 0"
    for name, known in STRINGS.items():
        assert message(ValueError, op, **{name: "?"}) == f"`{name}` must be {known}; got '?'"
        assert message(TypeError, op, **{name: 3}) == f"`{name}` must be {known}; got 3 (int)"
    assert message(ValueError, op, precision=1).startswith("`precision` must be None, ")
    text = message(TypeError, op, preferred_element_type="f2")
    assert text.startswith("`preferred_element_type` must be the operands' type or a wider one")
    assert message(TypeError, op, out_sharding="d").startswith("`out_sharding` must be None, ")


#: What is neither an int nor a sequence of ints; what no int is; what no sequence of ints is.
NEITHER = [
    (True, "True (bool)"), (np.True_, "np.True_ (bool)"), (1.0, "1.0 (float)"),
    (np.float64(1), "np.float64(1.0) (float64)"), ("1", "'1' (str)"), (None, "None"),
]  # fmt: skip
NOT_INTS = [
    *NEITHER, ([1, 1], "[1, 1] (list)"), (np.array([1]), "array([1]) (ndarray)"),
    (jnp.array(True), "Array(True, dtype=bool) (ArrayImpl)"),
]  # fmt: skip
NOT_SEQUENCES = [
    ("2764", "'2764' (str)"), (b"1", "b'1' (bytes)"), ({1, 2}, "{1, 2} (set)"),
    ({1: 1}, "{1: 1} (dict)"),
    (np.array([1.0, 1.0]), "an array of type float64 and shape (2,)"),
    (np.array([True, True]), "an array of type bool and shape (2,)"),
    (np.array([[1, 1]]), "an array of type int64 and shape (1, 2)"),
    (jnp.array([1.0, 1.0]), "an array of type float32 and shape (2,)"),
]  # fmt: skip
SHAPES = {
    ("convolution_backward_data", "dst_shape"): "NXC",
    ("conv_transpose", "dst_shape"): "NXC",
    ("convolution_backward_weights", "weights_shape"): "XIO",
    ("conv_transpose_backward_weights", "weights_shape"): "XOI",
}


@pytest.mark.parametrize("name", PER_AXIS)
def test_what_is_not_an_int(name):
    expected = f"`{name}` must be an int or a sequence of 2 ints, one per spatial axis; got"
    values = [([1, entry], got) for entry, got in NOT_INTS]
    alone = [*NEITHER, (np.array(1.0), "an array of type float64 and shape ()")]
    for value, got in (*alone, *values, *NOT_SEQUENCES):
        assert message(TypeError, OP, **{name: value}) == f"{expected} {got}"


@pytest.mark.parametrize(("op", "name"), SHAPES)
def test_what_is_not_a_shape(op, name):
    expected = f"`{name}` must be a sequence of 4 ints, in {SHAPES[op, name]} order; got"
    values = [((2, entry, 6, 4), got) for entry, got in NOT_INTS]
    alone = [(7, "7 (int)"), (np.array(7), "array(7) (ndarray)")]
    alone += [(None, "None")] * (name == "weights_shape")
    for value, got in (*alone, *values, *NOT_SEQUENCES):
        assert message(TypeError, op, **{name: value}) == f"{expected} {got}"
    for value in [(2, 7, 6), (2, 7, 6, 4, 1), ()]:
        text = message(ValueError, op, **{name: value})
        assert text == f"{expected} {value}, of length {len(value)}"


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


def test_groups():
    for value, got in NOT_INTS:
        text = message(TypeError, OP, groups=value)
        assert text == f"`groups` must be an int; got {got}"
    call(OP, groups=np.int32(2))


@pytest.mark.parametrize(
    ("name", "value", "hint"),
    [
        ("auto_pad", "SAME", "; did you mean 'same_upper'?"),
        ("auto_pad", "same-lower", "; did you mean 'same_lower'?"),
        ("auto_pad", "valid ", "; did you mean 'valid'?"), ("auto_pad", "circular", ""),
        ("auto_pad", "", ""), ("data_format", "NHWC", "; did you mean 'NXC'?"),
        ("data_format", "NWC", "; did you mean 'NXC'?"),
        ("data_format", "ncdhw", "; did you mean 'NCX'?"), ("data_format", "OIX", ""),
        ("weights_format", "HWIO", "; did you mean 'XIO'?"),
        ("weights_format", "OIDHW", "; did you mean 'OIX'?"),
        ("weights_format", "hwoi", "; did you mean 'XOI'?"), ("weights_format", "NCX", ""),
    ],
)  # fmt: skip
def test_spelling(name, value, hint):
    assert message(ValueError, OP, **{name: value}) == (
        f"`{name}` must be {STRINGS[name]}; got {value!r}{hint}"
    )


def test_an_error_is_the_same_in_another_process():
    """Its text has parts, for doors to name; a pickle keeps both."""
    with pytest.raises(ValueError, match="These shapes would fit") as caught:
        call(OP, src=FINE)
    again = pickle.loads(pickle.dumps(caught.value))
    assert repr(again) == repr(caught.value) == f"ValueError({str(again)!r})"
    assert again.args[0].parts == caught.value.args[0].parts


HUGE = [
    (ValueError, OP, "strides", 10**5000), (ValueError, OP, "pads_end", [0, 10**5000]),
    (ValueError, OP, "groups", -(10**5000)), (ValueError, OP, "strides", [1] * 10**6),
    (ValueError, OP, "auto_pad", "same" * 10**6), (ValueError, OP, "data_format", "NHWC" * 10**6),
    (ValueError, OP, "precision", "highest" * 10**6), (TypeError, OP, "out_sharding", "x" * 10**6),
    (TypeError, OP, "preferred_element_type", "float32" * 10**6),
    (TypeError, OP, "preferred_element_type", 10**5000), (TypeError, OP, "out_sharding", 10**5000),
    *((ValueError, *of, (1, 10**5000, 1, 1)) for of in SHAPES),
    *((ValueError, *of, [1] * 10**6) for of in SHAPES),
]  # fmt: skip


def test_a_message_is_short():
    for exception, op, name, value in HUGE:
        text = message(exception, op, **{name: value})
        assert f"`{name}`" in text
        assert len(text) < 300
    for shape in ((1, 10**5000, 1), (1,) * 10**5):
        for shapes in ((shape, (3, 1, 1)), (shape, shape)):
            with pytest.raises(ValueError, match=r"^convolution: `(src|weights)`") as caught:
                jaxconv.resolve(jaxconv.convolution, *shapes)
            assert len(str(caught.value)) < 300


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
        for value in (Hostile(), [1, Hostile()], RaisingList([1, 1]), deleted):
            exception = ValueError if name == "precision" else TypeError
            assert message(exception, OP, **{name: value}).startswith(f"`{name}` must be ")


def test_a_shape_that_raises():
    with pytest.raises(TypeError, match=r"^convolution: `src` has no shape to read: <Hostile"):
        jaxconv.resolve(jaxconv.convolution, Hostile(), KERNEL)


def test_a_dotless_i_is_none():
    """Its capital is I."""
    text = message(ValueError, "convolution", weights_format="X\N{LATIN SMALL LETTER DOTLESS I}O")
    assert text.startswith(f"`weights_format` must be {WEIGHTS_FORMATS}; got ")


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
