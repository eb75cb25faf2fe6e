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
