"""Derivatives of every kind and order are the other contractions of the same form."""

from dataclasses import replace
from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import jet

from tests.support import forms, oracle
from tests.support.programs import contractions, equations, primitives

each_form = forms.each("form", forms.FORMS)


@forms.each_op
@each_form
def test_gradients_are_the_explicit_contractions(form, name):
    """The very same ones: so also the same speed, and in 16 bits rounded once."""
    derivatives = enumerate(forms.derivatives(name))
    for (wrt, (explicit, arguments)), dtype in product(derivatives, (np.float32, jnp.bfloat16)):
        a, b, t = forms.operands(form, name, dtype)

        def gradient(a, b, t, wrt=wrt):
            op = (lambda a: form.op(name)(a, b)) if wrt == 0 else (lambda b: form.op(name)(a, b))
            return jax.vjp(op, (a, b)[wrt])[1](t)

        derived = jax.make_jaxpr(gradient)(a, b, t)
        spelled = jax.make_jaxpr(form.op(explicit))(*arguments(a, b, t))
        # The vjp runs the operation first; the rest is the gradient.
        assert what_contracts(derived)[1:] == what_contracts(spelled)


def what_contracts(jaxpr):
    return [
        (str(eqn.primitive), eqn.params)
        for eqn in equations(jaxpr)
        if eqn.primitive.name.startswith("contract_to_")
    ]


@forms.each_op
def test_no_other_primitive_sums_products_at_any_order(name):
    """In jaxprs down to the third order there is no product but the three contractions."""
    op = forms.DENSE.op(name)
    a, b, t = forms.operands(forms.DENSE, name)
    first, second, result = forms.ROLES[name]

    def reverse(a, b, t):
        return forms.gradients(op, a, b, t)

    def forward_over_reverse(a, b, t):
        return jax.jvp(reverse, (a, b, t), (a, b, t))

    def reverse_over_forward(a, b, t):
        return jax.vjp(lambda a, b: jax.jvp(op, (a, b), (a, b)), a, b)[1]((t, t))

    def third(a, b, t):
        return jax.vjp(forward_over_reverse, a, b, t)

    def forward(a, b, t):
        return jax.jvp(op, (a, b), (a, b))

    slots = {}
    for f in (forward, reverse, forward_over_reverse, reverse_over_forward, third):
        jaxpr = jax.make_jaxpr(lambda a, b, t, f=f: leaves(f(a, b, t)))(a, b, t)
        slots[f.__name__] = contractions(jaxpr)
        assert not {"conv_general_dilated", "dot_general"} & set(primitives(jaxpr))
    assert slots["forward"] == [result] * 3
    assert sorted(slots["reverse"]) == sorted([result, first, second])
    assert set(slots["forward_over_reverse"]) == {result, first, second}
    assert set(slots["reverse_over_forward"]) == {result, first, second}
    assert set(slots["third"]) == {result, first, second}


def leaves(tree):
    return [leaf for leaf in jax.tree.leaves(tree) if isinstance(leaf, jax.Array)]


@forms.each_slot
def test_hessians(name):
    """Of the form itself, in both arguments: zero by blocks but for the mixed ones."""
    form = replace(forms.DENSE, batch=1, fine=(4, 3), channels=(2, 3), pads_end=(0, 1))
    op = form.op(name)
    a, b, t = forms.operands(form, name)

    def value(arguments):
        return jnp.vdot(t, op(*arguments))

    hessian = jax.jit(jax.hessian(value))((a, b))
    assert not np.any(hessian[0][0])
    assert not np.any(hessian[1][1])
    mixed = hessian[0][1].reshape(a.size, b.size)
    np.testing.assert_array_equal(mixed, hessian[1][0].reshape(b.size, a.size).T)
    u, v = forms.integers(a.shape, 7), forms.integers(b.shape, 8)
    np.testing.assert_array_equal(u.ravel() @ mixed @ v.ravel(), value((u, v)))

    # A Hessian-vector product, forward over reverse and reverse over forward.
    by_columns = mixed @ v.ravel()
    gradient = jax.grad(value)
    ahead = jax.jit(lambda v: jax.jvp(gradient, ((a, b),), ((0 * a, v),))[1])(v)
    behind = jax.jit(jax.grad(lambda x: jax.jvp(value, (x,), ((0 * a, v),))[1]))((a, b))
    np.testing.assert_array_equal(ahead[0].ravel(), by_columns)
    np.testing.assert_array_equal(behind[0].ravel(), by_columns)


