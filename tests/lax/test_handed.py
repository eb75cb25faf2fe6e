"""What `jaxconv.lax` hands to lax as it is, results and errors; and its other convolutions."""

import inspect
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxconv
from tests.support.forms import each, integers
from tests.support.lax_oracle import both, data, same
from tests.support.programs import contractions, primitives

X, K = (2, 4, 6), (6, 4, 3)
HANDED = {
    "int32": ((X, K, np.int32), {}), "int8 to int8": ((X, K, np.int8), {}),
    "int8 to int32, dilated": (
        (X, K, np.int8),
        {"preferred_element_type": np.int32, "lhs_dilation": (2,)},
    ),
    "int8 to int32, in groups of the batch": (
        (X, (6, 4, 3), np.int8),
        {"preferred_element_type": np.int32, "batch_group_count": 2},
    ),
    "int16 to int32": ((X, K, np.int16), {"preferred_element_type": np.int32}),
    "int8 to float32": ((X, K, np.int8), {"preferred_element_type": np.float32}),
    "bool": ((X, K, np.bool_), {}), "complex64": ((X, K, np.complex64), {}),
    "float8": ((X, K, jnp.float8_e4m3fn), {}), "no input channels": (((2, 0, 6), (6, 0, 3)), {}),
    "bfloat16 to float16": ((X, K, jnp.bfloat16), {"preferred_element_type": jnp.float16}),
    "float16 to bfloat16": ((X, K, jnp.float16), {"preferred_element_type": jnp.bfloat16}),
    "a dot algorithm": ((X, K), {"precision": lax.DotAlgorithmPreset.F32_F32_F32}),
    "the name of one": ((X, K), {"precision": "F32_F32_F32"}), "no result": ((X, (6, 4, 7)), {}),
    "no spatial axis": (((2, 4), (6, 4)), {"window_strides": (), "padding": []}),
    "no output channels": ((X, (0, 4, 3)), {}),
    "no images": (((2, 4, 0), K), {"padding": [(2, 2)]}),
    "no dilated result": ((X, (6, 4, 3)), {"lhs_dilation": (2,), "padding": [(-9, 0)]}),
}  # fmt: skip


@each("handed", HANDED)
def test_handed_to_lax(handed):
    """By `jaxconv.lax`, and where `install` is asked."""
    tensors, arguments = handed
    lhs, rhs = data(*tensors)
    ours, theirs = both(**{"window_strides": (1,), "padding": [(0, 0)]} | arguments)
    assert primitives(jax.make_jaxpr(ours)(lhs, rhs)) == ["conv_general_dilated"]
    same(ours(lhs, rhs), theirs(lhs, rhs))
    of_parts = {"coarse"} if np.iscomplexobj(lhs) else set()  # three real convolutions
    assert {row.to for row in jaxconv.explain(theirs, lhs, rhs).rows} == {None, *of_parts}
    text = jax.jit(theirs).lower(lhs, rhs).as_text()
    with jaxconv.installed():
        lowered = jax.jit(theirs).lower(lhs, rhs).as_text()
    assert (lowered == text) != np.iscomplexobj(lhs)  # which lax lowers to three convolutions


def test_weak_types():
    """Of two weak operands lax makes a weak result; of one, none."""
    lhs, rhs = jnp.full(X, 2.0), jnp.full(K, 3.0)
    ours, theirs = both(window_strides=(1,), padding="VALID")
    assert theirs(lhs, rhs).weak_type
    same(ours(lhs, rhs), theirs(lhs, rhs))
    assert contractions(jax.make_jaxpr(ours)(lhs, rhs)) == []
    same(ours(lhs, jnp.ones(K)), theirs(lhs, jnp.ones(K)))
    assert contractions(jax.make_jaxpr(ours)(lhs, jnp.ones(K))) == ["coarse"]


def test_an_out_sharding_on_no_explicit_mesh():
    automatic = NamedSharding(jax.make_mesh((2,), ("d",), axis_types=(AxisType.Auto,)), P())
    lhs, rhs = data(X, K)
    ours, theirs = both(window_strides=(1,), padding="VALID", out_sharding=automatic)
    assert contractions(jax.make_jaxpr(ours)(lhs, rhs)) == []
    same(ours(lhs, rhs), theirs(lhs, rhs))


