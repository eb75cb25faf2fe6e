"""What `jax.checkpoint` recomputes, and that our policy saves contractions from it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxconv
from tests.support.forms import DENSE, OPS, ROLES, integers, operands
from tests.support.programs import contractions, primitives

DOTS = jax.checkpoint_policies.dots_saveable
BOTH = jax.checkpoint_policies.save_from_both_policies(DOTS, jaxconv.contractions_saveable)


def backward_pass(f, *arguments):
    """The jaxpr of what runs after the forward pass, with the recomputation."""
    out, pull = jax.vjp(f, *arguments)
    return jax.make_jaxpr(pull)(out)


@pytest.mark.parametrize("name", OPS)
def test_contractions_are_saved(name):
    """Without the policy a gradient contracts once more to find what sin was applied to."""
    a, b, _ = operands(DENSE, name)
    first, second, result = ROLES[name]

    def f(a, b):
        return jnp.sin(DENSE.op(name)(a, b)).sum()

    recomputed = backward_pass(jax.checkpoint(f), a, b)
    assert sorted(contractions(recomputed)) == sorted([first, second, result])
    # JAX's own policy does not know our primitives: why there is one of ours.
    recomputed = backward_pass(jax.checkpoint(f, policy=DOTS), a, b)
    assert sorted(contractions(recomputed)) == sorted([first, second, result])

    for policy in (jaxconv.contractions_saveable, BOTH):
        saved = backward_pass(jax.checkpoint(f, policy=policy), a, b)
        assert sorted(contractions(saved)) == sorted([first, second])
        assert "cos" in primitives(saved), "everything is saved, not only contractions"

    gradients = jax.jit(jax.grad(jax.checkpoint(f, policy=jaxconv.contractions_saveable), (0, 1)))
    for found, expected in zip(gradients(a, b), jax.grad(f, (0, 1))(a, b), strict=True):
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-4)


def test_a_policy_of_jax_saves_convolutions_of_lax_under_install():
    """The jaxpr of a model stays the same, so our policy knows none of its convolutions."""

    def f(x, w):
        return jnp.sin(jax.lax.conv(x, w, (1, 1), "SAME")).sum()

    def count(policy):
        recomputed = backward_pass(jax.checkpoint(f, policy=policy), x, w)
        return primitives(recomputed).count("conv_general_dilated")

    x, w = integers((2, 3, 5, 5), 1), integers((4, 3, 3, 3), 2)
    with jaxconv.installed():
        assert [count(p) for p in (None, jaxconv.contractions_saveable, DOTS)] == [3, 3, 2]


def network(x, w, v):
    y = jnp.sin(DENSE.op("convolution")(x, w))
    return jnp.sin(jnp.dot(y.reshape(len(y), -1), v)).sum()


def test_policies_combine():
    """A convolution and a matrix product: each policy saves its own, both together save both."""
    x, w, t = operands(DENSE, "convolution")
    v = integers((t[0].size, 2), 3)

    def forward_products(policy):
        names = primitives(backward_pass(jax.checkpoint(network, policy=policy), x, w, v))
        gradients = 2  # of each of the two products, with respect to its two factors
        convolutions = sum(n.startswith("contract_to_") for n in names) - gradients
        return convolutions, names.count("dot_general") - gradients

    assert forward_products(None) == (1, 1)
    assert forward_products(DOTS) == (1, 0)
    assert forward_products(jaxconv.contractions_saveable) == (0, 1)
    assert forward_products(BOTH) == (0, 0)
