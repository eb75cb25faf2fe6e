"""On CPU, what stands around a convolution in a program is not fused into it, nor it into them."""

import re
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxconv
from tests.support.forms import CHANNELS_FIRST, DENSE, EACH_SLOT, operands
from tests.support.timing import takes_at_most

pytestmark = pytest.mark.usefixtures("however_little")

DEPTHWISE = replace(DENSE, channels=(4, 4), groups=4, strides=(1, 1))
GROUPED = replace(DENSE, channels=(24, 24), groups=8, strides=(1, 1))
POINTWISE = replace(DENSE, kernel=(1, 1), dilations=(1, 1))


#: What a program has of each form, by XLA's names.
MADE_OF = {
    "multiply-adds": {"slice", "multiply", "add"}, "im2col": {"slice", "concatenate", "dot"},
    "by group": {"transpose", "add"}, "dot": {"slice", "dot"},
}  # fmt: skip


def program(form, way, op):
    """An operation between three tanh, compiled."""
    a, b, _ = operands(form, op)
    run = jax.jit(lambda a, b: jnp.tanh(form.op(op)(jnp.tanh(a), jnp.tanh(b))))
    with jaxconv.forced(way):
        return run.lower(a, b).compile().as_text()


def work(text, way):
    """Which of XLA's operations that a form asked for compute or move a part of a tensor.

    XLA names each instruction after the scope that asked for it, and forms are scopes.
    """
    found = set(re.findall(rf'^ .*? ([a-z-]+)\(.*op_name="[^"]*\b{way}/', text, re.MULTILINE))
    return found & {"slice", "multiply", "add", "concatenate", "pad", "reduce", "dot", "transpose",
                    "convolution"}  # fmt: skip


def loops(text):
    """The computations that have a tanh."""
    found = [c for c in text.split("\n}\n") if re.search(r"^ .* tanh\(", c, re.MULTILINE)]
    assert found
    return found


@pytest.mark.parametrize("op", EACH_SLOT)
@pytest.mark.parametrize(
    ("form", "way"),
    [
        pytest.param(form, way, id=f"{name}-{way}")
        for name, form, way in (
            ("depthwise", DEPTHWISE, "multiply-adds"),
            ("strided-depthwise", replace(DEPTHWISE, strides=(2, 2)), "multiply-adds"),
            ("grouped", GROUPED, "im2col"),
            ("grouped", GROUPED, "by group"),
            ("pointwise", POINTWISE, "dot"),
            ("dense-first", replace(DENSE, formats=CHANNELS_FIRST), "im2col"),
        )
    ],
)
def test_no_loop_holds_work_of_both(form, way, op):
    text = program(form, way, op)
    assert work(text, way) >= MADE_OF[way]
    moved_once = form.groups > 1
    for loop in loops(text):
        assert work(loop, way) <= ({"transpose"} if moved_once else set()), loop


def test_weights_of_neighbours_are_neighbours_in_memory():
    """In any format: where a loop reads weights one by one, it takes up to six times as long."""
    run = partial(jaxconv.convolution, groups=64, weights_format="OIX")
    with jaxconv.forced("multiply-adds"):
        lowered = jax.jit(run).lower(jnp.ones((2, 9, 9, 64)), jnp.ones((64, 1, 5, 5)))
    orders = re.findall(r"f32\[5,5,1,64\](\{.*?\})", lowered.compile().as_text())
    assert set(orders) == {"{3,2,1,0}"}


@pytest.mark.timed
def test_a_layer_costs_in_a_program_what_it_costs_alone():
    """Normalised and activated on both sides, as networks are, 32 groups of 4 channels."""

    def around(x):
        scale = jax.lax.rsqrt(x.var((0, 1, 2), keepdims=True) + 1e-5)
        return jax.nn.relu((x - x.mean((0, 1, 2), keepdims=True)) * scale)

    def layer(x, w):
        return jaxconv.convolution(x, w, pads_begin=1, pads_end=1, groups=32)

    rng = np.random.default_rng(3)
    x = jnp.asarray(rng.standard_normal((8, 28, 28, 128)), np.float32)
    w = jnp.asarray(rng.standard_normal((3, 3, 4, 128)), np.float32)
    whole = jax.jit(lambda x, w: around(layer(around(x), w)))
    before, alone, after = jax.jit(around), jax.jit(layer), jax.jit(around)
    np.testing.assert_allclose(whole(x, w), after(alone(before(x), w)), rtol=1e-3, atol=1e-3)
    assert takes_at_most(
        1.3,
        lambda: jax.block_until_ready(whole(x, w)),
        lambda: jax.block_until_ready(after(jax.block_until_ready(alone(before(x), w)))),
    )