F32 = np.float32
MALFORMED = {
    "one stride too many": {"window_strides": (1, 1)}, "a stride of 0": {"lhs_dilation": (0,)},
    "a window stride of 0": {"window_strides": (0,)},
    "a fractional stride": {"window_strides": (1.5,)}, "an unknown padding": {"padding": "FULL"},
    "one pair too many": {"padding": [(0, 0), (0, 0)]}, "no pairs": {"padding": [1]},
    "dilations by name of padding": {"lhs_dilation": (2,), "padding": "SAME"},
    "one dilation too many": {"rhs_dilation": (1, 1)}, "no dilation": {"rhs_dilation": (0,)},
    "groups that do not divide": {"feature_group_count": 3},
    "no groups": {"feature_group_count": 0}, "weights of all groups": {"feature_group_count": 2},
    "weights of all groups, dilated": {"feature_group_count": 2, "lhs_dilation": (2,)},
    "a precision": {"precision": "exact"},
    "groups by division": {"feature_group_count": 8 / 2, "rhs": np.zeros((8, 1, 3), F32)},
    "a narrower type": {"preferred_element_type": jnp.bfloat16},
    "an integer type": {"preferred_element_type": jnp.int32},
    "no type": {"preferred_element_type": "float33"},
    "unequal types": {"rhs": np.zeros(K, np.float16)},
    "unequal ranks": {"rhs": np.zeros((6, 4), F32)},
    "unequal ranks, by numbers": {
        "rhs": np.zeros((6, 4), F32),
        "dimension_numbers": lax.ConvDimensionNumbers((0, 1, 2), (0, 1, 2), (0, 1, 2)),
    },
    "axis twice": {"dimension_numbers": lax.ConvDimensionNumbers((0, 1, 1), (0, 1, 2), (0, 1, 2))},
    "layouts": {"dimension_numbers": ("NCH", "OIW", "NCH")}, "crops": {"padding": [(-4, -4)]},
    "no array": {"lhs": [[[1.0] * 6] * 4] * 2},
}  # fmt: skip


#: Of a transposed convolution.
MALFORMED_TRANSPOSED = {
    "rank": {"rhs": np.zeros((3, 3, 6), F32)}, "no such padding": {"padding": "FULL"},
    "no such padding, consistent": {"padding": "FULL", "use_consistent_padding": True},
    "one stride too few": {"strides": (2,)}, "channels": {"rhs": np.zeros((3, 2, 4, 6), F32)},
    "no defaults": {"lhs": np.zeros((1,) * 6, F32), "rhs": np.zeros((1,) * 6, F32)},
    "no axis": {"lhs": np.zeros(3, F32), "rhs": np.zeros(3, F32)},
}  # fmt: skip


ERRORS = (AssertionError, AttributeError, TypeError, ValueError, RuntimeError)


def check_error(name, lhs, rhs, arguments):
    """The error of lax; behind the first line stands where it happened."""
    arguments = {"lhs": lhs, "rhs": rhs} | arguments
    errors = []
    for module, on in ((lax, False), (jaxconv.lax, False), (lax, True)):
        with pytest.raises(ERRORS) as caught, jaxconv.installed(on):
            getattr(module, name)(**arguments)
        errors.append((caught.type, str(caught.value).splitlines()[:1]))
    assert errors[0] == errors[1] == errors[2]


@pytest.mark.filterwarnings("ignore:divide by zero")  # by lax, of a stride of 0
@each("change", MALFORMED)
def test_malformed_arguments_get_the_error_of_lax(change):
    given = {"window_strides": (1,), "padding": [(0, 0)]} | change
    check_error("conv_general_dilated", *data(X, K), given)


@each("change", MALFORMED_TRANSPOSED)
def test_malformed_transposed_ones_get_the_error_of_lax(change):
    given = {"strides": (2, 1), "padding": "SAME"} | change
    check_error("conv_transpose", *data((2, 5, 4, 3), (3, 2, 3, 6)), given)


def test_equal_numbers_of_other_types_are_other_arguments():
    """A call that lax refuses is refused after one like it that was compiled."""
    lhs, rhs = data(X, K)
    jaxconv.lax.conv_general_dilated(lhs, rhs, (1,), "VALID", feature_group_count=1)
    with pytest.raises((NotImplementedError, TypeError)):
        jaxconv.lax.conv_general_dilated(lhs, rhs, (1.0,), "VALID", feature_group_count=1)


@pytest.mark.parametrize("name", jaxconv.lax.__all__)
def test_the_signature(name):
    def listed(module):
        parameters = inspect.signature(getattr(module, name)).parameters.values()
        return [(p.name, p.kind, p.default) for p in parameters]

    assert listed(jaxconv.lax) == listed(lax)


def check(name, lhs, rhs, slots, **arguments):
    """Result and gradients are lax's, of these contractions and no convolution of lax."""
    given = (lhs,) if rhs is None else (lhs, rhs)

    def derived(module, *given):
        out, pull = jax.vjp(partial(getattr(module, name), **arguments), *given)
        return out, pull(integers(out.shape, 3))

    ours = partial(getattr(jaxconv.lax, name), **arguments)
    assert contractions(jax.make_jaxpr(ours)(*given)) == slots
    run = jax.jit(derived, static_argnums=0)
    same(run(jaxconv.lax, *given), run(lax, *given))


TRANSPOSED = {
    # strides, padding, rhs_dilation, consistent
    "same": ((2, 3), "SAME", None, False),
    "same, stride beyond the kernel": ((4, 3), "SAME", None, False),
    "valid, consistent": ((3, 1), "VALID", None, True),
    "pads": ((2, 3), [(2, 1), (0, 3)], (1, 2), False),
    "pads, consistent": ((2, 3), [(1, 0), (0, 1)], (1, 2), True),
    "no stride": ((1, 1), "SAME", None, False),
}


