"""Transposed weights whose input channels the groups divide: transformed as the others are."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from tests.support.forms import GROUPED, OPS, PUBLISHED, ROLES, integers, operands

each_op = pytest.mark.parametrize("name", [name for name in OPS if "transpose" in name])
#: A kernel whose groups move before the contraction, and one whose groups move after it.
each_way = pytest.mark.parametrize("name", ["conv_transpose", "conv_transpose_backward_weights"])


def turned(x, slot):
    """A tensor of the one layout in the other: of the kernel (O, (g, i)) and ((g, o), i)."""
    if slot != "kernel":
        return x
    o, gi, *extents = x.shape
    i = gi // PUBLISHED.groups
    return np.reshape(x, (o, PUBLISHED.groups, i, *extents)).swapaxes(0, 1).reshape(-1, i, *extents)


def test_they_are_told_apart():
    """By shape, so that none of what follows compares an operation with itself."""
    assert PUBLISHED.shapes["kernel"] == (3, 4, 3, 2)
    assert GROUPED.shapes["kernel"] == (6, 2, 3, 2)


@each_op
def test_derivatives(name):
    """First and second, in both modes, and of all arguments."""
    op, other = PUBLISHED.op(name), GROUPED.op(name)
    first, second, result = ROLES[name]
    a, b, t = operands(PUBLISHED, name)
    x, y, s = turned(a, first), turned(b, second), turned(t, result)
    np.testing.assert_array_equal(turned(op(a, b), result), other(x, y))

    def pulled(op):
        return lambda a, b, t: jax.vjp(op, a, b)[1](t)

    found, expected = pulled(op)(a, b, t), pulled(other)(x, y, s)
    for gradient, wanted, slot in zip(found, expected, (first, second), strict=True):
        np.testing.assert_array_equal(turned(gradient, slot), wanted)
    _, tangents = jax.jvp(pulled(op), (a, b, t), (a, -b, t))
    _, wanted = jax.jvp(pulled(other), (x, y, s), (x, -y, s))
    for found, expected, slot in zip(tangents, wanted, (first, second), strict=True):
        np.testing.assert_array_equal(turned(found, slot), expected)


@each_way
def test_vmap(name):
    """Over each argument and both."""
    first, second, result = ROLES[name]
    a, b, _ = operands(PUBLISHED, name)
    many = [integers((3, *x.shape), 8 + n) for n, x in enumerate((a, b))]
    for axes in ((0, None), (None, 0), (0, 0)):
        at = [m if axis == 0 else x for m, x, axis in zip(many, (a, b), axes, strict=True)]
        found = jax.vmap(PUBLISHED.op(name), axes)(*at)
        for i in range(3):
            x, y = (x[i] if axis == 0 else x for x, axis in zip(at, axes, strict=True))
            expected = GROUPED.op(name)(turned(x, first), turned(y, second))
            np.testing.assert_array_equal(turned(found[i], result), expected)


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
