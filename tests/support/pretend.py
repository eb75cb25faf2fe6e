"""What the forms of another platform compute, on CPU."""

from types import SimpleNamespace

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from jaxconv import _lowering
from jaxconv._base.environment import Target
from jaxconv._lowering.forms import reference
from jaxconv._lowering.forms.reference import PRIMITIVE
from jaxconv._ops import operate
from tests.support.forms import slow_if


def taken_apart(lhs, rhs, *, padding, dimension_numbers, lhs_dilation, batch_group_count, **more):
    """A convolution without what XLA:CPU does wrongly.

    It aborts the process on some whose lhs is spread out: that is done before. And it leaks from
    batch group to batch group what is not finite: each becomes a convolution of its own.
    """
    lhs_spec, rhs_spec, out_spec = dimension_numbers
    more |= {"dimension_numbers": dimension_numbers, "batch_group_count": 1}
    if max(lhs_dilation) > 1:
        config = [(0, 0, 0)] * lhs.ndim
        for axis, (low, high), dilation in zip(lhs_spec[2:], padding, lhs_dilation, strict=True):
            config[axis] = (low, high, dilation - 1)
        lhs = lax.optimization_barrier(lax.pad(lhs, jnp.zeros((), lhs.dtype), config))
        padding, lhs_dilation = ((0, 0),) * len(padding), (1,) * len(padding)
    more |= {"padding": padding, "lhs_dilation": lhs_dilation}
    groups = zip(
        jnp.split(lhs, batch_group_count, lhs_spec[0]),
        jnp.split(rhs, batch_group_count, rhs_spec[0]),
        strict=True,
    )
    return lax.concatenate([PRIMITIVE.bind(*group, **more) for group in groups], out_spec[1])


def pretend(monkeypatch, platform):
    """Operations by a platform's forms, in a jitted function that nothing else will ever use."""

    def contract(result, first, second, *, sharding, **params):
        params |= {"target": Target(platform), "forced": None}
        return _lowering.lower(result, first, second, **params)

    jitted = jax.jit(lambda *args: operate._compute(*args), static_argnums=0)
    monkeypatch.setattr(operate, "contract", contract)
    monkeypatch.setattr(operate, "_JITTED", dict.fromkeys(operate._JITTED, jitted))
    monkeypatch.setattr(reference, "PRIMITIVE", SimpleNamespace(bind=taken_apart))


def each_part(count, first):
    """Parametrize by every other of so many parts of the cases, of which one is no slow test."""
    parts = [pytest.param(n, marks=slow_if(n > 1)) for n in range(first, count, 2)]
    return pytest.mark.parametrize("part", parts)