@pytest.mark.parametrize("transpose_kernel", [False, True])
@each("given", TRANSPOSED)
def test_conv_transpose(given, transpose_kernel):
    strides, padding, rhs_dilation, consistent = given
    lhs = integers((2, 4, 3, 3), 1)
    rhs = integers((3, 2, 5, 3) if transpose_kernel else (3, 2, 3, 5), 2)
    check(
        "conv_transpose", lhs, rhs, ["coarse"] if strides == (1, 1) else ["fine"],
        strides=strides, padding=padding, rhs_dilation=rhs_dilation,
        transpose_kernel=transpose_kernel, use_consistent_padding=consistent,
    )  # fmt: skip


SAME = {"padding": "SAME"}


@pytest.mark.parametrize(
    ("name", "lhs", "rhs", "slot", "arguments"),
    [
        ("conv", (2, 3, 9, 8), (4, 3, 3, 2), "coarse", SAME | {"window_strides": (2, 1)}),
        ("conv_with_general_padding", (2, 3, 5, 4), (4, 3, 3, 2), "fine",
         {"window_strides": (1, 1), "padding": [(1, 3), (0, 2)], "lhs_dilation": (2, 3),
          "rhs_dilation": (2, 1)}),
        ("conv_transpose", (2, 5, 3), (3, 3, 4), "fine", SAME | {"strides": (2,)}),
        ("conv_transpose", (2, 4, 3, 2, 3), (2, 3, 2, 3, 4), "fine", SAME | {"strides": (2, 3, 1)}),
        ("conv_transpose", (2, 3, 4, 3), (3, 4, 3, 2), "fine",
         SAME | {"strides": (2, 3), "dimension_numbers": ("NCHW", "IOHW", "NCHW")}),
    ],
)  # fmt: skip
def test_others(name, lhs, rhs, slot, arguments):
    check(name, integers(lhs, 1), integers(rhs, 2), [slot], **arguments)


WINDOWS = {
    "strided": {"window_strides": (2, 1), "padding": [(1, 0), (0, 2)], "rhs_dilation": (1, 2)},
    "dilated": {"window_strides": (1, 1), "padding": [(1, 0), (0, 2)], "lhs_dilation": (1, 2)},
    "last": SAME | {"window_strides": (1, 2), "dimension_numbers": ("NHWC", "WHIO", "CNWH")},
}


@each("window", WINDOWS)
def test_patches_and_local(window):
    numbers = window.get("dimension_numbers")
    lhs = integers((2, 3, 6, 5) if numbers is None else (2, 6, 5, 3), 1)
    slot = ["fine"] if "lhs_dilation" in window else ["coarse"]
    patches = "conv_general_dilated_patches"
    check(patches, lhs, None, slot, filter_shape=(3, 2), **window)
    out = jax.eval_shape(partial(getattr(lax, patches), filter_shape=(3, 2), **window), lhs).shape
    shape = (4, 18, *out[2:]) if numbers is None else (*out[2:], 18, 4)  # WHIO, of CNWH
    rhs = integers(shape, 2)
    check("conv_general_dilated_local", lhs, rhs, slot, filter_shape=(3, 2), **window)


def test_a_traced_stride_gets_the_error_of_lax():
    said = []
    for module in (lax, jaxconv.lax):
        with pytest.raises(TypeError) as caught:
            jax.jit(lambda s, m=module: m.conv_general_dilated(*data(X, K), (s,), "VALID"))(1)
        said.append(str(caught.value))
    assert said[0] == said[1]


def test_the_precision_is_passed_on():
    x, window = jnp.ones((2, 6, 3)), {"padding": "VALID", "precision": lax.Precision.HIGHEST}
    slid, ours = window | {"window_strides": (1,), "filter_shape": (3,)}, jaxconv.lax
    for call in (
        lambda x: ours.conv_transpose(x, jnp.ones((3, 3, 4)), (1,), **window),
        lambda x: ours.conv_general_dilated_patches(x, **slid),
        lambda x: ours.conv_general_dilated_local(x, jnp.ones((4, 18, 1)), **slid),
    ):
        assert "HIGHEST" in str(jax.make_jaxpr(call)(x))


def test_local_weights_of_data_that_vary_over_a_mesh():
    """The weights, and the identity that makes patches, do not vary: each step must make them."""
    mesh = jax.make_mesh((2,), ("d",), axis_types=(AxisType.Auto,))
    local = partial(
        jaxconv.lax.conv_general_dilated_local,
        window_strides=(1,), padding="VALID", filter_shape=(3,),
    )  # fmt: skip
    split = jax.shard_map(local, mesh=mesh, in_specs=(P("d"), P()), out_specs=P("d"))
    lhs, rhs = integers((2, 3, 6), 1), integers((4, 9, 4), 2)
    assert contractions(jax.make_jaxpr(split)(lhs, rhs)) == ["coarse"]
    assert np.array_equal(jax.jit(split)(lhs, rhs), local(lhs, rhs))
