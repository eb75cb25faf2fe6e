"""Every spelling of every contraction it claims, exactly; and that forcing one takes effect."""

import math
import re
from contextlib import nullcontext
from dataclasses import replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

import jaxconv
from jaxconv import _contractions
from jaxconv._lowering import columns, cpu, force, pieces, strips
from jaxconv._lowering.problem import NEWER, Problem
from tests.support import oracle
from tests.support.forms import CHANNELS_FIRST, CHANNELS_LAST, DENSE, ROLES, Form, each, operands


def slow(*values):
    """More of what other values of parameters test."""
    return pytest.param(*values, marks=pytest.mark.slow)


FORMS = {
    "dense": DENSE,
    "wide": replace(DENSE, channels=(33, 5)),
    "bare": Form(
        fine=(7, 6), kernel=(3, 2), strides=(1, 1), dilations=(1, 2), pads_begin=(0, 0),
        pads_end=(0, 0), channels=(16, 5),
    ),
    "cropped": Form(
        fine=(9, 8), kernel=(2, 3), strides=(3, 2), dilations=(2, 1), pads_begin=(4, 0),
        pads_end=(0, 1), channels=(3, 5),
    ),
    "pointwise": Form(
        fine=(7, 5), kernel=(1, 1), strides=(2, 3), dilations=(1, 1), pads_begin=(1, 0),
        pads_end=(0, 2), channels=(5, 3),
    ),
    "patches": Form(
        fine=(6, 7), kernel=(2, 3), strides=(2, 3), dilations=(1, 1), pads_begin=(1, 0),
        pads_end=(0, 0), channels=(3, 4),
    ),
    "grouped": replace(DENSE, channels=(6, 9), groups=3),
    "depthwise": replace(DENSE, channels=(3, 6), groups=3, strides=(1, 3)),
    "depthwise, even": Form(
        batch=4, fine=(7, 9), kernel=(3, 4), strides=(1, 2), dilations=(2, 1), pads_begin=(2, 1),
        pads_end=(1, 3), channels=(6, 6), groups=6,
    ),
    "grouped pointwise": Form(
        fine=(7, 5), kernel=(1, 1), strides=(2, 3), dilations=(1, 1), pads_begin=(1, 0),
        pads_end=(0, 2), channels=(6, 9), groups=3,
    ),
    "grouped patches": Form(
        fine=(6, 7), kernel=(2, 3), strides=(2, 3), dilations=(1, 1), pads_begin=(1, 0),
        pads_end=(0, 0), channels=(4, 6), groups=2,
    ),
    "one place": Form(
        fine=(4, 7), kernel=(5, 3), strides=(1, 2), dilations=(1, 1), pads_begin=(1, 0),
        pads_end=(0, 1), channels=(4, 6), groups=2,
    ),
    "covered": Form(
        fine=(6, 4), kernel=(13, 9), strides=(1, 2), dilations=(1, 1), pads_begin=(6, 4),
        pads_end=(6, 4), channels=(3, 3), groups=3,
    ),
    "mostly padding": Form(
        fine=(6, 7), kernel=(2, 3), strides=(1, 1), dilations=(1, 1), pads_begin=(5, 4),
        pads_end=(0, 1), channels=(16, 17),
    ),
    "strides of many phases": Form(
        fine=(23, 19), kernel=(7, 4), strides=(5, 4), dilations=(3, 2), pads_begin=(4, 1),
        pads_end=(0, 2), channels=(4, 6), groups=2,
    ),
    "1-D": Form(
        fine=(11,), kernel=(4,), strides=(3,), dilations=(2,), pads_begin=(2,), pads_end=(1,),
        channels=(3, 4),
    ),
    "grouped 1-D": Form(
        fine=(11,), kernel=(4,), strides=(2,), dilations=(1,), pads_begin=(2,), pads_end=(0,),
        channels=(6, 4), groups=2,
    ),
    "strides that divide": Form(
        fine=(10, 8), kernel=(4, 6), strides=(2, 3), dilations=(1, 1), pads_begin=(1, 2),
        pads_end=(0, 0), channels=(3, 4),
    ),
    "the last stride divides": Form(
        fine=(7, 12), kernel=(2, 4), strides=(3, 2), dilations=(2, 1), pads_begin=(1, 5),
        pads_end=(2, 3), channels=(2, 3),
    ),
    "3-D": Form(
        batch=2, fine=(4, 5, 3), kernel=(2, 3, 2), strides=(2, 1, 1), dilations=(1, 1, 2),
        pads_begin=(0, 2, 1), pads_end=(1, 0, 0), channels=(2, 3),
    ),
}  # fmt: skip
FORMS["waveform"] = replace(FORMS["1-D"], channels=(1, 4))
OPS = ("convolution", "convolution_backward_data", "convolution_backward_weights")
FORWARD, DATA, WEIGHTS = OPS
SLOW = ("cropped", "grouped 1-D", "waveform", "3-D")
CASES = [
    pytest.param(
        form,
        op,
        spelling,
        id=f"{form}-{op}-{spelling}",
        marks=[pytest.mark.slow] if form in SLOW else [],
    )
    for form in FORMS
    for op in OPS
    for spelling in force.SPELLINGS
]


def claimed(spelling: str, form: Form, op: str) -> bool:
    """What each spelling is for, said again."""
    if spelling == "matmul":
        one_tap = all(k == 1 for k in form.kernel)
        tiles = form.kernel == form.strides and all(d == 1 for d in form.dilations)
        return one_tap or tiles
    if spelling == "planes":
        windows = op == "convolution_backward_weights" and len(form.kernel) == 1
        return windows or all(k == 1 for k in form.kernel)
    if spelling == "images":
        return op == "convolution_backward_weights"
    if spelling == "each":
        return form.groups > 1
    if spelling == "products":
        return form.groups == 1 and op != "convolution_backward_weights"
    if spelling == "depth":
        axes = list(zip(form.kernel, form.strides, form.dilations, strict=True))
        axes = axes if op == "convolution_backward_data" else axes[-1:]
        divided = all(s == 1 or (k % s == 0 and d == 1) for k, s, d in axes)
        strided = any(s > 1 for _, s, _ in axes)
        return form.groups == 1 and op != "convolution" and divided and strided
    if spelling == "blocks":
        return False  # nothing is split over devices here
    if spelling == "abreast":
        return op != "convolution_backward_weights"
    if spelling == "skewed":
        return form.groups > 1 and op != "convolution_backward_weights"
    if spelling == "strips":
        return form is FORMS["depthwise, even"] and op != "convolution_backward_weights"
    if spelling == "swapped":
        return form is FORMS["covered"] and op == "convolution"
    if spelling == "phases":
        return op == "convolution_backward_data"
    if spelling == "alike":
        return op == "convolution_backward_data" and any(s > 1 for s in form.strides)
    return spelling != "slabs" or len(form.kernel) > 1


