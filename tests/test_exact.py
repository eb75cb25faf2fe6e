"""Every case of the grid, exactly: integers in, the correctly rounded sum out.

The integers are as wide as they may be for all partial sums of a case to be exact in the type
that sums are kept in. So the last rounding is the only one, and whatever rounds a partial sum,
multiplies in fewer bits or reads a wrong element gives something else.
"""

import itertools
import math
import random
import zlib
from functools import partial

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import jaxconv
from tests.support import oracle
from tests.support.grid import CASES, OPS, SHAPE_KINDS, SPELLINGS, covering, factors
from tests.support.oracle import round_to

F64, F32, F16, BF16 = np.float64, np.float32, np.float16, ml_dtypes.bfloat16
LARGEST_F16 = 65504


def formats(case):
    return case.op, case.data_format, case.weights_format


# Half of the cases, with all pairs of formats in every operation. What takes long is done for
# one half only, and for the other one by the slow tests.
by_formats = {formats(case): [] for case in CASES}
for case in CASES:
    by_formats[formats(case)].append(case)
HALF = [case for cases in by_formats.values() for case in cases[::2]]
OTHER_HALF = [case for cases in by_formats.values() for case in cases[1::2]]


def each(cases, *values, fast=CASES, label=""):
    """Parameters: named cases and further values; slow ones outside of `fast`."""
    return [
        pytest.param(
            case, *values, id=case.name + label, marks=() if case in fast else pytest.mark.slow
        )
        for case in cases
    ]


# Data.


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
    assert result.dtype == expected.dtype
    assert result.shape == case.result_shape
    np.testing.assert_array_equal(np.asarray(result).astype(F64), expected.astype(F64))


# Values.


@pytest.mark.parametrize(
    ("case", "dtype", "wider"),
    [
        *each(CASES, F32, None, label="-f32"),
        *each(CASES, BF16, None, fast=HALF, label="-bf16"),
        *each(CASES, F16, None, fast=OTHER_HALF, label="-f16"),
        *each(CASES, BF16, F32, fast=OTHER_HALF, label="-bf16-to-f32"),
    ],
)
def test_result_is_the_exact_sum_rounded_once(case, dtype, wider):
    arrays, exact = exact_arrays(case, dtype)
    op = jax.jit(case.bind(jaxconv, preferred_element_type=wider))
    result = op(*(array.astype(dtype) for array in arrays))
    demand_equal(result, round_to(exact, wider or dtype), case)


@pytest.mark.parametrize("case", each(HALF[::3]))
def test_float64_result_is_exact(case):
    """With integers whose products float32 could not hold."""
    arrays, exact = exact_arrays(case, F64)
    with jax.enable_x64(True):
        demand_equal(jax.jit(case.bind(jaxconv))(*arrays), exact, case)


@pytest.mark.parametrize("case", each(OTHER_HALF[::6]))
def test_result_without_jit(case):
    arrays, exact = exact_arrays(case, F32)
    result = case.bind(jaxconv)(*(jnp.asarray(array, F32) for array in arrays))
    demand_equal(result, round_to(exact, F32), case)


@pytest.mark.parametrize("dtype", [BF16, F16])
def test_rounding_partial_sums_would_show(dtype):
    """Sums in two parts, each rounded: the mildest such error, and yet nearly all cases differ."""
    caught = []
    for case in CASES:
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
    assert len(caught) > 0.6 * len(CASES)
    assert np.mean(caught) > 0.95


# The three contractions of one form.


def contractions(case, src, weights, dst):
    """What the operations make of the other two, in the place of src, of weights and of dst.

    They have the case's attributes. Where those do not lead back from src to dst, the same
    padding is spelled out, as that of a transposed convolution with the roles swapped.
    """
    attributes = case.attributes
    leads_back = not case.transposed and (
        case.op != "convolution_backward_data"
        or (case.given_shape and not np.any(attributes.get("output_padding", 0)))
    )
    if leads_back:
        attributes = {name: of for name, of in attributes.items() if name != "output_padding"}
        return (
            jaxconv.convolution_backward_data(dst, weights, src.shape, **attributes),
            jaxconv.convolution_backward_weights(src, dst, weights.shape, **attributes),
            jaxconv.convolution(src, weights, **attributes),
        )
    attributes = attributes | {"output_padding": [axis.rest for axis in case.axes]}
    if case.op in ("conv_transpose", "convolution_backward_data"):
        attributes["auto_pad"] = "none"
        attributes["pads_begin"] = [axis.pad_begin for axis in case.axes]
        attributes["pads_end"] = [axis.pad_end for axis in case.axes]
    if not case.transposed:
        attributes["weights_format"] = case.weights_format.translate(str.maketrans("IO", "OI"))
        src, dst = dst, src
    results = (
        jaxconv.conv_transpose_backward_data(dst, weights, **attributes),
        jaxconv.conv_transpose_backward_weights(src, dst, weights.shape, **attributes),
        jaxconv.conv_transpose(src, weights, **attributes),
    )
    return results if case.transposed else results[::-1]


