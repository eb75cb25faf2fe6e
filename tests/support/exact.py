"""Integers of which all sums of a case are exact, so that a result is right or wrong.

They are as wide as they may be for all partial sums of a case to be exact in the type that sums
are kept in. So the last rounding is the only one, and whatever rounds a partial sum, multiplies
in fewer bits or reads a wrong element gives something else.
"""

import itertools
import math
import zlib
from functools import partial

import jax
import ml_dtypes
import numpy as np

import jaxconv
from tests.support import oracle
from tests.support.oracle import round_to

F64, F32, F16, BF16 = np.float64, np.float32, np.float16, ml_dtypes.bfloat16
LARGEST_F16 = 65504


def random_of(case):
    return np.random.default_rng(zlib.crc32(case.name.encode()))


def integers(rng, width, shape):
    return rng.integers(-width, width, shape, endpoint=True).astype(F64)


def widest(dtype, terms):
    """The largest integers of which this many products, and a bias as large, have exact sums."""
    exact_sums = 2**53 if dtype is F64 else 2**24
    representable = 2 ** (ml_dtypes.finfo(dtype).nmant + 1)
    return min(representable, math.isqrt(exact_sums // 2 // max(int(terms), 1)))


def exact_arrays(case, dtype):
    """Arrays for a case, integers as float64, and its exact result."""
    rng, op = random_of(case), case.bind(oracle)
    first, second, *bias = case.input_shapes
    width = widest(dtype, op(np.ones(first), np.ones(second)).max(initial=1))
    while True:
        arrays = [integers(rng, width, first), integers(rng, width, second)]
        top = int(abs(op(*arrays)).max(initial=1))
        if dtype is not F16 or top <= LARGEST_F16 // 2:
            break
        width = width * 3 // 4
    if bias:  # as large as the sums, so that adding it after a rounding would show
        arrays.append(round_to(integers(rng, top, *bias), dtype).astype(F64))
    return arrays, op(*arrays)


def demand_equal(result, expected, case):
    assert result.dtype == expected.dtype, case.name
    assert result.shape == case.result_shape, case.name
    np.testing.assert_array_equal(np.asarray(result).astype(F64), expected.astype(F64), case.name)


def called(ops, arguments):
    """Several operations, each with its arrays."""
    return [op(*arrays) for op, arrays in zip(ops, arguments, strict=True)]


def check_values(calls):
    """All calls as one program: a case, the type read and the type asked for, or None.

    Each result is the exact sum, rounded once. Returned are the program, what it got and gave.
    """
    ops = [case.bind(jaxconv, preferred_element_type=wider) for case, _, wider in calls]
    run, given, expected = jax.jit(partial(called, ops)), [], []
    for case, dtype, wider in calls:
        arrays, sums = exact_arrays(case, dtype)
        given.append([x.astype(dtype) for x in arrays])
        expected.append(round_to(sums, wider or dtype))
    found = run(given)
    for (case, *_), *results in zip(calls, found, expected, strict=True):
        demand_equal(*results, case)
    return run, given, found


def poisonings(case, arrays):
    """Copies of the arrays with one inf or nan, and which of them has it at which index."""
    rng = random_of(case)
    for which, value in itertools.product((0, 1), (np.inf, np.nan)):
        at = tuple(rng.integers(arrays[which].shape))
        poisoned = [array.copy() for array in arrays]
        poisoned[which][at] = value
        yield poisoned, which, at


def demand_contained(case, which, at, result, finite):
    """A non-finite element is in all results that read it; the others are as without it."""
    assert not np.isfinite(result[readers(case, which, at)]).any(), case.name
    spared = ~may_change(case, which, at)
    np.testing.assert_array_equal(result[spared], finite[spared], case.name)


def check_contained(calls):
    """The values, and those of the same program with one inf or nan in either array.

    In float32, where there are elements: the other calls get again what they had.
    """
    run, given, finite = check_values(calls)
    read = [n for n, (case, dtype, _) in enumerate(calls) if case.form.batch and dtype is F32]
    poisoned = {n: list(poisonings(calls[n][0], given[n])) for n in read}
    for time in range(4):
        found = run([poisoned[n][time][0] if n in poisoned else x for n, x in enumerate(given)])
        for n in read:
            _, which, at = poisoned[n][time]
            results = np.asarray(found[n]), np.asarray(finite[n])
            demand_contained(calls[n][0], which, at, *results)


def readers(case, which, at):
    """The results that read what is at an index of one array."""
    arrays = [np.ones(shape) for shape in case.input_shapes[:2]]
    arrays[which][...] = 0
    arrays[which][at] = 1
    return case.bind(oracle)(*arrays) > 0


def may_change(case, which, at):
    """The results that a non-finite element may reach: its readers, or those in their channels.

    The latter for what stands in the kernel's place, the weights or in their gradient the
    coarse tensor: XLA multiplies it by the zeros that it pads or inserts, which makes NaN.
    """
    in_kernels_place = 0 if case.op == "conv_transpose_backward_weights" else 1
    if which != in_kernels_place:
        return readers(case, which, at)
    letters, result_letters = case.letters[which], case.letters[2]
    everywhere = (slice(None) if x == "X" else i for x, i in zip(letters, at, strict=True))
    reached = readers(case, which, tuple(everywhere))
    positions = tuple(axis for axis, x in enumerate(result_letters) if x in "NX")
    return np.broadcast_to(reached.any(positions, keepdims=True), reached.shape)
