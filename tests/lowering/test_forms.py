"""Every form fills what its record claims, exactly: integers in, the defining sum out."""

from functools import cache, partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxconv
from jaxconv import _lowering
from jaxconv._base.geometry import OPERANDS
from jaxconv._base.reshape import transpose
from jaxconv._lowering.forms import col2im, im2col, multiply_adds, phases, split
from tests.support.oracle import Axis
from tests.support.random_problems import SLOTS, Problem, draw

FORMS = [*_lowering.FORMS, _lowering.PORTABLE]
FEW = 4  # problems for each form and slot; more in the slow tests

#: Windows reach over much padding, and little data.
FAR = Axis(fine=4, kernel=2, coarse=3, stride=2**14, dilation=2**15, pad_begin=2**15, pad_end=2**15,
           rest=3)  # fmt: skip
POOL = [
    *draw(seed=3, count=400, most_channels=12),
    *draw(seed=5, count=40, ranks=(2, 3), most_channels=24),
    Problem("far", 2, 1, (3, 2), (FAR,)),
    Problem("far", 2, 2, (1, 2), (FAR, Axis(4, 2, 5, 1, 1, 1, 1, 0))),
    Problem("many", 2, 1, (3, 2), (Axis(31, 10, 7, 3, 2, 3, 4, 1), Axis(9, 7, 3, 2, 1, 2, 1, 1))),
    Problem("one tap", 4, 1, (3, 5), (Axis(5, 1, 5, 1, 1, 0, 0, 0), Axis(7, 1, 4, 2, 1, 0, 0, 0))),
    Problem("padded", 3, 2, (3, 2), (Axis(5, 1, 4, 2, 1, 1, 2, 1), Axis(6, 1, 3, 2, 1, 0, 0, 1))),
]


def claims(form, slot, problem):
    """Whether a form is part of the plan that forcing it makes."""
    try:
        steps = problem.plan(slot, form).steps()
    except ValueError:
        return False
    return form == _lowering.PORTABLE or form in [name for name, _ in steps]


@cache
def claimed(form, slot, count):
    """Problems that a form claims, of different kinds first."""
    found = [p for p in POOL if claims(form, slot, p)]
    by_kind = sorted(found, key=lambda p: [q.kind for q in found[: found.index(p)]].count(p.kind))
    return by_kind[:count]


def check(form, slot, problems, dtype=np.float32):
    """All problems of a form and slot in one program."""
    tensors = [p.integers() for p in problems]

    def run(given):
        return [
            p.operation(slot)(*pair, preferred_element_type=dtype)
            for p, pair in zip(problems, given, strict=True)
        ]

    given = [[t[s].astype(dtype) for s in OPERANDS[slot]] for t in tensors]
    with jaxconv.forced(form):
        found = jax.jit(run)(given)
    for problem, tensor, got in zip(problems, tensors, found, strict=True):
        np.testing.assert_array_equal(got, problem.expected(slot, tensor), err_msg=str(problem))


@pytest.mark.parametrize("slot", SLOTS)
@pytest.mark.parametrize("form", FORMS)
def test_exact(form, slot):
    problems = claimed(form, slot, FEW)
    if not problems:
        pytest.skip(f"{form} claims none to {slot}")
    check(form, slot, problems)


@pytest.mark.parametrize(
    ("op", "shapes", "attributes"),
    [
        ("convolution", [(2, 4, 4, 8), (5, 5, 8, 16)], {"pads_begin": 2, "pads_end": 2}),
        ("convolution_backward_weights", [(2, 40, 8), (2, 41, 16)],
         {"weights_shape": (8, 8, 16), "pads_begin": 4, "pads_end": 4}),
    ],
)  # fmt: skip
def test_xla_does_not_exchange_the_operands_of_a_convolution(op, shapes, attributes):
    """XLA exchanges the operands if the kernel has more pixels than the data, and is slow then."""
    types = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in shapes]
    run = partial(getattr(jaxconv, op), **attributes)
    with jaxconv.forced("convolution"):
        text = jax.jit(run).lower(*types).compile().as_text()
    assert "convolution(" in text
    assert "rhs_reversal" not in text


@pytest.mark.parametrize("weights_format", ["XOI", "XIO", "OIX", "IOX"])
@pytest.mark.parametrize("steps", [{"strides": (2, 3)}, {"dilations": (2, 1)}])
def test_windows_of_few_pixels_by_a_kernel_in_any_layout(weights_format, steps):
    """Fewer pixels than coarse channels: the kernel stays where it lies, and the windows move."""
    rng = np.random.default_rng(4)
    sizes = {"X": (4, 3), "O": (5,), "I": (40,)}
    shape = [n for axis in weights_format for n in sizes[axis]]
    src, weights = (rng.integers(-4, 5, size).astype(np.float32) for size in ((2, 3, 4, 40), shape))
    more = {"weights_format": weights_format, "pads_begin": (1, 0), "output_padding": (1, 0)}
    run = partial(jaxconv.conv_transpose, **steps, **more)
    with jaxconv.forced("reference"):
        expected = jax.jit(run)(src, weights)
    with jaxconv.forced("col2im"):
        found = jax.jit(lambda *given: run(*given))(src, weights)
    np.testing.assert_array_equal(found, expected)


