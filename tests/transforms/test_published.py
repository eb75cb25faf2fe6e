"""Transposed weights whose input channels the groups divide: transformed as the others are."""

from dataclasses import replace
from functools import partial

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from tests.support.forms import OPS, PUBLISHED, ROLES, assert_equal, gradients, operands

each_op = pytest.mark.parametrize("name", [name for name in OPS if "transpose" in name])


@each_op
def test_derivatives(name):
    """First and second: each gradient is linear in the cotangent and in one argument."""
    op = PUBLISHED.op(name)
    a, b, t = operands(PUBLISHED, name)

    @jax.jit
    def run(a, b, t):
        return op(a, b), *jax.jvp(partial(gradients, op), (a, b, t), (a, 2 * b, 3 * t))

    out, first, second = run(a, b, t)
    np.testing.assert_array_equal(out, PUBLISHED.exact(name, a, b))
    by_a, by_b = PUBLISHED.exact_gradients(name, a, b, t)
    expected = by_a, by_b, (2 + 3) * by_a, (1 + 3) * by_b
    assert_equal((*first, *second), expected)


@each_op
@pytest.mark.parametrize("letter", ["O", "I"])
def test_out_sharding(letter, name):
    """The result as asked for, though its groups move to another axis after it was summed."""
    mesh = jax.make_mesh((2,), ("m",), axis_types=(AxisType.Explicit,))
    form = replace(PUBLISHED, channels=(8, 12))
    slot = ROLES[name][2]
    asked = [None] * 4
    asked[form.axis(slot, letter if slot == "kernel" else "C")] = "m"
    a, b, _ = operands(form, name)
    with jax.set_mesh(mesh):
        a, b = (jax.device_put(x, NamedSharding(mesh, P())) for x in (a, b))
        plain = form.op(name)(a, b)
        op = form.op(name, out_sharding=P(*asked))
        for out in (op(a, b), jax.jit(op)(a, b)):
            assert tuple(jax.typeof(out).sharding.spec) == tuple(asked)
            np.testing.assert_array_equal(out, plain)
