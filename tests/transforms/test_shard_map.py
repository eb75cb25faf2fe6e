"""Under jax.shard_map the explicit operations are local; autodiff sums where it must."""

from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from tests.support import forms
from tests.support.programs import collectives

pytestmark = pytest.mark.usefixtures("however_little")

each_form = forms.each("form", forms.OF_SLOTS)

MESH = jax.make_mesh((4,), ("d",), axis_types=(AxisType.Auto,))


def sharded(f, in_specs, out_specs):
    """`f` on each device's part, with JAX's check of what varies between devices."""
    return jax.jit(jax.shard_map(f, mesh=MESH, in_specs=in_specs, out_specs=out_specs))


def spec(slot, axes="d"):
    return P() if slot == "kernel" else P(axes)


def summed(form, name, axes="d"):
    """An operation; the sum over devices, of a kernel, is written out and none of its own."""
    op = form.op(name)
    return op if forms.ROLES[name][2] != "kernel" else lambda a, b: lax.psum(op(a, b), axes)


@forms.alternately(forms.OF_SLOTS)
def test_local_operations(form, name):
    """Each device its part of the batch, and nothing communicated: also for groups, anywhere."""
    form = replace(form, batch=8)
    a, b, _ = forms.operands(form, name)
    f = sharded(form.op(name), (P("d"), P()), P("d"))
    np.testing.assert_array_equal(f(a, b), form.exact(name, a, b))
    assert collectives(f.lower(a, b).compile().as_text()) == {}


@each_form
def test_backward_weights_is_local(form):
    """A sum over the local batch; a psum adds up the devices."""
    name = "convolution_backward_weights"
    form = replace(form, batch=8)
    a, b, _ = forms.operands(form, name)
    parts = sharded(lambda a, b: form.op(name)(a, b)[None], (P("d"), P("d")), P("d"))
    local = parts(a, b)
    assert collectives(parts.lower(a, b).compile().as_text()) == {}
    for i in range(4):
        np.testing.assert_array_equal(
            local[i], form.exact(name, a[2 * i : 2 * i + 2], b[2 * i : 2 * i + 2])
        )
    total = sharded(lambda a, b: lax.psum(form.op(name)(a, b), "d"), (P("d"), P("d")), P())
    np.testing.assert_array_equal(total(a, b), form.exact(name, a, b))
    with pytest.raises(ValueError, match="replicated"):
        sharded(form.op(name), (P("d"), P("d")), P())(a, b)


@forms.each_slot_in_a_form
def test_autodiff(form, name):
    """Gradients of what is split are local, those of replicated weights are summed."""
    form = replace(form, batch=8)
    a, b, t = forms.operands(form, name)
    first, second, result = (spec(slot) for slot in forms.ROLES[name])
    pull = partial(forms.gradients, summed(form, name))
    found = sharded(pull, (first, second, result), (first, second))
    forms.assert_equal(found(a, b, t), form.exact_gradients(name, a, b, t))
    text = found.lower(a, b, t).compile().as_text()
    # That psum is linear: its transpose communicates nothing.
    assert collectives(text) == ({} if result == P() else {"all-reduce": 1})


@forms.each_slot
def test_forward_mode(name):
    """A tangent that does not vary beside a primal that does, and the other way round."""
    form = replace(forms.GROUPED, batch=8)
    a, b, _ = forms.operands(form, name)
    first, second, result = (spec(slot) for slot in forms.ROLES[name])

    def derivative(a, b):
        return jax.jvp(summed(form, name), (a, b), (jnp.ones_like(a), jnp.ones_like(b)))

    found = sharded(derivative, (first, second), (result, result))(a, b)
    ones = form.exact(name, np.ones_like(a), b) + form.exact(name, a, np.ones_like(b))
    forms.assert_equal(found, (form.exact(name, a, b), ones))


@pytest.mark.parametrize("name", forms.FORWARD)
def test_vmap_inside(name):
    """Per-example gradients, each device those of its examples."""
    form = replace(forms.GROUPED, batch=8)
    a, b, t = forms.operands(form, name)
    op = form.op(name)

    def gradient(a, b, t):
        return jax.vmap(lambda x, t: forms.gradients(op, x[None], b, t[None])[1])(a, t)

    specs = (P("d"), P(), P("d"))
    # With a shared argument that every device holds, its gradient is a sum over devices.
    found = sharded(lambda a, b, t: gradient(a, lax.pcast(b, "d", to="varying"), t), specs, P("d"))
    np.testing.assert_array_equal(found(a, b, t), jax.jit(gradient)(a, b, t))


AUTO, EXPLICIT = AxisType.Auto, AxisType.Explicit


@pytest.mark.parametrize("types", [(EXPLICIT, EXPLICIT), (AUTO, EXPLICIT), (AUTO, AUTO)])
@pytest.mark.parametrize("mapped", ["d", "dm"])
@forms.each_slot
def test_over_axes_of_any_kind(name, mapped, types):
    """All of them, explicit in the kind of mesh that jax.make_mesh makes; or one beside another."""
    form = replace(forms.GROUPED, batch=8)
    mesh = jax.make_mesh((4, 2), ("d", "m"), axis_types=types)
    a, b, t = forms.operands(form, name)
    first, second, result = (spec(slot, tuple(mapped)) for slot in forms.ROLES[name])
    with jax.set_mesh(mesh):
        placed = (NamedSharding(mesh, spec) for spec in (first, second, result))
        split = jax.shard_map(
            partial(forms.with_gradients, summed(form, name, tuple(mapped))),
            in_specs=(first, second, result), out_specs=(result, first, second),
            axis_names={*mapped},
        )  # fmt: skip
        found = jax.jit(split)(*map(jax.device_put, (a, b, t), placed))
    forms.assert_equal(found, form.exact_with_gradients(name, a, b, t))