def test_many_taps_are_few_reads():
    """XLA takes 20 ms to compile a read: 20 s, if there were one for each of 31 x 31 taps."""
    src, weights = jax.ShapeDtypeStruct((1, 40, 41, 3), jnp.bfloat16), (31, 31, 3, 8)
    with jaxconv.forced("im2col"):
        text = jax.jit(jaxconv.convolution).lower(src, jnp.ones(weights, jnp.bfloat16)).as_text()
    assert 10 < text.count("stablehlo.slice") < 40


def test_convolutions_in_float64():
    """XLA's convolution gets other padding there."""
    problems = [p for p in POOL if several(p) and claims("convolution", "coarse", p)][:8]
    assert any(a.pad_begin == a.pad_end == 0 for p in problems for a in p.axes)
    with jax.enable_x64(True):
        check("convolution", "coarse", problems, np.float64)


BLOCK_LIMITS = [f"MAX_{what}_BYTES" for what in ("BLOCK", "IMAGE", "FINE", "FINE_BLOCK", "COARSE")]

#: What is done in blocks, or otherwise, from so much data on that no test has it.
LIMITS = {
    "by block": [
        *((split, limit, 1 << 10) for limit in BLOCK_LIMITS),
        (split, "MIN_GROUPS", 2),
        (split, "MIN_FINE_BLOCK_IMAGES", 1),
    ],
    "by piece": [(split, "MAX_DEPTHWISE_TAPS", 2), (split, "MAX_TAPS", 2)],
    "col2im": [(col2im, "MAX_WINDOWS_BYTES", 0), (col2im, "MAX_BLOCK_BYTES", 1 << 10)],
    "im2col": [
        (im2col, "MAX_WINDOWS_BYTES", 0),
        (im2col, "MAX_BLOCK_BYTES", 1 << 10),
        (im2col, "MIN_BLOCK_BYTES", 0),
        *(
            (im2col, f"MAX_{limit}", 1)
            for limit in ("TAPS_AT_ONCE", "TAPS_AT_ONCE_NARROW", "READS")
        ),
    ],
    "multiply-adds, channels first": [(multiply_adds, "MAX_BLOCK_BYTES", 1 << 10)],
    "phases": [(phases, "MAX_SEPARATE_RESIDUES", 1)],
    "swap": [],
}


@pytest.mark.parametrize(
    ("form", "slot"), [(form, slot) for form in LIMITS for slot in _lowering.FORMS[form].emit]
)
def test_exact_in_blocks(patched, form, slot):
    for limit in LIMITS[form]:
        patched(*limit)
    problems = [p for p in POOL if several(p) and claims(form, slot, p)]
    problems = sorted(problems, key=lambda p: -max(a.stride * a.kernel for a in p.axes))[:8]
    assert problems
    check(form, slot, problems)


def several(problem):
    """Whether it has what can be in the wrong place: windows, taps, and residues of a stride."""
    return all(a.coarse > 2 and a.kernel > 2 for a in problem.axes)


def test_every_form_claims_something():
    for form in FORMS:
        if form == "onednn" and _lowering.unavailable():
            continue
        if form == "by block":  # of more data than tests have: `test_exact_in_blocks`
            continue
        assert any(claimed(form, slot, 1) for slot in SLOTS), form


@pytest.mark.slow
@pytest.mark.parametrize("slot", SLOTS)
@pytest.mark.parametrize("form", FORMS)
def test_exact_at_length(form, slot):
    problems = claimed(form, slot, 3 * FEW)[FEW:]
    if not problems:
        pytest.skip(f"{form} claims no more to {slot}")
    check(form, slot, problems)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, np.float16])
@pytest.mark.parametrize("slot", SLOTS)
@pytest.mark.parametrize("form", [None, _lowering.PORTABLE])
def test_16_bits_are_rounded_once(form, slot, dtype):
    """Sums that 16 bits do not hold: a partial sum in 16 bits would be off."""
    problems = draw(seed=5, count=4, ranks=(2,), most_channels=24)
    tensors = [p.integers(limit=12) for p in problems]

    def run(given):
        wide = [p.operation(slot)(*pair) for p, pair in zip(problems, given, strict=True)]
        narrow = [
            p.operation(slot)(*pair, preferred_element_type=dtype)
            for p, pair in zip(problems, given, strict=True)
        ]
        return wide, narrow

    given = [[jnp.asarray(t[s], dtype) for s in OPERANDS[slot]] for t in tensors]
    with jaxconv.forced(form):
        wide, narrow = jax.jit(run)(given)
    for problem, tensor, exact, rounded in zip(problems, tensors, wide, narrow, strict=True):
        expected = problem.expected(slot, tensor)
        np.testing.assert_array_equal(exact, expected, err_msg=str(problem))
        assert rounded.dtype == dtype
        np.testing.assert_array_equal(rounded, expected.astype(np.float32).astype(dtype))


@pytest.mark.parametrize(("apart", "axes"), [(0, 4), (1, 5)])
def test_axes_that_stay_neighbours_are_transposed_as_one(apart, axes):
    order, x = (0, 1, 3, 2, 4, 5), np.arange(720).reshape(2, 3, 4, 5, 6, 1)
    function = partial(transpose, order=order, apart=apart)
    [moved] = [e for e in jax.make_jaxpr(function)(x).eqns if e.primitive.name == "transpose"]
    assert len(moved.params["permutation"]) == axes
    np.testing.assert_array_equal(function(x), x.transpose(order))
