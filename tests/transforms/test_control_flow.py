"""Inside scan, cond and while: the same numbers, in the same fast code."""

import re
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxconv
from tests.support.forms import (
    CHANNELS_FIRST,
    CHANNELS_LAST,
    DENSE,
    GROUPED,
    Form,
    alternately,
    each_slot,
    gradients,
    integers,
    operands,
)
from tests.support.timing import takes_at_most


@each_slot
def test_scan(name):
    """Over slices of the first argument, differentiated through the loop and within it."""
    op = DENSE.op(name)
    a, b, _ = operands(DENSE, name)
    slices = integers((3, *a.shape), 4, limit=2)

    def loss(slices, b):
        return lax.scan(lambda total, a: (total + (op(a, b) ** 2).sum(), None), 0.0, slices)[0] / 2

    found = jax.jit(jax.grad(loss, (0, 1)))(slices, b)
    pulled = [DENSE.exact_gradients(name, x, b, DENSE.exact(name, x, b)) for x in slices]
    np.testing.assert_array_equal(found[0], np.stack([p[0] for p in pulled]))
    np.testing.assert_array_equal(found[1], sum(p[1] for p in pulled))

    def body(_, x):
        return None, gradients(op, x, b, op(x, b))

    within = jax.jit(lambda slices: lax.scan(body, None, slices)[1])(slices)
    np.testing.assert_array_equal(within[0], found[0])
    np.testing.assert_array_equal(within[1].sum(0), found[1])


@each_slot
def test_cond_and_switch(name):
    op = DENSE.op(name)
    a, b, t = operands(DENSE, name)

    @jax.jit
    def choose(i, a, b):
        branches = (op, lambda a, b: 2 * op(-a, b), lambda a, b: jnp.zeros_like(t))
        return lax.switch(i, branches, a, b) + lax.cond(i < 1, op, lambda a, b: 0 * t, a, b)

    pull = jax.jit(lambda i, a, b, t: jax.vjp(lambda a, b: choose(i, a, b), a, b)[1](t))
    expected = DENSE.exact(name, a, b), DENSE.exact_gradients(name, a, b, t)
    for i, factor in enumerate((2, -2, 0)):
        np.testing.assert_array_equal(choose(i, a, b), factor * expected[0])
        for found, gradient in zip(pull(i, a, b, t), expected[1], strict=True):
            np.testing.assert_array_equal(found, factor * gradient)


CANONICAL = {"b0f_0io->b0f", "b01f_01io->b01f", "b012f_012io->b012f"}


#: Without groups, or with many channels in each: what is left of them are convolutions.
CONVOLVED = {
    "dense": DENSE,
    "channels first": replace(GROUPED, groups=1),
    "1-D": Form((11,), (4,), (3,), (2,), (2,), (1,), (4, 6), batch=3, formats=CHANNELS_FIRST),
    "3-D": Form((4, 5, 3), (2, 3, 2), (2, 1, 1), (1, 1, 2), (0, 2, 1), (1, 0, 0), (4, 6), batch=3),
    "wide groups": replace(GROUPED, channels=(64, 96), batch=8),
}


@alternately(CONVOLVED | {"grouped": GROUPED})
def test_convolutions_in_a_loop_are_canonical(form, name):
    """XLA:CPU runs fast only one order of dimensions, which it restores outside loops alone."""
    op = form.op(name)
    a, b, _ = operands(form, name)

    def body(carry, _):
        a, b = carry
        return gradients(op, a, b, op(a, b)), None  # what varies is not taken out of the loop

    labels = labels_within(lambda a, b: lax.scan(body, (a, b), None, length=3), a, b)
    assert labels <= CANONICAL
    assert labels or form.groups > 1