@pytest.mark.parametrize("case", each(CASES, fast=HALF))
def test_trilinear_identity(case):
    """<conv(x, w), y> = <x, backward_data(y, w)> = <w, backward_weights(x, y)>, exactly."""
    positions = math.prod(axis.coarse for axis in case.axes) * case.src_shape[0]
    channels = max(case.channels(case.src_shape), case.channels(case.dst_shape))
    taps = math.prod(axis.kernel for axis in case.axes)
    width, rng = widest(F32, max(positions, channels * taps)), random_of(case)
    shapes = case.src_shape, case.weights_shape, case.dst_shape
    tensors = src, weights, dst = [integers(rng, width, shape) for shape in shapes]

    results = jax.jit(partial(contractions, case))(*(tensor.astype(F32) for tensor in tensors))
    assert [result.shape for result in results] == [tensor.shape for tensor in tensors]
    sums = [
        np.sum(np.asarray(result).astype(F64) * tensor)
        for result, tensor in zip(results, tensors, strict=True)
    ]
    if case.op.endswith("backward_data"):
        exact = np.sum(case.bind(oracle)(dst, weights) * src)
    elif case.op.endswith("backward_weights"):
        exact = np.sum(case.bind(oracle)(src, dst) * weights)
    else:
        exact = np.sum(case.bind(oracle)(src, weights) * dst)
    assert sums == [exact] * 3


# Non-finite values.


@pytest.mark.parametrize("case", each([case for case in CASES if case.src_shape[0]], fast=HALF))
def test_non_finite_values_stay_where_they_are_read(case):
    """One inf or nan in either array, and the results that do not read it are as before."""
    arrays, _ = exact_arrays(case, F32)
    op = jax.jit(case.bind(jaxconv))
    finite = np.asarray(op(*(array.astype(F32) for array in arrays)))
    rng = random_of(case)
    for which, value in itertools.product((0, 1), (np.inf, np.nan)):
        at = tuple(rng.integers(arrays[which].shape))
        poisoned = [array.copy() for array in arrays]
        poisoned[which][at] = value
        result = np.asarray(op(*(array.astype(F32) for array in poisoned)))
        assert not np.isfinite(result[readers(case, which, at)]).any()
        spared = ~may_change(case, which, at)
        np.testing.assert_array_equal(result[spared], finite[spared])


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


# The grid itself.


@pytest.mark.parametrize("cases", [CASES, HALF, OTHER_HALF], ids=["all", "half", "other half"])
def test_the_grid_has_every_pair_of_formats_in_every_operation(cases):
    every = itertools.product(OPS, ("NXC", "NCX"), ("OIX", "XIO", "IOX", "XOI"))
    assert {formats(case) for case in cases} == set(every)


@pytest.mark.parametrize("op", OPS)
def test_covering_rows_hold_every_pair_of_values(op):
    values = factors(op)
    rows = list(covering(values, random.Random(5)))
    for (one, ones), (other, others) in itertools.combinations(values.items(), 2):
        assert {(row[one], row[other]) for row in rows} == set(itertools.product(ones, others))


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


@pytest.mark.parametrize("op", OPS)
def test_the_grid_is_uneven(op):
    """What a case of an operation may be, some case is."""
    cases = [case for case in CASES if case.op == op]
    axes = [axis for case in cases for axis in case.axes]

    def some(predicate, among=axes):
        return any(map(predicate, among))

    def reach(axis):
        return axis.dilation * (axis.kernel - 1) + 1

    def multiplier(case):
        """Of a depthwise case."""
        groups = case.attributes.get("groups", 1)
        depthwise = case.channels(case.src_shape) == groups > 1
        return case.channels(case.dst_shape) // groups if depthwise else None

    assert {len(case.axes) for case in cases} == {1, 2, 3, 4}
    assert {case.src_shape[0] for case in cases} == {0, 1, 2, 3}
    assert {multiplier(case) for case in cases} == {None, 1, 2, 3}
    assert {axis.stride for axis in axes} >= {1, 2, 3, 4}
    assert {axis.kernel for axis in axes} >= {1, 2, 3, 4}
    assert some(lambda case: len({axis.stride for axis in case.axes}) > 1, cases)
    assert some(lambda case: len({axis.dilation for axis in case.axes}) > 1, cases)
    assert some(lambda axis: axis.stride > axis.kernel > 1)
    assert some(lambda axis: axis.pad_begin > reach(axis))
    assert some(lambda axis: axis.pad_end > reach(axis))
    assert some(lambda axis: axis.pad_begin > axis.pad_end)
    assert some(lambda axis: axis.pad_begin < axis.pad_end)
    assert some(lambda axis: 0 < axis.rest < axis.stride)
    if op not in ("convolution", "convolution_backward_weights"):
        assert some(lambda axis: axis.rest > axis.stride)
    if op in ("convolution", "conv_transpose"):
        assert {case.bias for case in cases} == {False, True}
