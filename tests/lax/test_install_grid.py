"""Calls of lax's convolution, installed and of `jaxconv.lax`, against an oracle in NumPy, exactly.

Several are compiled into one program each, with both gradients: by JAX's own rules, or by ours.
"""

from collections import Counter
from itertools import cycle

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxconv
from jaxconv._base.environment import Target
from jaxconv._base.jax_names import walk_equations
from jaxconv._lax import from_lax, install
from jaxconv._lax.install import Scope, find_mapped
from jaxconv._lowering.forms import split
from tests.support import lax_oracle
from tests.support.forms import each, integers, slow_if
from tests.support.programs import contractions

EACH = 12  # calls in one program


def of_one(call, dtype=np.float32, limit=4):
    """Arguments, a cotangent, and what the oracle makes of them."""
    lhs, rhs = integers(call.lhs, 1, dtype, limit), integers(call.rhs, 2, dtype, limit)
    limit = min(limit, 4)  # JAX rounds a wide cotangent to the operands' type
    expected = lax_oracle.gradients(call, lhs, rhs, lambda s: integers(s, 3, np.float64, limit))
    return (lhs, rhs, integers(expected[0].shape, 3, dtype, limit)), expected


BOTH = (lax.conv_general_dilated, jaxconv.lax.conv_general_dilated)


def program(calls, functions=BOTH[:1]):
    """All results and gradients, by the functions in turn."""

    def run(data):
        results = []
        for call, of, (lhs, rhs, cotangent) in zip(calls, cycle(functions), data, strict=False):
            out, pull = jax.vjp(call.bind(of), lhs, rhs)
            results.append((out, *pull(cotangent.astype(out.dtype))))
        return results

    return run


def found(function, *args):
    """What becomes of each of lax's convolutions."""
    for equation in walk_equations(jax.make_jaxpr(function)(*args)):
        if equation.primitive.name == "conv_general_dilated":
            mapped, reason = find_mapped(equation, Scope("cpu"), Target("cpu"))
            yield reason or mapped


def check(calls, functions=BOTH, **of):
    """The values, and how often each way would be taken of all convolutions, were they lax's."""
    data, expected = zip(*(of_one(call, **of) for call in calls), strict=True)
    with jaxconv.installed():
        results = jax.jit(program(calls, functions))(data)
    for call, got, exact, (lhs, *_) in zip(calls, results, expected, data, strict=True):
        for name, one, other in zip(("result", "lhs", "rhs"), got, exact, strict=True):
            assert np.array_equal(np.asarray(one, np.float64), other), (name, call)
        wider = call.arguments.get("preferred_element_type")
        assert [one.dtype for one in got] == [wider or lhs.dtype, lhs.dtype, lhs.dtype]
    for call, (*given, _) in zip(calls, data, strict=True):  # and what `jaxconv.lax` contracts
        [way] = found(call.bind(), *given)
        slots = contractions(jax.make_jaxpr(call.bind(BOTH[1]))(*given))
        assert len(slots) == 1 if isinstance(way, str) else slots == [way.result]
    ways = found(program(calls), data)
    return Counter(f if isinstance(f, str) else (f.result, f.lhs_dilated) for f in ways)


SEEDS = [pytest.param(n, marks=slow_if(n >= 2)) for n in range(8)]


@pytest.mark.parametrize("block", SEEDS)
def test_calls_drawn_at_random(block):
    calls = [lax_oracle.drawn(EACH * block + n) for n in range(EACH)]
    ways = check(calls)
    # All four ways to map them are met, and what stays with lax is what must.
    assert {way for way in ways if not isinstance(way, str)} == {
        ("coarse", False), ("fine", True), ("kernel", False), ("kernel", True)
    }  # fmt: skip
    assert {way for way in ways if isinstance(way, str)} <= {from_lax.BOTH_STRIDES, install.FASTER}


def test_weights_gradients_in_blocks_of_any_layout(patched):
    """As of much data that is not channels-last: each block is transposed by itself."""
    patched(split, "MAX_BLOCK_BYTES", 0)
    patched(split, "MAX_TRANSPOSED_BYTES", 0)
    calls = [lax_oracle.drawn(seed) for seed in range(40, 72)]
    blocks = [c for c in calls if len(c.lhs) == 4 and "by block" in told(c)]
    assert len({c.arguments["dimension_numbers"] for c in blocks}) >= 4
    check(blocks, BOTH[:1])


def told(call):
    """What `explain` says of a call and its gradients."""
    types = [jax.ShapeDtypeStruct(s, np.float32) for s in (call.lhs, call.rhs)]
    given = (*types, jax.eval_shape(call.bind(), *types))
    return str(jaxconv.explain(program([call]), [given]))


def test_pads_that_crop_more_than_there_is_to_pad():
    """The data gradients of these are wrong by lax itself, on CPU, with JAX 0.10 and 0.11."""
    numbers = {"dimension_numbers": ("NHWC", "HWIO", "NHWC")}
    ones = {"window_strides": (1, 1), "lhs_dilation": (1, 1), "rhs_dilation": (1, 1)}
    groups = {"feature_group_count": 1, "batch_group_count": 1}
    ways = check(functions=BOTH[:1], calls=[
        lax_oracle.Call((2, 7, 5, i), (3, 2, i, o), ones | numbers | groups | {"padding": padding})
        for padding in [((-3, 1), (0, 0)), ((0, -3), (-2, 4)), ((-1, 5), (3, -4))]
        for i, o in [(3, 4), (1, 1)]  # one channel: else lax would be faster
    ])  # fmt: skip
    assert not {way for way in ways if isinstance(way, str)}


@pytest.mark.parametrize("function", BOTH)
def test_windows_of_padding_alone(function):
    """Wide pads of a transposed convolution, and two of which nothing is read."""
    common = {"feature_group_count": 2, "batch_group_count": 1, "dimension_numbers": None}
    check(functions=[function], calls=[
        lax_oracle.Call((2, 6, *extents), (4, 3, *kernel), common | {
            "window_strides": strides, "padding": padding, "lhs_dilation": spread,
            "rhs_dilation": dilation,
        })
        for extents, kernel, strides, padding, spread, dilation in [
            ((3, 2), (3, 2), (1, 1), ((7, 4), (5, 9)), (2, 3), (1, 2)),
            ((2,), (2,), (1,), ((-2, 5),), (2,), (2,)),
            ((3, 5), (2, 2), (2, 1), ((-4, 6), (1, 0)), (1, 1), (1, 1)),
        ]
    ])  # fmt: skip


TYPES = {
    "bfloat16": (jnp.bfloat16, None), "float16": (jnp.float16, None),
    "float64": (jnp.float64, None), "bfloat16 to float32": (jnp.bfloat16, jnp.float32),
    "float32 to float64": (jnp.float32, jnp.float64),
}  # fmt: skip


@each("types", TYPES, slow=("float16",))
def test_types(types):
    dtype, wider = types
    drawn = (lax_oracle.drawn(seed) for seed in (3, 13, 14) for _ in BOTH)
    wide = {"preferred_element_type": wider}
    calls = [lax_oracle.Call(c.lhs, c.rhs, c.arguments | wide) for c in drawn]
    with jax.enable_x64(wide := jnp.float64 in types):  # products that float32 does not hold
        assert sum(check(calls, dtype=dtype, limit=2**13 if wide else 1).values()) == 3 * len(calls)