@alternately({name: CONVOLVED[name] for name in ("dense", "channels first")})
def test_convolutions_in_branches_are_canonical(form, name):
    """And those in the branches of a loop without a known end."""
    op = form.op(name)
    a, b, t = operands(form, name)

    def repeat(a, b):
        def body(state):
            i, a, total = state
            more = lax.cond(i % 2 == 0, op, lambda a, b: -op(a, 2 * b), a, b)
            return i + 1, 2 * a, total + more

        return lax.while_loop(lambda state: state[2].sum() < 1e6, body, (0, a, jnp.zeros_like(t)))

    labels = labels_within(repeat, a, b)
    assert labels <= CANONICAL
    assert labels or name != "convolution"  # of others dots are left


def labels_within(loop, a, b):
    """The dimension labels of all convolutions in a program of a loop, without oneDNN."""
    with jaxconv.forced("portable"):
        text = jax.jit(loop).lower(a, b).compile().as_text()
    assert "while(" in text
    assert "rhs_reversal" not in text
    return set(re.findall(r" convolution\(.*dim_labels=([^,\s]+)", text))


# Timed. Each round times the loop and the same steps one by one, so that both see the same
# machine; the least of the ratios counts. All that a step takes varies from step to step:
# what does not, XLA computes once, before the loop.
LAYERS = {
    "dense": Form((28, 28), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), (64, 64), batch=4),
    "strided": Form((28, 28), (3, 3), (2, 2), (1, 1), (1, 1), (1, 1), (32, 64), batch=4),
    "grouped": Form((28, 28), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), (64, 64), 16, batch=4),
    "depthwise": Form((28, 28), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), (64, 64), 64, batch=4),
}
STEPS = 6


def in_order(step, sums, stacks):
    """A scan."""
    return lax.scan(lambda sums, xs: (step(sums, *xs), None), sums, stacks)[0]


def in_branches(step, sums, stacks):
    """A while loop, of branches that are all taken."""

    def body(state):
        i, sums = state
        slices = [x[i] for x in stacks]
        return i + 1, lax.cond(i >= 0, step, lambda sums, *_: sums, sums, *slices)

    return lax.while_loop(lambda state: state[0] < len(stacks[0]), body, (0, sums))[1]


@pytest.mark.timed
@pytest.mark.parametrize(
    ("loop", "layer", "formats", "name", "trains"),
    [
        (in_order, "dense", CHANNELS_LAST, "convolution_backward_weights", False),
        (in_order, "grouped", CHANNELS_FIRST, "convolution", False),
        (in_branches, "strided", CHANNELS_FIRST, "conv_transpose", False),
        (in_branches, "depthwise", CHANNELS_LAST, "convolution", False),
        (in_order, "dense", CHANNELS_FIRST, "conv_transpose", True),
        (in_order, "strided", CHANNELS_LAST, "convolution", True),
        (in_order, "depthwise", CHANNELS_FIRST, "convolution", True),
    ],
)
def test_a_loop_costs_what_its_steps_cost(loop, layer, formats, name, trains):
    """At most 1.3 times: of one operation or with both gradients, summed up in the carry."""
    form = replace(LAYERS[layer], formats=formats)
    op = form.op(name)

    def step(sums, a, b, t):
        return jax.tree.map(jnp.add, sums, (op(a, b), *(gradients(op, a, b, t) if trains else ())))

    a, b, t = arguments = [jnp.asarray(x) for x in operands(form, name)]
    carry = (t, a, b) if trains else (t,)
    once, looped = jax.jit(step), jax.jit(partial(loop, step))
    stacks = [jnp.stack([x + i for i in range(STEPS)]) for x in arguments]
    slices = jax.block_until_ready([[x[i] for x in stacks] for i in range(STEPS)])

    def apart():
        sums = carry
        for xs in slices:
            sums = jax.block_until_ready(once(sums, *xs))
        return sums

    def together():
        return jax.block_until_ready(looped(carry, stacks))

    for x, y in zip(*map(jax.tree.leaves, (apart(), together())), strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-2)
    assert takes_at_most(1.3, together, apart)
