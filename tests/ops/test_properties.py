"""Any valid call is exact, by every form that claims it; any other is refused in our own words.

Hypothesis draws the calls, and shrinks one that fails. The default tests draw the same calls in
every run; the slow ones others each time, or those of `--hypothesis-seed`.
"""

import inspect
import math
import os
import random
from collections.abc import Callable
from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import HealthCheck, event, given, reject, settings
from hypothesis import strategies as st

import jaxconv
from jaxconv import _lowering
from jaxconv._rules.op import OPS
from tests.support import oracle, small
from tests.support.calls import TENSORS, Hostile
from tests.support.exact import BF16, F16, F32, F64, demand_equal, exact_arrays
from tests.support.forms import ROLES
from tests.support.grid import SPELLINGS, build, factors
from tests.support.oracle import round_to

FORMS = [_lowering.PORTABLE, *_lowering.FORMS]
COMMON = settings(deadline=None, database=None, suppress_health_check=list(HealthCheck))
SAME_IN_EVERY_RUN = settings(COMMON, derandomize=True)
# By hand; where a change is checked, a new finding would not be the change's.
OTHERS_EACH_TIME = settings(COMMON, print_blob=True, derandomize="CI" in os.environ)


def one_of(*values):
    return st.sampled_from(values)


@st.composite
def cases(draw):
    """A valid call of one operation, of any values of the grid's factors, or rarer ones."""
    op = draw(one_of(*OPS))
    row = {name: draw(one_of(*of)) for name, of in factors(op).items()}
    row |= draw(one_of({}, {}, {"batch": "0"}))
    try:
        return build(op, 0, row, random.Random(draw(st.integers(0, 2**32))))
    except RuntimeError:  # nothing fits
        reject()


def claiming(case, dtype):
    """None for the table's choice, and the forms that are part of the plan that forcing makes."""
    form, slot = replace(case.form, published=False), ROLES[case.op][2]
    return [None, *(f for f in FORMS if small.claims(form, slot, f, dtype))]


def check(case, dtype, forms):
    arrays, sums = exact_arrays(case, dtype)
    arrays, expected = [jnp.asarray(x, dtype) for x in arrays], round_to(sums, dtype)
    for form in forms:
        with jaxconv.forced(form):
            demand_equal(jax.jit(case.bind(jaxconv))(*arrays), expected, case)


@settings(SAME_IN_EVERY_RUN, max_examples=40)
@given(st.data(), cases(), one_of(F32, BF16, F16))
def test_a_valid_call_is_exact(data, case, dtype):
    """By one of the forms that claim it."""
    form = data.draw(st.sampled_from(claiming(case, dtype)))
    event(f"{form}")
    check(case, dtype, [form])


@pytest.mark.slow
@settings(OTHERS_EACH_TIME, max_examples=8)
@given(cases(), one_of(F32, BF16, F16))
def test_a_valid_call_is_exact_by_every_form(case, dtype):
    check(case, dtype, claiming(case, dtype))


@dataclass(frozen=True)
class Made:
    """What is made when it is passed, for it has no repr that Hypothesis could show."""

    by: Callable


def deleted():
    array = jnp.ones((1, 2, 3))
    array.delete()
    return array