def test_a_pair_of_precisions_follows_its_operands():
    """One operation contracts its arguments in the other order, of which a pair must know."""
    name = "conv_transpose_backward_weights"
    a, b, _ = forms.operands(forms.DENSE, name)
    jaxpr = jax.make_jaxpr(forms.DENSE.op(name, precision=("highest", "default")))(a, b)
    (contraction,) = (e for e in equations(jaxpr) if e.primitive.name == "contract_to_kernel")
    assert [p.name for p in contraction.params["precision"]] == ["DEFAULT", "HIGHEST"]
    assert [v.aval.shape for v in contraction.invars] == [b.shape, a.shape]


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
@pytest.mark.parametrize("name", ["convolution", "conv_transpose"])
def test_a_16_bit_bias_has_a_gradient_rounded_once(name, dtype):
    a, b, t = forms.operands(forms.GROUPED, name, dtype, 1000)
    bias = forms.integers((t.shape[1],), 4, dtype)
    _, pull = jax.vjp(forms.GROUPED.op(name), a, b, bias)
    found = jax.jit(pull)(t)[2]
    sums = np.asarray(t, np.float64).sum((0, 2, 3))
    expected = oracle.round_to(sums, dtype)
    assert np.any(expected.astype(np.float64) != sums), "nothing to round"
    assert found.dtype == dtype
    np.testing.assert_array_equal(np.asarray(found), expected)


def test_a_wider_cotangent_is_narrowed_once():
    """A float32 result of 16-bit arguments: its cotangent is rounded to their type, then used."""
    given = {}
    for name in forms.OPS:
        a, b, t = forms.operands(forms.DENSE, name, jnp.bfloat16)
        wide = np.asarray(t, np.float32) + np.float32(1 / 1024)  # rounds to t, mostly
        narrow = wide.astype(jnp.bfloat16)
        assert np.any(wide != narrow.astype(np.float32))
        given[name] = a, b, wide, narrow

    def both(name, a, b, wide, narrow):
        to_wide = forms.DENSE.op(name, preferred_element_type=jnp.float32)
        return forms.gradients(to_wide, a, b, wide), forms.gradients(
            forms.DENSE.op(name), a, b, narrow
        )

    together = jax.jit(lambda of: {name: both(name, *args) for name, args in of.items()})
    for name, pair in together(given).items():
        for found, expected in zip(*pair, strict=True):
            assert found.dtype == jnp.bfloat16
            np.testing.assert_array_equal(np.asarray(found), np.asarray(expected), name)


@forms.each_slot
@pytest.mark.parametrize("platform", ["cuda", "tpu"])
def test_16_bit_operands_stay_so_on_accelerators(name, platform):
    """Forward and backward, no convolution has an operand that was widened to float32.

    A bias joins in float32, after a convolution that is still one of 16 bits.
    """
    a, b, t = forms.operands(forms.GROUPED, name, jnp.bfloat16)
    op, both = forms.GROUPED.op(name), platform == "cuda" and "backward" not in name
    bias = [forms.integers((t.shape[1],), 4, jnp.bfloat16)] * both

    def run(a, b, t, *bias):
        return op(a, b), forms.gradients(op, a, b, t), [op(a, b, one) for one in bias]

    traced = jax.jit(run).trace(a, b, t, *bias)
    lowered = traced.lower(lowering_platforms=(platform,)).as_text()
    found = [line for line in lowered.splitlines() if "stablehlo.convolution" in line]
    # On a TPU groups are bundled; to data there is a convolution of one group besides.
    assert len(found) == (5 if platform == "tpu" else 3 + both)
    for line in found:
        types = line[line.rindex(" : ") :]
        assert types.count("xbf16>") == 3, types
        assert "f32" not in types


@forms.each_slot
def test_taylor_series(name):
    """`jax.experimental.jet`: all derivatives along a curve at once, by Leibniz."""
    op = forms.DENSE.op(name)
    a, b, _ = forms.operands(forms.DENSE, name)
    u = [forms.integers(a.shape, 21 + k) for k in range(3)]
    v = [forms.integers(b.shape, 31 + k) for k in range(3)]
    out, series = jax.jit(lambda a, b, u, v: jet.jet(op, (a, b), (u, v)))(a, b, u, v)
    of = partial(forms.DENSE.exact, name)
    np.testing.assert_array_equal(out, of(a, b))
    by_hand = (
        of(a, v[0]) + of(u[0], b),
        of(a, v[1]) + 2 * of(u[0], v[0]) + of(u[1], b),
        of(a, v[2]) + 3 * of(u[0], v[1]) + 3 * of(u[1], v[0]) + of(u[2], b),
    )
    for found, expected in zip(series, by_hand, strict=True):
        # jet divides and multiplies by factorials that it takes from lgamma.
        np.testing.assert_allclose(found, expected, rtol=0, atol=0.01)
