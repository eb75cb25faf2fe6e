"""The other convolutions of `jaxconv.lax`: values, gradients, signatures and errors of lax."""

import inspect
from functools import partial

import jax
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

import jaxconv
from tests.support.forms import each, integers
from tests.support.lax_oracle import same
from tests.support.programs import contractions


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