LITTLE = st.integers(0, 4)
NUMBERS = st.one_of(
    LITTLE,
    st.integers(),
    one_of(2**31 - 1, 2**31, 2**48, 2**63, 10**5000, -1, True, 1.0, float("nan"), 1j),
    one_of(np.int8(2), np.uint64(2**63), np.float32(1), np.bool_(True), np.array(2), np.ones(2)),
)
TEXTS = st.one_of(
    one_of(
        "", "same", "valid", "NHWC", "nxc", "XIO", "X\u0131o", "float32", "highest", "x" * 10**6
    ),
    st.text(max_size=4),
)
SEQUENCES = st.one_of(
    st.lists(LITTLE, max_size=5), st.lists(NUMBERS, max_size=4),
    st.lists(st.one_of(NUMBERS, TEXTS, st.none(), st.lists(LITTLE)), max_size=4).map(tuple),
    st.builds(range, LITTLE), st.builds(np.array, st.lists(LITTLE, max_size=5)),
    st.just([1] * 10**6),
)  # fmt: skip
OBJECTS = st.one_of(
    st.none(),
    one_of(Made(Hostile), Made(lambda: [1, Hostile()]), Made(object), Made(deleted)),
    one_of(Made(lambda: memoryview(np.ones((1, 2, 3))))),
    one_of(int, np.float32, {}, {1, 2}, b"1", ..., np.ma.masked, np.datetime64("2000"), lambda: 1),
)
TYPES = one_of(
    F32, F32, F32, F16, BF16, np.float64, np.int32, bool, np.complex64, "U1", object, "V4"
)  # fmt: skip
ARRAYS = st.builds(
    lambda shape, dtype, of: of(np.ones(shape, dtype)),
    st.lists(LITTLE, max_size=5),
    TYPES,
    one_of(np.asarray, np.asarray, np.ma.array, np.ndarray.tolist),
)
FEW = st.one_of(st.integers(1, 3), st.lists(LITTLE, min_size=1, max_size=3))
ANYTHING = st.one_of(NUMBERS, TEXTS, SEQUENCES, OBJECTS, ARRAYS)
#: What may be right.
NEAR = dict.fromkeys(TENSORS, ARRAYS) | {
    "groups": st.integers(1, 3), "auto_pad": one_of(*sum(SPELLINGS.values(), ())),
    "data_format": one_of("NXC", "NCX", "nxc"),
    "weights_format": one_of("XIO", "OIX", "IOX", "XOI", "xio"),
    "precision": one_of(None, "high", ("highest", None)),
    "preferred_element_type": one_of(None, F32, "float32", BF16), "out_sharding": st.none(),
    "activation": one_of(None, "relu", "relu6"), "alpha": st.none(),
}  # fmt: skip


@st.composite
def calls(draw):
    """A valid call of integers with one or two arguments replaced, by what may be anything."""
    case = draw(cases())
    function, record = case.bind(jaxconv), OPS[case.op]
    names = [*record.inputs, "bias"][: len(case.input_shapes)]
    arguments = function.keywords | {
        name: np.resize(np.arange(-3.0, 4.0), shape).astype(F32)
        for name, shape in zip(names, case.input_shapes, strict=True)
    }
    known = inspect.signature(function.func).parameters
    for name in draw(st.lists(one_of(*known), min_size=1, max_size=2)):
        arguments[name] = draw(NEAR.get(name, FEW) if draw(st.booleans()) else ANYTHING)
    return function.func, arguments


MOST_ELEMENTS = 10**5


def check_outcome(function, arguments):
    """A right result, or a TypeError or ValueError that names operation and argument."""
    op, known = function.__name__, inspect.signature(function).parameters
    arguments = {k: v.by() if isinstance(v, Made) else v for k, v in arguments.items()}
    out = result_or_error(lambda: jax.eval_shape(lambda: function(**arguments)))
    if isinstance(out, Exception):
        event("refused")
        text = str(out)
        assert type(out) in (TypeError, ValueError), text
        assert text.startswith(f"{op}: "), text
        assert any(f"`{name}`" in text for name in known), text
        assert len(text) < 500, text
    elif math.prod(out.shape) > MOST_ELEMENTS:
        event("too large to compute")
    else:
        event("computed")
        result = function(**arguments)
        asked = {k: plain(k, v) for k, v in arguments.items() if k not in NUMERICS}
        expected = round_to(getattr(oracle, op)(**asked), result.dtype)
        np.testing.assert_array_equal(np.asarray(result, F64), expected.astype(F64))


def result_or_error(function):
    try:
        return function()
    except Exception as error:
        return error


def plain(name, value):
    """Python's ints instead of NumPy's, which overflow when the oracle counts with them."""
    return value if name in TENSORS or isinstance(value, str | None) else np.asarray(value).tolist()


NUMERICS = ("precision", "preferred_element_type", "out_sharding", "alpha")


@settings(SAME_IN_EVERY_RUN, max_examples=60)
@given(calls())
def test_any_call_is_right_or_refused(call):
    check_outcome(*call)


@pytest.mark.slow
@settings(OTHERS_EACH_TIME, max_examples=600)
@given(calls())
def test_any_call_is_right_or_refused_at_length(call):
    check_outcome(*call)
