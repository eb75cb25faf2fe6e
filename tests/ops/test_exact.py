"""Every case of the grid, exactly: integers in, the correctly rounded sum out.

The cases of one operation in one pair of formats are one program, for compiling takes nearly
all of the time. `support/exact.py` says why a result is right or wrong, and nothing between.
"""

import itertools

import jax
import numpy as np
import pytest

import jaxconv
from tests.support import oracle
from tests.support.exact import (
    BF16,
    F16,
    F32,
    F64,
    check_contained,
    check_values,
    exact_arrays,
    random_of,
)
from tests.support.grid import CASES, OPS, SHAPE_KINDS, SPELLINGS
from tests.support.oracle import round_to


def formats(case):
    return case.op, case.data_format, case.weights_format


BY_FORMATS = {
    key: list(cases) for key, cases in itertools.groupby(sorted(CASES, key=formats), formats)
}

#: Beside float32, every other case in one of these: what is read and what comes out.
NARROW = ((BF16, None), (F16, None), (BF16, F32))


def calls_of(key):
    """The cases in these formats, in float32, and some in another type, too."""
    cases = BY_FORMATS[key]
    wide = [(case, F32, None) for case in cases]
    narrow = [(cases[2 * n % len(cases)], *types) for n, types in enumerate(NARROW)]
    return wide + narrow


@pytest.mark.parametrize("key", BY_FORMATS, ids="-".join)
def test_result_is_the_exact_sum_rounded_once(key):
    """And one inf or nan in either array changes no result that does not read it."""
    check_contained(calls_of(key))


@pytest.mark.parametrize("op", OPS)
def test_float64_result_is_exact(op):
    """With integers whose products float32 could not hold."""
    with jax.enable_x64(True):
        check_values([(case, F64, None) for case in CASES if case.op == op][::6])


@pytest.mark.parametrize("dtype", [BF16, F16])
def test_rounding_partial_sums_would_show(dtype):
    """Sums in two parts, each rounded: the mildest such error, and yet nearly all cases differ."""
    caught, cases = [], CASES[::3]
    for case in cases:
        op = case.bind(oracle)
        (first, second, *bias), exact = exact_arrays(case, dtype)
        if op(np.ones(first.shape), np.ones(second.shape)).max(initial=0) < 3:
            continue  # hardly a sum
        part = random_of(case).integers(0, 2, second.shape)
        parts = op(first, second * part, *bias), op(first, second * (1 - part))
        rounded = [round_to(each_part, dtype).astype(F64) for each_part in parts]
        usable = np.isfinite(rounded).all(0)
        emulated = round_to(np.where(usable, rounded, 0).sum(0), dtype)
        caught.append((usable & (emulated != round_to(exact, dtype))).any())
    assert len(caught) > 0.6 * len(cases)
    assert np.mean(caught) > 0.95


def test_the_grid_has_every_pair_of_formats_in_every_operation():
    every = set(itertools.product(OPS, ("NXC", "NCX"), ("OIX", "XIO", "IOX", "XOI")))
    assert set(BY_FORMATS) == every
    assert min(map(len, BY_FORMATS.values())) >= len(NARROW)


def test_the_grid_spells_everything():
    auto_pads = [repr(case.attributes.get("auto_pad", "none")) for case in CASES]
    for spelling in itertools.chain(*SPELLINGS.values()):
        assert repr(spelling) in auto_pads
    for name in ("strides", "dilations", "pads_begin", "pads_end", "output_padding"):
        kinds = {type(case.attributes[name]) for case in CASES if name in case.attributes}
        assert kinds == {int, tuple, list}
    for suffix in ("convolution_backward_data", "conv_transpose", "weights"):
        kinds = {case.given_shape for case in CASES if case.op.endswith(suffix)}
        assert kinds >= set(SHAPE_KINDS)
    assert len({case.name for case in CASES}) == len(CASES)


def test_a_sum_of_nothing_is_zero():
    """There is no image, or both taps read padding alone."""
    src, diff = np.ones((0, 4, 3), np.float32), np.ones((0, 3, 5), np.float32)
    found = jaxconv.convolution_backward_weights(src, diff, (2, 3, 5))
    np.testing.assert_array_equal(found, np.zeros((2, 3, 5)))
    src, weights = np.ones((1, 1, 3), np.float32), np.ones((2, 3, 5), np.float32)
    found = jaxconv.convolution(src, weights, dilations=2, pads_begin=1, pads_end=1)
    np.testing.assert_array_equal(found, np.zeros((1, 1, 5)))