@pytest.mark.parametrize(("name", "op", "spelling"), CASES)
@pytest.mark.usefixtures("however_little")
def test_exact_where_claimed_and_refused_elsewhere(name, op, spelling, patched):
    patched(pieces, "DEPTHWISE", 3)
    patched(pieces, "OTHERS", 4)
    patched(strips, "CHANNELS", 2)
    patched(strips, "TOGETHER", 2 * 7 * 9 * 6)  # or two images of the coarse tensor and more
    form = FORMS[name]
    a, b, _ = operands(form, op)
    run = jax.jit(form.op(op))
    with jaxconv.forced(spelling):
        if not claimed(spelling, form, op):
            with pytest.raises(ValueError, match=f"'{spelling}' cannot spell"):
                run(a, b)
            return
        got = run(a, b)
    attributes = dict(form.op(op).keywords)
    np.testing.assert_array_equal(got, getattr(oracle, op)(a, b, **attributes))


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("name", FORMS)
@pytest.mark.usefixtures("however_little")
def test_exact_with_channels_first(name, op, patched):
    """As if there were much work, which no rule calls tiny."""
    patched(Problem, "work", math.inf)
    form = replace(FORMS[name], formats=CHANNELS_FIRST)
    a, b, _ = operands(form, op)
    got = jax.jit(form.op(op))(a, b)
    np.testing.assert_array_equal(got, getattr(oracle, op)(a, b, **form.op(op).keywords))


@pytest.mark.parametrize(
    ("name", "op", "spellings"),
    [
        *(("pointwise", op, ["planes"]) for op in OPS),
        *(("grouped pointwise", op, ["planes"]) for op in OPS),
        ("depthwise", "convolution", ["taps"]),
        ("depthwise", "convolution_backward_data", ["phases", "taps"]),
        ("waveform", "convolution_backward_weights", ["planes"]),
    ],
)
def test_channels_first_stay_so(name, op, spellings):
    """Only weights are transposed."""
    form = replace(FORMS[name], formats=CHANNELS_FIRST, batch=11)
    a, b, _ = operands(form, op)
    told = jaxconv.explain(op, a, b, **form.op(op).keywords)
    assert [spelling for spelling, _ in told.steps] == spellings
    text = jax.jit(form.op(op)).lower(a, b).as_text()
    moved = [line for line in text.splitlines() if "stablehlo.transpose" in line]
    assert not any("<11x" in line for line in moved), moved


@pytest.mark.parametrize("formats", [CHANNELS_LAST, CHANNELS_FIRST])
def test_groups_side_by_side_share_the_memory(formats):
    """Windows of 5 MiB a group, of which eight would be alive at the same time."""
    form = Form(
        batch=8, fine=(28, 28), kernel=(3, 3), strides=(1, 1), dilations=(1, 1),
        pads_begin=(1, 1), pads_end=(1, 1), channels=(192, 192), groups=8, formats=formats,
    )  # fmt: skip
    fine, coarse = (
        jax.ShapeDtypeStruct(form.shapes[slot], np.float32) for slot in ("fine", "coarse")
    )
    run = form.op("convolution_backward_weights")
    compiled = jax.jit(run).lower(fine, coarse).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 32 << 20


@pytest.mark.parametrize("dtype", [np.float32, slow(jnp.bfloat16)])
@pytest.mark.parametrize("formats", [CHANNELS_LAST, CHANNELS_FIRST])
@pytest.mark.parametrize("rows", [1, 2])
@pytest.mark.parametrize("op", [FORWARD, WEIGHTS])
def test_few_long_rows_have_their_windows_in_blocks(op, rows, formats, dtype):
    """A row of all images would have 1 GiB of windows."""
    form = Form(
        batch=8, fine=(rows, 16_000), kernel=(rows, 31), strides=(1, 1), dilations=(1, 1),
        pads_begin=(0, 15), pads_end=(rows - 1, 15), channels=(64, 64), formats=formats,
    )  # fmt: skip
    first, second = (jax.ShapeDtypeStruct(form.shapes[slot], dtype) for slot in ROLES[op][:2])
    run = form.op(op)
    compiled = jax.jit(lambda a, b: run(a, b)).lower(first, second).compile()
    assert compiled.memory_analysis().temp_size_in_bytes < 320 << 20


@pytest.mark.parametrize("formats", [CHANNELS_LAST, CHANNELS_FIRST])
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("at", [0, 1])
def test_an_axis_of_one_place_is_left_out(at, op, formats):
    """A signal as an image of one row, or of one column, is spelled as a signal."""
    signal = replace(FORMS["1-D"], formats=formats)

    def with_axis(values, one):
        return (one, *values) if at == 0 else (*values, one)

    image = replace(
        signal,
        **{
            name: with_axis(getattr(signal, name), one)
            for name, one in (
                ("fine", 1), ("kernel", 1), ("strides", 3), ("dilations", 2), ("pads_begin", 0),
                ("pads_end", 0),
            )
        },
    )  # fmt: skip
    a, b, _ = operands(image, op)
    run = image.op(op)
    told = jaxconv.explain(op, a, b, **run.keywords)
    x, y, _ = operands(signal, op)
    assert told.steps == jaxconv.explain(op, x, y, **signal.op(op).keywords).steps
    np.testing.assert_array_equal(jax.jit(run)(a, b), getattr(oracle, op)(a, b, **run.keywords))


