"""Every form fills what its record claims, exactly: integers in, the defining sum out."""

from dataclasses import replace
from functools import cache, partial
from itertools import cycle
from operator import mul

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

import jaxconv
from jaxconv import _lowering
from jaxconv._base.geometry import OPERANDS
from jaxconv._base.reshape import transpose
from jaxconv._contract.contractions import contract
from jaxconv._lowering import onednn_here
from jaxconv._lowering.forms import col2im, im2col, multiply_adds, phases, split
from tests.support.forms import Form
from tests.support.small import SLOTS, TO, claims, draw, expected, kind, tensors

FORMS = [*_lowering.FORMS, _lowering.PORTABLE]
FEW = 4  # problems for each form and slot; more in the slow tests

FAR = 2**15
#: Of kinds that are drawn by no seed.
NAMES = {
    # Windows reach over much padding, and little data.
    Form((4,), (2,), (FAR // 2,), (FAR,), (FAR,), (FAR,), (3, 2)): "far",
    Form((4, 4), (2, 2), (FAR // 2, 1), (FAR, 1), (FAR, 1), (FAR, 1), (2, 4), 2): "far",
    Form((31, 9), (10, 7), (3, 2), (2, 1), (3, 2), (4, 1), (3, 2)): "many",
    Form((5, 7), (1, 1), (1, 2), (1, 1), (0, 0), (0, 0), (3, 5), batch=4): "one tap",
    Form((5, 6), (1, 1), (2, 2), (1, 1), (1, 0), (2, 0), (6, 4), 2, batch=3): "padded",
    Form((7, 9), (2, 2), (2, 2), (1, 1), (1, 0), (0, 1), (4, 6), batch=2): "tiles",
}
POOL = [
    *draw(seed=3, count=400, most_channels=12),
    *draw(seed=5, count=40, ranks=(2, 3), most_channels=24),
    *NAMES,
]


@cache
def claimed(form, slot, first=0, ranks=(1, 2, 3)):
    """A few problems that a form claims, of different kinds first; if none, skip the test."""
    found = [p for p in POOL if p.rank in ranks and claims(p, slot, form)]
    kinds = [NAMES.get(p, kind(p)) for p in found]
    at = sorted(range(len(found)), key=lambda n: kinds[:n].count(kinds[n]))
    return [found[n] for n in at[first : first + FEW]] or pytest.skip(f"{form}: none to {slot}")


def check(form, slot, problems, dtype=np.float32, limit=3, result=None):
    """All problems of a form and slot in one program; the results may have another type."""
    drawn = [tensors(p, limit) for p in problems]

    def run(given):
        more = {"preferred_element_type": result}
        return [p.op(TO[slot], **more)(*x) for p, x in zip(problems, given, strict=True)]

    given = [[jnp.asarray(t[s], dtype) for s in OPERANDS[slot]] for t in drawn]
    with jaxconv.forced(form):
        found = jax.jit(run)(given)
    for problem, of, got in zip(problems, drawn, found, strict=True):
        exact = expected(problem, slot, of).astype(np.float32)
        assert got.dtype == np.dtype(result or dtype)
        np.testing.assert_array_equal(got, exact.astype(got.dtype), err_msg=str(problem))


@pytest.mark.parametrize("slot", SLOTS)
@pytest.mark.parametrize("form", FORMS)
def test_exact(form, slot):
    check(form, slot, claimed(form, slot))


def turn(layout, x):
    """An array with its spatial axes in the opposite order."""
    to = dict(zip(layout.spatial, reversed(layout.spatial), strict=True))
    return jnp.transpose(x, [to.get(axis, axis) for axis in range(x.ndim)])


@pytest.mark.parametrize("slot", SLOTS)
@pytest.mark.parametrize("form", FORMS)
def test_exact_where_columns_lie_before_rows(form, slot):
    """In the kernel, or in the data, as dimension numbers of lax may have it."""
    problems = claimed(form, slot, ranks=(2, 3))
    drawn = [tensors(p, 3) for p in problems]

    def compute(problem, turned, of):
        call = problem.op(TO[slot])
        sizes = jaxconv.resolve(call.func, *(of[s] for s in OPERANDS[slot]), **call.keywords)
        layout = getattr(sizes.geometry, turned)
        lies = layout._replace(spatial=layout.spatial[::-1])
        params = {"precision": (lax.Precision.DEFAULT,) * 2, "dtype": np.dtype(np.float32)}
        params["geometry"] = replace(sizes.geometry, **{turned: lies})
        moved = {s for s in SLOTS if (s == "kernel") == (turned == "kernel")}
        of = {s: turn(layout, x) if s in moved else x for s, x in of.items()}
        out = contract(slot, *(of[s] for s in OPERANDS[slot]), **params)
        return turn(layout, out) if slot in moved else out

    with jaxconv.forced(form):
        found = jax.jit(lambda drawn: [*map(compute, problems, cycle(("kernel", "data")), drawn)])(
            drawn
        )
    for problem, of, got in zip(problems, drawn, found, strict=True):
        np.testing.assert_array_equal(got, expected(problem, slot, of), err_msg=str(problem))


@pytest.mark.parametrize(("form", "name"), [("dot by image", "padded"), ("dot", "tiles")])
def test_a_dot_spreads_pixels(form, name):
    """Of rows whose ends no window reads; and windows side by side."""
    check(form, "fine", [p for p in NAMES if NAMES[p] == name])


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
    problems = [p for p in POOL if several(p) and claims(p, "coarse", "convolution")][:8]
    assert any((0, 0) in zip(p.pads_begin, p.pads_end, strict=True) for p in problems)
    with jax.enable_x64(True):
        check("convolution", "coarse", problems, np.float64)


BLOCK_LIMITS = [f"MAX_{what}_BYTES" for what in ("BLOCK", "IMAGE", "FINE", "FINE_BLOCK", "COARSE")]

#: What is done in blocks, or otherwise, from so much data on that no test has it.
LIMITS = {
    "by block": [
        *((split, limit, 1 << 11) for limit in BLOCK_LIMITS),  # several images, or one, or groups
        (split, "MIN_GROUPS", 2),
        (split, "MIN_FINE_BLOCK_IMAGES", 1),
    ],
    "by piece": [(split, f"MAX_{pieces}_TAPS", 2) for pieces in ("DEPTHWISE_PIECE", "PIECE")],
    "col2im": [(col2im, "MAX_WINDOWS_BYTES", 0), (col2im, "MAX_BLOCK_BYTES", 1 << 10)],
    "im2col": [
        (im2col, "MAX_WINDOWS_BYTES", 0),
        (im2col, "MAX_BLOCK_BYTES", 1 << 10),
        (im2col, "MIN_BLOCK_BYTES", 0),
        *((im2col, f"MAX_{limit}", 1) for limit in ("TAPS_AT_ONCE", "SHORT_TAPS_AT_ONCE", "READS")),
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
    problems = [p for p in POOL if several(p) and claims(p, slot, form)]
    problems = sorted(problems, key=lambda p: -max(map(mul, p.strides, p.kernel)))[:8]
    assert problems
    check(form, slot, problems)


def several(problem):
    """Whether it has what can be in the wrong place: windows, taps, and residues of a stride."""
    return min(*problem.coarse, *problem.kernel) > 2


def test_every_form_claims_something():
    # More data than here: `test_exact_in_blocks`. Narrow types: `test_integers.py`, and below.
    elsewhere = {"by block", "in float32", *["onednn"] * bool(_lowering.why_unavailable())}
    for form in set(FORMS) - elsewhere:
        assert any(claims(p, slot, form) for p in POOL for slot in SLOTS), form


@pytest.mark.slow
@pytest.mark.parametrize("slot", SLOTS)
@pytest.mark.parametrize("form", FORMS)
def test_exact_at_length(form, slot):
    check(form, slot, claimed(form, slot, first=FEW))


@pytest.mark.parametrize("dtype", [jnp.bfloat16, np.float16])
@pytest.mark.parametrize("slot", SLOTS)
@pytest.mark.parametrize(
    ("form", "native"), [(None, False), (_lowering.PORTABLE, False), (_lowering.PORTABLE, True)]
)
def test_16_bits_are_rounded_once(form, native, slot, dtype, patched):
    """Sums that 16 bits do not hold: a partial sum in 16 bits would be off.

    `native` as if the processor had the type: else the forms see float32.
    """
    patched(onednn_here, "multiplies", lambda dtype: native or dtype == np.float32)
    problems = draw(seed=5, count=4, ranks=(2,), most_channels=24)
    limit = 100 if dtype == jnp.bfloat16 else 30
    for result in (np.float32, None):
        check(form, slot, problems, dtype, limit, result)


@pytest.mark.parametrize(("kept", "axes"), [(0, 4), (1, 5)])
def test_axes_that_stay_neighbours_are_transposed_as_one(kept, axes):
    order, x = (0, 1, 3, 2, 4, 5), np.arange(720).reshape(2, 3, 4, 5, 6, 1)
    function = partial(transpose, order=order, kept=kept)
    [moved] = [e for e in jax.make_jaxpr(function)(x).eqns if e.primitive.name == "transpose"]
    assert len(moved.params["permutation"]) == axes
    np.testing.assert_array_equal(function(x), x.transpose(order))