@pytest.mark.parametrize("formats", [CHANNELS_LAST, CHANNELS_FIRST])
@pytest.mark.parametrize("stride", [16, slow(32)])
@pytest.mark.parametrize(("channels", "groups"), [(6, 6), (16, 2), (6, 1)])
@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16])
@pytest.mark.parametrize("platform", ["cpu", "cuda"])
def test_programs_do_not_grow_with_the_strides(platform, dtype, channels, groups, stride, formats):
    """Upsampling by 32 has 1,024 phases."""
    form = Form(
        fine=(5 * stride + 3, 4 * stride), kernel=(2 * stride, stride + 3),
        strides=(stride, stride), dilations=(1, 1), pads_begin=(stride // 2, 1),
        pads_end=(stride // 2, 5), channels=(channels, channels), groups=groups, formats=formats,
    )  # fmt: skip
    a, b, _ = operands(form, DATA, dtype)
    run = form.op(DATA)
    lowered = jax.jit(lambda a, b: run(a, b)).trace(a, b).lower(lowering_platforms=(platform,))
    assert lowered.as_text().count(" = ") < 1500
    if platform == "cpu":
        expected = oracle.convolution_backward_data(a, b, **run.keywords)
        np.testing.assert_array_equal(lowered.compile()(a, b), expected)


@pytest.mark.parametrize("formats", [CHANNELS_LAST, CHANNELS_FIRST])
@pytest.mark.parametrize(
    ("fine", "kernel", "stride"),
    [
        ((7, 7), (3, 3), 1),  # seven columns at once; four rows and three
        ((5, 17), (3, 2), 1),  # sixteen columns and one
        ((17, 22), (4, 5), 2),  # nine columns and two; rows in threes
        ((1, 16), (1, 16), 1),
        ((23, 1), (3, 1), 1),
        ((3, 4, 5), (2, 1, 3), 1),
        ((19,), (3,), 1),
        ((40,), (11,), 1),  # more taps than one loop has
    ],
)
@pytest.mark.parametrize("channels", [(4, 4), slow((4, 12)), slow((8, 4))])
@pytest.mark.usefixtures("however_little")
def test_a_weights_gradient_meets_every_place_once(
    fine, kernel, stride, channels, formats, patched
):
    """However its loops divide them, in both layouts."""
    patched(Problem, "long_rows", property(lambda p: p.rank > 1))
    form = Form(
        batch=2, fine=fine, kernel=kernel, strides=(stride,) * len(fine),
        dilations=(1,) * len(fine), pads_begin=tuple(k // 2 for k in kernel),
        pads_end=tuple((k - 1) // 2 for k in kernel), channels=channels, groups=4,
        formats=formats,
    )  # fmt: skip
    op = "convolution_backward_weights"
    a, b, _ = operands(form, op)
    run = form.op(op)
    assert [name for name, _ in jaxconv.explain(op, a, b, **run.keywords).steps] == ["taps"]
    expected = oracle.convolution_backward_weights(a, b, **run.keywords)
    np.testing.assert_array_equal(jax.jit(run)(a, b), expected)


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("groups", [10, 11])
def test_many_groups_are_taken_in_a_loop(groups, op):
    """Some at a time, or one by one if their number is prime."""
    form = replace(DENSE, channels=(2 * groups, 3 * groups), groups=groups)
    a, b, _ = operands(form, op)
    with jaxconv.forced("each"):
        lowered = jax.jit(form.op(op)).lower(a, b)
    assert "while" in lowered.as_text()
    attributes = dict(form.op(op).keywords)
    np.testing.assert_array_equal(lowered.compile()(a, b), getattr(oracle, op)(a, b, **attributes))


@pytest.mark.parametrize("channels", [(1, 4), (3, 4)])
def test_a_waveform_is_spread_out_by_the_convolution_itself(channels):
    """One channel: no phases. Either way the values are those of the oracle."""
    form = replace(FORMS["1-D"], channels=channels)
    diff_dst, weights, _ = operands(form, "convolution_backward_data")
    op = form.op("convolution_backward_data")
    lowered = jax.jit(op).lower(diff_dst, weights)
    assert ("lhs_dilate = [3]" in lowered.as_text()) == (channels[0] == 1)
    expected = oracle.convolution_backward_data(diff_dst, weights, **op.keywords)
    np.testing.assert_array_equal(lowered.compile()(diff_dst, weights), expected)


@pytest.mark.parametrize(("kernel", "first"), [(4, "depth"), (3, "phases")])
def test_strides_that_divide_the_kernel_need_no_phases(kernel, first):
    form = replace(
        DENSE, channels=(3, 64), fine=(64, 64), kernel=(kernel, kernel), strides=(2, 2),
        dilations=(1, 1), pads_begin=(1, 1), pads_end=(1, 1),
    )  # fmt: skip
    src, weights, _ = operands(form, "conv_transpose")
    op = form.op("conv_transpose")
    told = jaxconv.explain("conv_transpose", src, weights, **op.keywords)
    assert told.steps[0][0] == first
    np.testing.assert_array_equal(
        jax.jit(op)(src, weights), oracle.conv_transpose(src, weights, **op.keywords)
    )


@pytest.mark.parametrize(("pads", "barriers"), [((0, 0), 1), ((1, 1), 0)])
def test_float64_is_padded_before_a_convolution_that_would_be_naive(pads, barriers):
    """With more padding than keeps the extents, as a gradient of one without any has."""
    form = replace(
        DENSE, channels=(16, 24), kernel=(3, 3), strides=(1, 1), dilations=(1, 1),
        pads_begin=pads, pads_end=pads,
    )  # fmt: skip
    with jax.enable_x64(True):
        diff_dst, weights, _ = operands(form, "convolution_backward_data", np.float64)
        op = form.op("convolution_backward_data")
        lowered = jax.jit(op).lower(diff_dst, weights)
        got = lowered.compile()(diff_dst, weights)
    assert lowered.as_text().count("stablehlo.convolution") == 1
    assert lowered.as_text().count("stablehlo.optimization_barrier") == barriers
    np.testing.assert_array_equal(
        got, oracle.convolution_backward_data(diff_dst, weights, **op.keywords)
    )


@pytest.mark.parametrize("spelling", ["direct", "reference", None])
@pytest.mark.parametrize("formats", [CHANNELS_LAST, CHANNELS_FIRST])
def test_what_is_cropped_before_and_padded_after(formats, spelling):
    """As the gradient of much padding at one end is: XLA:CPU would read beyond the data."""
    form = Form(
        batch=2, fine=(34,), kernel=(3,), strides=(1,), dilations=(1,), pads_begin=(8,),
        pads_end=(0,), channels=(16, 16), formats=formats,
    )  # fmt: skip
    diff_dst, weights, _ = operands(form, DATA)
    run = form.op(DATA)
    with jaxconv.forced(spelling) if spelling else nullcontext():
        got = jax.jit(lambda a, b: run(a, b))(diff_dst, weights)
    expected = oracle.convolution_backward_data(diff_dst, weights, **run.keywords)
    np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize("spelling", ["direct", "reference", None])
@pytest.mark.parametrize(("coarse", "begin"), [(1, 2), (1, 4), (2, 4), (3, 4)])
@pytest.mark.parametrize("channels", [1, 16])
def test_what_is_cropped_altogether_and_more(channels, coarse, begin, spelling):
    """A transposed convolution of which all that is left is output padding, or nearly all."""
    src = np.arange(1.0, coarse * 5 * channels + 1, dtype=np.float32).reshape(1, coarse, 5, -1)
    weights = np.arange(9.0 * channels**2, dtype=np.float32).reshape(3, 3, channels, channels) % 7
    attributes = {"pads_begin": (begin, 0), "output_padding": (4, 0)}
    with jaxconv.forced(spelling):
        got = jaxconv.conv_transpose(src, weights, **attributes)
    np.testing.assert_array_equal(got, oracle.conv_transpose(src, weights, **attributes))


@pytest.mark.parametrize(("spelling", "branches"), [("direct", 0), ("columns", 1)])
def test_a_convolution_alone_stands_in_no_branch(spelling, branches):
    """Channels first: what is transposed on the way out of a branch is copied twice."""
    form = replace(DENSE, formats=CHANNELS_FIRST, batch=64)
    src, weights, _ = operands(form, "convolution")
    with jaxconv.forced(spelling):
        text = jax.jit(form.op("convolution")).lower(src, weights).as_text()
    assert text.count("stablehlo.case") == branches


@pytest.mark.parametrize(("rows", "dots"), [(28, 1), (29, 2)])
def test_blocks_divide_the_rows_if_they_can(rows, dots):
    """What is left over would be compiled a second time."""
    form = replace(
        DENSE, batch=5, channels=(64, 64), fine=(rows, 56), kernel=(3, 3), strides=(1, 1),
        dilations=(1, 1), pads_begin=(1, 1), pads_end=(1, 1),
    )  # fmt: skip
    fine, coarse = (
        jax.ShapeDtypeStruct(form.shapes[slot], np.float32) for slot in ("fine", "coarse")
    )
    run = form.op("convolution_backward_weights")
    with jaxconv.forced("columns"):
        text = jax.jit(run).lower(fine, coarse).as_text()
    assert "stablehlo.while" in text
    assert text.count("stablehlo.dot_general") == dots


EIGHT = Form(8, (28, 28), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), (192, 192), 24)
EIGHT_STRIDED = replace(EIGHT, strides=(2, 2))
SIXTEEN = replace(EIGHT_STRIDED, channels=(160, 160), groups=10)
ONE_GROUP = replace(SIXTEEN, batch=1, channels=(8, 16), groups=1)


@pytest.mark.parametrize(
    ("op", "form", "formats", "steps"),
    [
        (FORWARD, EIGHT, CHANNELS_LAST, ["taps"]),
        (FORWARD, EIGHT, CHANNELS_FIRST, ["skewed", "taps"]),
        (FORWARD, replace(EIGHT, channels=(24, 24), groups=3), CHANNELS_FIRST, ["taps"]),
        (FORWARD, replace(EIGHT_STRIDED, batch=16), CHANNELS_FIRST, ["each", "direct"]),
        (DATA, EIGHT, CHANNELS_FIRST, ["phases", "skewed", "taps"]),
        (DATA, EIGHT_STRIDED, CHANNELS_FIRST, ["phases", "taps"]),
        (DATA, replace(EIGHT_STRIDED, batch=40), CHANNELS_FIRST,
         ["phases", "planes", "skewed", "taps"]),
        (DATA, SIXTEEN, CHANNELS_LAST, ["phases", "taps"]),
        (DATA, SIXTEEN, CHANNELS_FIRST, ["phases", "taps"]),
        (DATA, replace(SIXTEEN, batch=40), CHANNELS_LAST, ["phases", "taps", "each", "direct"]),
        (DATA, replace(SIXTEEN, batch=2, channels=(160, 320)), CHANNELS_LAST,
         ["phases", "matmul", "direct"]),
        (WEIGHTS, SIXTEEN, CHANNELS_LAST, ["columns"]),
        (WEIGHTS, SIXTEEN, CHANNELS_FIRST, ["each", "direct"]),
        (WEIGHTS, replace(SIXTEEN, kernel=(5, 5)), CHANNELS_FIRST, ["columns"]),
        (WEIGHTS, replace(SIXTEEN, strides=(1, 1)), CHANNELS_LAST, ["each", "direct"]),
        (WEIGHTS, replace(SIXTEEN, batch=32, kernel=(2, 2), pads_begin=(0, 0), pads_end=(0, 0)),
         CHANNELS_LAST, ["each", "matmul"]),
        (WEIGHTS, ONE_GROUP, CHANNELS_LAST, ["columns"]),
        (WEIGHTS, replace(ONE_GROUP, strides=(1, 1)), CHANNELS_LAST, ["direct"]),
    ],
)  # fmt: skip
def test_what_groups_of_several_channels_become(op, form, formats, steps):
    """On either side of each limit; nothing is run."""
    form = replace(form, formats=formats)
    shapes = [form.shapes[slot] for slot in ROLES[op][:2]]
    told = jaxconv.explain(op, *shapes, **form.op(op).keywords)
    assert list(dict(told.steps)) == steps


LARGE = Form(8, (56, 56), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), (64, 64))


@pytest.mark.parametrize("formats", [CHANNELS_LAST, CHANNELS_FIRST])
@pytest.mark.parametrize(
    ("change", "spellings"),
    [
        ({}, ["images", "direct"]),
        ({"batch": 1}, ["direct"]),
        ({"batch": 1, "fine": (26, 26)}, ["direct"]),
        ({"fine": (32, 32)}, ["images", "direct"]),
        ({"fine": (24, 24)}, ["columns"]),
        ({"channels": (64, 72)}, ["columns"]),
        ({"channels": (64, 16)}, ["columns"]),
        ({"channels": (16, 64)}, ["columns"]),
        ({"strides": (2, 2)}, ["columns"]),
        ({"batch": 1, "fine": (14, 14), "channels": (512, 64)}, ["columns"]),
    ],
)
def test_large_images_of_few_channels(change, spellings, formats):
    """On either side of each limit; nothing is run."""
    form = replace(LARGE, **change, formats=formats)
    shapes = [form.shapes[slot] for slot in ROLES[WEIGHTS][:2]]
    told = jaxconv.explain(WEIGHTS, *shapes, **form.op(WEIGHTS).keywords)
    assert list(dict(told.steps)) == (spellings if NEWER else ["columns"])


@pytest.mark.parametrize(
    ("change", "stay"),
    [
        ({}, True),
        ({"strides": (2, 2)}, False),
        ({"strides": (2, 2), "fine": (28, 28)}, True),  # small: all at once
        ({"strides": (2, 2), "channels": (7, 128)}, True),
        ({"kernel": (3,), "fine": (3136,)}, False),
    ],
)
def test_windows_with_channels_first(change, stay):
    """Of weights gradients; what is not so is transposed as a whole."""
    form = replace(LARGE, channels=(128, 128), formats=CHANNELS_FIRST)
    form = replace(form, **change)
    if len(form.kernel) == 1:
        one = {n: getattr(form, n)[:1] for n in ("strides", "dilations", "pads_begin", "pads_end")}
        form = replace(form, **one)
    a, b = (jax.ShapeDtypeStruct(form.shapes[slot], np.float32) for slot in ROLES[WEIGHTS][:2])
    text = jax.jit(form.op(WEIGHTS)).lower(a, b).as_text()
    moved = f"-> tensor<{'x'.join(map(str, (8, *form.fine, form.channels[0])))}x"
    assert (moved not in text) == stay


MANY_TAPS = {
    "depthwise": Form(
        fine=(13, 15), kernel=(12, 11), strides=(1, 3), dilations=(1, 1), pads_begin=(3, 0),
        pads_end=(0, 5), channels=(3, 6), groups=3,
    ),
    "a prime number": Form(
        fine=(140,), kernel=(131,), strides=(2,), dilations=(1,), pads_begin=(4,), pads_end=(0,),
        channels=(2, 2), groups=2,
    ),
    "each row has many": Form(
        fine=(4, 150), kernel=(2, 140), strides=(1, 2), dilations=(2, 1), pads_begin=(1, 0),
        pads_end=(0, 3), channels=(2, 2), groups=2,
    ),
    "wide groups": Form(
        fine=(18, 17), kernel=(17, 16), strides=(1, 1), dilations=(1, 1), pads_begin=(0, 8),
        pads_end=(2, 7), channels=(18, 4), groups=2,
    ),
    "3-D": Form(
        batch=2, fine=(4, 8, 13), kernel=(3, 7, 13), strides=(2, 1, 1), dilations=(1, 1, 1),
        pads_begin=(0, 2, 6), pads_end=(1, 0, 6), channels=(4, 4), groups=2,
    ),
}  # fmt: skip


@pytest.mark.parametrize(
    ("name", "formats"),
    [
        ("depthwise", CHANNELS_LAST), ("wide groups", CHANNELS_LAST),
        slow("a prime number", CHANNELS_LAST), slow("each row has many", CHANNELS_LAST),
        slow("3-D", CHANNELS_LAST), slow("depthwise", CHANNELS_FIRST),
    ],
)  # fmt: skip
@pytest.mark.parametrize("op", OPS)
@pytest.mark.usefixtures("however_little")
def test_many_taps_are_taken_some_at_a_time(name, op, formats, patched):
    """Grouped convolutions, whose programs do not grow with the taps, however much work it is."""
    patched(Problem, "work", math.inf)
    form = replace(MANY_TAPS[name], formats=formats)
    a, b, _ = operands(form, op)
    run = form.op(op)
    lowered = jax.jit(run).lower(a, b)
    if op != "convolution_backward_data" or form.strides == (1, 1):  # phases have fewer
        assert "pieces" in [name for name, _ in jaxconv.explain(op, a, b, **run.keywords).steps]
        assert lowered.as_text().count(" = ") < 2500
    np.testing.assert_array_equal(
        lowered.compile()(a, b), getattr(oracle, op)(a, b, **run.keywords)
    )


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize(("groups", "of", "block"), [(12, 1, 4), (7, 1, 7), (12, 2, 24)])
@pytest.mark.usefixtures("however_little")
def test_many_taps_of_some_channels_at_a_time(groups, of, block, op, patched):
    """But not one by one, if their number is prime, and depthwise only."""
    patched(pieces, "TOGETHER", 4)
    channels = (of * groups, of * groups)
    form = replace(MANY_TAPS["depthwise"], channels=channels, groups=groups, strides=(1, 1))
    a, b, _ = operands(form, op)
    with jaxconv.forced("pieces"):
        lowered = jax.jit(form.op(op)).lower(a, b)
    at_a_time = {n for n in (1, 4, 7, 8, 24) if f"x11x{of}x{n}xf32" in lowered.as_text()}
    assert block in at_a_time
    assert at_a_time <= {block, of * groups}
    np.testing.assert_array_equal(
        lowered.compile()(a, b), getattr(oracle, op)(a, b, **form.op(op).keywords)
    )


@pytest.mark.parametrize(
    ("channels", "groups", "kernel", "first"),
    [
        (512, 512, 5, "skewed"), (256, 256, 7, "skewed"), (256, 32, 3, "skewed"),
        (480, 480, 5, "taps"), (512, 512, 3, "taps"), (128, 32, 3, "taps"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16])
def test_channels_that_would_crowd_are_skewed(channels, groups, kernel, first, dtype):
    """XLA, which sees that nothing reads what was added, keeps it."""
    form = replace(
        DENSE, channels=(channels, channels), groups=groups, fine=(14, 14), strides=(1, 1),
        kernel=(kernel, kernel), dilations=(1, 1), pads_begin=(1, 1), pads_end=(1, 1),
    )  # fmt: skip
    a, b, _ = operands(form, "convolution", jnp.dtype(dtype), limit=2)
    op = form.op("convolution")
    assert jaxconv.explain("convolution", a, b, **op.keywords).steps[0][0] == first
    compiled = jax.jit(op).lower(a, b).compile()
    assert (f"16,16,{channels + 16}]" in compiled.as_text()) == (first == "skewed")
    a, b, got = (np.asarray(x, np.float32) for x in (a, b, compiled(a, b)))
    assert abs(got).max() < 256  # so that bfloat16 is exact
    np.testing.assert_array_equal(got, oracle.convolution(a, b, **op.keywords))


@pytest.mark.parametrize(
    ("change", "last", "first"),
    [
        ({}, True, False),
        ({"batch": 14}, True, False),  # twice as many images as are taken together
        ({"batch": 0}, True, False),
        ({"fine": (8, 16)}, True, True),
        ({"fine": (8, 17)}, True, False),
        ({"fine": (60,), "kernel": (49,)}, True, False),
        ({"fine": (42, 42)}, False, False),  # images too large for a cache
        ({"strides": (1, 2)}, False, False),
        ({"channels": (320, 320), "groups": 320}, False, False),  # a small kernel
        ({"channels": (360, 360), "groups": 360}, False, False),  # not in whole strips
        ({"channels": (352, 704)}, False, False),
        ({"kernel": (11, 11)}, False, False),  # too many multiply-adds
    ],
    ids=str,
)
@pytest.mark.parametrize("formats", [CHANNELS_LAST, CHANNELS_FIRST])
@pytest.mark.parametrize("op", [FORWARD, slow(DATA)])
def test_strips_of_channels_where_the_kernel_is_large(op, formats, change, last, first):
    rank = len(change.get("fine", (0, 0)))
    form = Form(
        batch=7, fine=(15, 15), kernel=(7, 7), strides=(1, 1)[:rank], dilations=(1, 1)[:rank],
        pads_begin=(3, 3)[:rank], pads_end=(3, 3)[:rank], channels=(352, 352), groups=352,
        formats=formats,
    )  # fmt: skip
    form = replace(form, **change)
    a, b, _ = operands(form, op)
    run = form.op(op)
    steps = dict(jaxconv.explain(op, a, b, **run.keywords).steps)
    assert ("strips" in steps) == (first if formats is CHANNELS_FIRST else last)
    lowered = jax.jit(run).lower(a, b)
    if "strips" in steps:
        assert ("stablehlo.while" in lowered.as_text()) == (form.batch == 14)
    np.testing.assert_array_equal(
        lowered.compile()(a, b), getattr(oracle, op)(a, b, **run.keywords)
    )


@pytest.mark.parametrize(
    ("kernel", "channels", "first"),
    [
        ((10, 10), (2, 2), "taps"), ((10, 11), (2, 2), "pieces"),
        ((7, 9), (4, 4), "taps"), ((8, 8), (4, 2), "taps"), ((5, 13), (4, 4), "each"),
        ((7, 7), (4, 18), "taps"), ((5, 11), (4, 18), "each"),
    ],
)  # fmt: skip
def test_as_many_multiply_adds_as_a_loop_may_hold(kernel, channels, first, patched):
    """100, or 128 if several channels are summed for few; of two groups here."""
    patched(Problem, "work", math.inf)
    form = replace(
        DENSE, channels=channels, groups=2, fine=(14, 16), strides=(1, 1), kernel=kernel,
        dilations=(1, 1), pads_begin=(0, 0), pads_end=(0, 0),
    )  # fmt: skip
    a, b, _ = operands(form, "convolution")
    op = form.op("convolution")
    assert jaxconv.explain("convolution", a, b, **op.keywords).steps[0][0] == first
    np.testing.assert_array_equal(jax.jit(op)(a, b), oracle.convolution(a, b, **op.keywords))


@pytest.mark.parametrize(
    ("change", "abreast"),
    [
        ({}, True),
        ({"batch": 2}, True),
        ({"batch": 1}, False),
        ({"groups": 2}, False),
        ({"channels": (16, 64), "batch": 32}, False),  # much to copy for what is computed
        ({"fine": (56, 112)}, False),
        ({"channels": (32, 64), "fine": (56, 112)}, True),
        ({"channels": (64, 64), "kernel": (5, 5), "fine": (58, 58)}, True),
        ({"channels": (64, 128), "fine": (28, 28)}, True),
        ({"channels": (64, 128)}, False),
        ({"channels": (128, 128), "fine": (14, 14)}, False),
        ({"channels": (128, 128), "fine": (28, 28), "kernel": (2, 2)}, True),
        ({"channels": (64, 192), "fine": (14, 14), "batch": 32}, False),
        ({"fine": (56, 56), "strides": (2, 2), "batch": 16}, True),
        # as many zeros as places
        ({"dilations": (16, 16), "pads_begin": (16, 16), "pads_end": (16, 16)}, False),
    ],
    ids=str,
)
@pytest.mark.parametrize("formats", [CHANNELS_LAST, CHANNELS_FIRST])
@pytest.mark.parametrize("dtype", [np.float32, jnp.bfloat16])
def test_images_abreast_where_rows_are_short(dtype, formats, change, abreast):
    """Newer XLA convolves all rows at once, and 16-bit windows are dots."""
    form = Form(8, (56, 56), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), (64, 64), 1, formats)
    form = replace(form, **change)
    a, b = (jax.ShapeDtypeStruct(form.shapes[slot], dtype) for slot in ("fine", "kernel"))
    steps = jaxconv.explain("convolution", a, b, **form.op("convolution").keywords).steps
    expected = abreast and not NEWER and dtype == np.float32
    assert ([spelling for spelling, _ in steps] == ["abreast", "direct"]) == expected


@pytest.mark.parametrize(("kernel", "abreast"), [((7,), True), ((3,), False)])
def test_rows_of_one_axis_abreast(kernel, abreast):
    form = Form(32, (90,), kernel, (1,), (1,), (1,), (1,), (64, 64), 1, CHANNELS_LAST)
    a, b = (jax.ShapeDtypeStruct(form.shapes[slot], np.float32) for slot in ("fine", "kernel"))
    steps = jaxconv.explain("convolution", a, b, **form.op("convolution").keywords).steps
    assert (steps[0][0] == "abreast") == (abreast and not NEWER)


@pytest.mark.parametrize(
    ("change", "swapped"),
    [
        ({}, True),
        ({"kernel": (13, 8), "pads_end": (6, 3)}, True),
        ({"kernel": (15, 7), "pads_end": (8, 2)}, False),  # its end does not reach
        ({"pads_begin": (5, 4)}, True),  # one place less
        ({"pads_begin": (7, 4)}, True),  # one place more
        ({"pads_begin": (8, 4)}, False),  # two, and one does not read the first place
        ({"kernel": (17, 9), "dilations": (2, 1), "pads_end": (26, 4)}, False),
        ({"fine": (3, 4), "kernel": (7, 9), "pads_begin": (3, 4), "pads_end": (3, 4)}, False),
        ({"fine": (9, 8), "kernel": (11, 10), "pads_begin": (1, 1), "pads_end": (1, 1)}, False),
        ({"batch": 1}, True),
        ({"batch": 0}, False),
        ({"channels": (3, 6)}, False),
        ({"channels": (6, 6)}, False),
    ],
)
def test_kernel_and_image_change_places_if_all_reads_all(change, swapped):
    form = replace(FORMS["covered"], **change)
    a, b, _ = operands(form, "convolution")
    op = form.op("convolution")
    steps = jaxconv.explain("convolution", a, b, **op.keywords).steps
    assert (steps[0][0] == "swapped") == swapped
    np.testing.assert_array_equal(jax.jit(op)(a, b), oracle.convolution(a, b, **op.keywords))


@pytest.mark.parametrize("which", [0, 1])
@pytest.mark.parametrize("spelling", ["skewed", "strips", "swapped"])
def test_what_is_not_finite_stays_in_its_channel(spelling, which, patched):
    """And in its image."""
    patched(strips, "CHANNELS", 1)
    form = FORMS["covered"]
    operand = [np.array(x, np.float32) for x in operands(form, "convolution")[:2]]
    run = form.op("convolution")
    with jaxconv.forced(spelling):
        expected = np.asarray(jax.jit(run)(*operand))
        operand[which][(1, 1) if which == 0 else (6, 4)][..., 1] = np.inf
        got = np.asarray(jax.jit(run)(*operand))
    spared = np.ones(got.shape, bool)
    spared[1 if which == 0 else slice(None), ..., 1] = False
    assert not np.isfinite(got[~spared]).all()
    np.testing.assert_array_equal(got[spared], expected[spared])


@pytest.mark.parametrize("name", ["dense", "1-D"])
def test_what_is_not_finite_stays_in_its_image(name):
    """At both its ends, where others begin and end if they stand abreast."""
    form = replace(FORMS[name], batch=3)
    src, weights, _ = operands(form, "convolution")
    src = np.array(src, np.float32)
    src[1, ..., [0, -1], :] = np.inf
    run = form.op("convolution")
    with jaxconv.forced("reference"):
        expected = np.asarray(jax.jit(run)(src, weights))
    with jaxconv.forced("abreast"):
        got = np.asarray(jax.jit(run)(src, weights))
    assert not np.isfinite(expected[1]).all()
    assert np.isfinite(expected[[0, 2]]).all()
    np.testing.assert_array_equal(got, expected)


def test_every_spelling_is_tested():
    assert {*cpu.SPELLINGS, *cpu.REWRITES, "reference"} == set(force.SPELLINGS)


def test_forcing_reaches_a_compiled_outer_function():
    """The context is part of jit's key: entering it recompiles what is compiled already."""
    src, weights, _ = operands(FORMS["depthwise"], "convolution")

    @jax.jit
    def outer(src, weights):
        return FORMS["depthwise"].op("convolution")(src, weights) + 1

    def program():
        return outer.lower(src, weights).as_text()

    free = outer(src, weights)
    assert "stablehlo.convolution" not in program()
    with jaxconv.forced("direct"):
        assert "stablehlo.convolution" in program()
        np.testing.assert_array_equal(outer(src, weights), free)
    assert "stablehlo.convolution" not in program()


def test_a_patched_limit_reaches_what_is_compiled_already(patched):
    """Else tests would try programs of others."""
    a, b, _ = operands(DENSE, WEIGHTS)
    run = jax.jit(DENSE.op(WEIGHTS))

    def loops():
        return "stablehlo.while" in run.lower(a, b).as_text()

    with jaxconv.forced("columns"):
        assert not loops()
        for size in ("WHOLE", "BLOCK", "TOGETHER"):
            patched(columns, size, 0)
        assert loops()


def test_derivatives_are_forced_too():
    form = FORMS["depthwise"]
    src, weights, _ = operands(form, "convolution")
    gradient = jax.jit(jax.grad(lambda w: form.op("convolution")(src, w).sum()))
    with jaxconv.forced("direct"):
        assert "stablehlo.convolution" in gradient.lower(weights).as_text()
    assert "stablehlo.convolution" not in gradient.lower(weights).as_text()


@pytest.mark.parametrize("share", [0.0, slow(0.4), 0.7])
@pytest.mark.parametrize("form", ["dense", "grouped", "1-D"])
@pytest.mark.parametrize("op", ["convolution", "convolution_backward_weights"])
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_windows_in_blocks_and_some_groups_at_a_time(op, form, dtype, share, patched):
    """As large layers have them; one row a block, and blocks that do not divide the rows."""
    a, b, _ = operands(FORMS[form], op, dtype)
    run = jax.jit(FORMS[form].op(op))
    with jaxconv.forced("columns"):
        expected = run(a, b)
        assert "stablehlo.while" not in run.lower(a, b).as_text()
        patched(columns, "WHOLE", 0)
        patched(columns, "BLOCK", int(share * columns_bytes(FORMS[form], dtype)))
        patched(columns, "TOGETHER", columns.BLOCK)
        assert "stablehlo.while" in run.lower(a, b).as_text()
        np.testing.assert_array_equal(run(a, b), expected)


def columns_bytes(form, dtype):
    src, weights, _ = operands(form, "convolution", dtype)
    dst = jax.eval_shape(jax.jit(form.op("convolution")), src, weights)
    return dst.size // dst.shape[-1] * np.prod(form.kernel) * src.shape[-1] * src.dtype.itemsize


@pytest.mark.parametrize(
    ("batch", "images", "loops", "dots"),
    [
        (4, 2, 1, 1),  # all rows of two images
        (5, 3, 1, 2),  # three images, and two
        (3, 0.5, 2, 2),  # three of the seven rows of an image, twice, and one
        (3, 0, 2, 1),  # one row
        (1, 0.5, 1, 2),
    ],
)
@pytest.mark.parametrize("name", ["dense", "wide", slow("3-D")])
@pytest.mark.parametrize("dtype", [np.float32, slow(np.float64)])
def test_windows_with_channels_first_in_blocks(
    name, dtype, batch, images, loops, dots, however_little, patched
):
    """Some images at a time, else some rows of one."""
    patched(Problem, "work", math.inf)
    form = replace(FORMS[name], batch=batch, formats=CHANNELS_FIRST)
    form = replace(form, strides=(1,) * len(form.kernel))
    more = 7 - form.shapes["coarse"][2]
    form = replace(form, fine=(form.fine[0] + more, *form.fine[1:]))
    run = form.op(WEIGHTS)
    with jax.enable_x64(dtype == np.float64):
        a, b, _ = operands(form, WEIGHTS, dtype)
        windows = math.prod((*b.shape[2:], *form.kernel, form.channels[0])) * a.dtype.itemsize
        patched(columns, "WHOLE", 0)
        for size in ("BLOCK", "LEAST"):
            patched(columns, size, int(images * windows))
        told = jaxconv.explain(WEIGHTS, a, b, **run.keywords)
        assert [spelling for spelling, _ in told.steps] == ["columns"]
        lowered = jax.jit(run).lower(a, b)
        assert lowered.as_text().count("stablehlo.while") == loops
        assert lowered.as_text().count("stablehlo.dot_general") == dots
        got = lowered.compile()(a, b)
    assert got.dtype == dtype
    np.testing.assert_array_equal(got, oracle.convolution_backward_weights(a, b, **run.keywords))


@pytest.fixture
def in_blocks(patched):
    """One row of windows, one group, one image or few taps at a time, as if layers were large."""
    for size in ("WHOLE", "BLOCK", "TOGETHER"):
        patched(columns, size, 0)
    patched(pieces, "OTHERS", 4)
    patched(strips, "TOGETHER", 0)
    patched(strips, "CHANNELS", 2)


#: Of images that are counted.
COUNTED = ("abreast", "images")


@pytest.mark.parametrize("spelling", [None, *(s for s in force.SPELLINGS if s not in COUNTED)])
@pytest.mark.parametrize("formats", [CHANNELS_LAST, CHANNELS_FIRST])
@pytest.mark.parametrize(
    "name", ["dense", "pointwise", "1-D", "depthwise, even", slow("grouped"), slow("patches")]
)
@pytest.mark.parametrize("op", OPS)
def test_a_symbolic_batch(op, name, formats, spelling, in_blocks):
    form = replace(FORMS[name], formats=formats)
    if spelling and not claimed(spelling, form, op):
        pytest.skip("not for this contraction")
    a, b, _ = operands(form, op)
    (batch,) = export.symbolic_shape("batch")
    types = [
        jax.ShapeDtypeStruct((batch, *x.shape[1:]) if slot != "kernel" else x.shape, x.dtype)
        for slot, x in zip(ROLES[op], (a, b), strict=False)
    ]
    run = form.op(op)
    with jaxconv.forced(spelling) if spelling else nullcontext():
        exported = export.export(jax.jit(run))(*types)
    np.testing.assert_array_equal(exported.call(a, b), run(a, b))


@pytest.mark.parametrize("batch", [0, "batch"])
@pytest.mark.parametrize(
    ("spelling", "op", "form"),
    [
        ("abreast", FORWARD, DENSE),
        ("images", WEIGHTS, DENSE),
        ("swapped", FORWARD, FORMS["covered"]),
    ],
)
def test_some_spellings_need_a_number_of_images(spelling, op, form, batch):
    (batch,) = export.symbolic_shape("batch") if batch else (batch,)
    types = [
        jax.ShapeDtypeStruct((batch, *x.shape[1:]) if slot != "kernel" else x.shape, x.dtype)
        for slot, x in zip(ROLES[op], operands(form, op)[:2], strict=False)
    ]
    with jaxconv.forced(spelling), pytest.raises(ValueError, match=f"'{spelling}' cannot spell"):
        export.export(jax.jit(form.op(op)))(*types)


def test_the_covered_image_of_a_symbolic_batch():
    """Whose images cannot become groups."""
    test_a_symbolic_batch("convolution", "covered", CHANNELS_LAST, None, None)


HALOS = Form(
    fine=(8, 6), kernel=(3, 2), strides=(1, 2), dilations=(1, 1), pads_begin=(0, 1),
    pads_end=(2, 0), channels=(6, 9), groups=3,
)  # fmt: skip


@pytest.mark.parametrize("op", OPS)
@each("form", {**FORMS, "in blocks": HALOS}, slow=SLOW)
def test_exact_as_if_split_over_devices(form, op, patched):
    """All that is chosen there, in a program for one device."""
    patched(_contractions, "devices_to_split_over", lambda context: 4)
    a, b, _ = operands(form, op)
    got = jax.jit(form.op(op))(a, b)
    np.testing.assert_array_equal(got, getattr(oracle, op)(a, b, **form.op(op).keywords))


@pytest.mark.parametrize("name", ["dense", "grouped"])
@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("spelling", ["columns", "pieces", "images"])
def test_loops_under_shard_map(spelling, op, name, in_blocks):
    """They carry what varies over the devices."""
    if not claimed(spelling, FORMS[name], op):
        pytest.skip("not for this contraction")
    check_loops_under_shard_map(replace(FORMS[name], batch=4), op, spelling)


@pytest.mark.parametrize("op", [FORWARD, DATA])
def test_a_loop_over_images_under_shard_map(op, in_blocks):
    form = replace(FORMS["depthwise, even"], strides=(1, 1))
    check_loops_under_shard_map(form, op, "strips")


def test_loops_under_shard_map_with_channels_first(in_blocks, patched):
    patched(Problem, "work", math.inf)
    form = replace(DENSE, batch=4, strides=(1, 1), formats=CHANNELS_FIRST)
    check_loops_under_shard_map(form, WEIGHTS, None)


def check_loops_under_shard_map(form, op, spelling):
    a, b, _ = operands(form, op)
    mesh = jax.make_mesh((2,), ("batch",), axis_types=(AxisType.Auto,))
    specs = [P() if slot == "kernel" else P("batch") for slot in ROLES[op]]
    weights = specs[2] == P()
    run = form.op(op)

    def local(a, b):
        out = run(a, b)
        return jax.lax.psum(out, "batch") if weights else out

    sharded = jax.shard_map(local, mesh=mesh, in_specs=tuple(specs[:2]), out_specs=specs[2])
    with jaxconv.forced(spelling) if spelling else nullcontext():
        lowered = jax.jit(sharded).lower(a, b)
        assert "stablehlo.while" in lowered.as_text()
        got = lowered.compile()(a, b)
    np.testing.assert_array_equal(got, run(a, b))


#: Made of multiply-adds.
WITHOUT_PRODUCTS = ("taps", "pieces", "skewed", "strips", "swapped")


@pytest.mark.parametrize("formats", [CHANNELS_LAST, CHANNELS_FIRST])
@pytest.mark.parametrize(
    ("op", "spelling", "name"),
    [
        (op, spelling, name)
        for op in OPS
        for spelling in force.SPELLINGS
        for name in ("dense", "pointwise", "grouped", "strides that divide")
        if (name == "grouped") == (spelling == "each")  # others give groups to multiply-adds
        if spelling not in WITHOUT_PRODUCTS and claimed(spelling, FORMS[name], op)
    ],
)
def test_every_product_has_the_precision_that_is_asked_for(op, spelling, name, formats):
    """Which no value shows on a CPU."""
    form = replace(FORMS[name], formats=formats)
    a, b, _ = operands(form, op)
    run = jax.jit(form.op(op, precision=("highest", "high")))
    with jaxconv.forced(spelling):
        text = run.lower(a, b).as_text()
    products = re.findall(r"stablehlo\.(?:dot_general|convolution)\b.*", text)
    assert products
    for product in products:
        assert {"HIGHEST", "HIGH"} <= set(re.findall(r"\w+", product)), product


def test_an_unknown_spelling_lists_the_known():
    with pytest.raises(ValueError, match="must be one of reference, direct"):
        jaxconv.forced("winograd")


def test_none_is_the_rules_again():
    """Within what is forced around it, and derivatives too."""
    form = FORMS["depthwise"]
    a, b, _ = operands(form, "convolution")

    def both(a, b):
        return jax.vjp(form.op("convolution"), a, b)[1](form.op("convolution")(a, b))

    free = jax.jit(both).lower(a, b).as_text()
    with jaxconv.forced("reference"):
        assert jax.jit(both).lower(a, b).as_text() != free
        with jaxconv.forced(None):
            assert jax.jit(both).lower(a, b).as_text() == free
        assert jax.jit(both).lower(a, b).as_text() != free


@pytest.mark.parametrize("wide", [False, slow(True)])
@pytest.mark.parametrize("formats", [slow(CHANNELS_LAST), CHANNELS_FIRST])
@pytest.mark.parametrize("dtype", [jnp.bfloat16, slow(jnp.float16)])
@pytest.mark.parametrize(
    ("name", "spelling"),
    [
        ("grouped", "direct"), ("grouped", "columns"), ("grouped", "dots"), ("grouped", "taps"),
        ("grouped", "each"),
        ("dense", "products"), ("dense", "columns"), ("pointwise", "matmul"),
        ("pointwise", "planes"), ("grouped pointwise", "planes"),
        ("patches", "matmul"), ("grouped pointwise", "matmul"), ("one place", "matmul"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("op", OPS)
def test_sixteen_bits_are_rounded_once(op, name, spelling, dtype, formats, wide):
    """Integers too wide for partial sums to survive a rounding to 16 bits, in two layouts.

    Not every 16-bit dot that XLA accepts can run, and transpositions turn dots around.
    """
    form = replace(FORMS[name], formats=formats)
    if not claimed(spelling, form, op):
        pytest.skip("not for this contraction")
    a, b, _ = operands(form, op, dtype, limit=100)
    run = form.op(op, preferred_element_type=jnp.float32) if wide else form.op(op)
    with jaxconv.forced(spelling):
        got = jax.jit(run)(a, b)
    exact = getattr(oracle, op)(np.float64(a), np.float64(b), **form.op(op).keywords)
    np.testing.assert_array_equal(got, exact if wide else oracle.round_to(exact, dtype))


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float32])
@pytest.mark.parametrize("op", ["convolution", "convolution_backward_weights"])
@pytest.mark.parametrize("channels", [(3, 64), slow((64, 3)), (1, 5), slow((5, 1)), slow((1, 1))])
def test_dots_of_every_orientation_run(op, channels, dtype):
    """Wide and narrow ones, of many rows and of few, which XLA:CPU compiles differently."""
    for rows in ((2, 3), (16, 16)):
        form = Form(
            batch=2, fine=rows, kernel=(1, 1), strides=(1, 1), dilations=(1, 1),
            pads_begin=(0, 0), pads_end=(0, 0), channels=channels,
        )  # fmt: skip
        a, b, _ = operands(form, op, dtype, limit=3)
        for spelling in ("matmul", "columns", "dots"):
            with jaxconv.forced(spelling):
                got = jax.jit(form.op(op, preferred_element_type=jnp.float32))(a, b)
            exact = getattr(oracle, op)(np.float64(a), np.float64(b), **form.op(op).keywords)
            np.testing.assert_array_equal(got, exact)
