"""What is planned for a contraction: pure, quick, bounded, and the form that its line names."""

import random
import time
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxconv
from benchmarks import random_layers
from benchmarks.regret import walk
from jaxconv import _lowering
from jaxconv._base.geometry import Axis, KernelLayout
from jaxconv._lowering import onednn_here
from jaxconv._lowering.cpu import to_coarse
from jaxconv._lowering.forms import blocks, onednn_weights, phases
from jaxconv._lowering.normal import normalise
from jaxconv._lowering.plan import choose_plan
from tests.support import small
from tests.support.forms import each
from tests.support.problems import LINES, WITNESSES, axis, example, problem

BFLOAT16 = np.dtype(jnp.bfloat16)
DTYPES = [np.dtype(np.float32), BFLOAT16, np.dtype(np.float16), np.dtype(np.float64)]


def names(found):
    return [name for name, _ in found.steps()]


def drawn(count):
    """Small convolutions and layers of networks, of any slot and type, on any devices."""
    rng = random.Random(7)
    networks = random_layers.layers(count // 2, seed=7)
    for layer in [*networks, *small.draw(7, count // 2, ranks=(1, 2, 3, 4))]:
        sizes = layer.fine, layer.kernel, layer.coarse, layer.strides, layer.dilations
        axes = [Axis(*of_axis) for of_axis in zip(*sizes, layer.pads_begin, strict=True)]
        fine, coarse = (c // layer.groups for c in layer.channels)
        yield problem(
            rng.choice(small.SLOTS), axes, layer.groups, fine, coarse,
            batch=rng.choice((None, 0, 1, 8)), dtype=rng.choice(DTYPES),
            devices=rng.choice((1, 1, 4)), onednn=rng.choice((True, False)),
        )  # fmt: skip


@pytest.mark.parametrize("platform", ["cpu", "gpu"])
def test_every_problem_has_a_plan_that_its_form_can_follow(platform):
    for asked in drawn(1500):
        found = choose_plan(asked, platform)
        for one in walk(found):
            assert one.form.fills(one.problem), (one.form.name, one.problem)
            assert not one.isolated or not any(part.isolated for part in walk(one)[1:])
        assert len(names(found)) <= 1 + 2 * max(phases.MAX_PARTS, 256)
        hash(found)


@pytest.mark.parametrize("name", LINES)
def test_a_line_alone_decides_about_its_witness(name):
    line, witness = LINES[name], WITNESSES[name]
    chosen = choose_plan(witness, "cpu")
    assert line.holds(normalise(witness)[0]), "the condition, or the form, leaves the witness out"
    assert chosen.line == name, "an earlier line decides about the witness"
    assert chosen.form is line.form
    other = choose_plan(witness, "cpu", without=name)
    assert names(other) != names(chosen), f"{other.line} gives the witness the same form"


#: The forms of contractions, most beside one that differs in little.
FORMS = {
    "as many taps as were swept": (example("kernel", (1024, 1024), (16, 32)), "onednn-weights"),
    "more taps than were swept": (example("kernel", (1025, 1025), (16, 32)), "im2col"),
    "deep depthwise": (example("coarse", (15, 16, 17), (1, 1), groups=32), "onednn"),
    "deep depthwise, dilated": (
        example("coarse", (15, 16, 17), (1, 1), groups=32, dilation=2), "multiply-adds"),
    "a large kernel, few pixels": (example("coarse", (8, 8), (512, 256), batch=2), "im2col"),
    "a large kernel": (example("coarse", (8, 8), (512, 256), batch=3), "onednn"),
    "few pixels": (example("coarse", (8, 8), (256, 256), batch=2), "onednn"),
    "few products of planes": (
        example("coarse", (28, 28), (1, 1), 6, groups=32, first=True),
        "multiply-adds, channels first"),
    "many products of planes": (
        example("coarse", (28, 28), (1, 1), 7, groups=32, first=True), "onednn"),
    "many products of planes, no oneDNN": (
        example("coarse", (28, 28), (1, 1), 7, groups=32, first=True, onednn=False),
        "multiply-adds, channels first"),
    "many planes of a multiplier": (example("coarse", (99, 99), (1, 2), groups=99, first=True),
                                    "multiply-adds, channels first"),
    "stem": (example("coarse", (19, 19), (3, 32), stride=2, first=True, dtype="float16"), "onednn"),
    "few widened products of planes": (
        example("coarse", (28, 28), (3, 32), first=True, dtype="float16"),
        "multiply-adds, channels first"),
    "one tap, far strides": (
        example("fine", (601, 601), (4, 4), 1, groups=2, stride=300), "reference"),
    "one tap, groups of few pairs": (example("kernel", (28, 28), (2, 4), 1, groups=8), "dot"),
    "tiles": (example("kernel", (28, 28), (5, 64), 2, stride=2, pad=0), "im2col"),
    "tiles of few channels": (example("kernel", (28, 28), (4, 64), 2, stride=2, pad=0), "dot"),
    "planes": (example("kernel", (28, 28), (5, 64), 2, stride=2, pad=0, first=True), "dot"),
    # By one call for all groups, or one for each that is much work; in 16 bits one by one
    "groups": (example("kernel", (24, 24), (16, 16), groups=8), "onednn-weights"),
    "strided groups": (example("kernel", (24, 24), (16, 16), groups=8, stride=2), "onednn-weights"),
    "wide groups, strided": (
        example("kernel", (24, 24), (64, 64), groups=8, stride=2), "by group + onednn-weights"),
    "narrow groups": (
        example("kernel", (24, 24), (12, 6), groups=8), "by group + swap + onednn-weights"),
    "groups in 16 bits": (
        example("kernel", (80, 80), (16, 16), groups=8, batch=4, dtype=BFLOAT16),
        "by group + onednn-weights"),
    "no padding": (example("kernel", (9, 9), (64, 32), 5, pad=0, onednn=False), "im2col"),
    # What oneDNN cannot compute
    "float64": (example("coarse", (28, 28), (16, 17), dtype="float64"), "convolution"),
    "float64, few": (example("coarse", (28, 28), (2, 16), dtype="float64"), "im2col"),
    "a symbolic batch": (example("coarse", (28, 28), (16, 32), batch=None), "convolution"),
    "no batch": (example("coarse", (28, 28), (16, 32), batch=0), "zeros"),
}  # fmt: skip


@each("given", FORMS)
def test_forms(given):
    asked, forms = given
    assert " + ".join(names(choose_plan(asked, "cpu"))) == forms


@pytest.mark.parametrize(
    ("features", "held_to", "dtype", "form"),
    [
        (set(), "", np.float32, "dot"), ({"avx512f"}, "", np.float32, "onednn"),
        ({"avx512f"}, "AVX2", np.float32, "dot"), ({"avx512f"}, "", BFLOAT16, "onednn"),
        ({"avx512f", "amx_bf16"}, "", np.float32, "onednn"),
        ({"avx512f", "amx_bf16"}, "", BFLOAT16, "dot"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("slot", ["coarse", "fine"])
def test_one_tap_is_a_dot_unless_onednn_has_wider_vectors(
    features, held_to, dtype, form, slot, patched
):
    patched(onednn_here, "features", lambda: features)
    patched(onednn_here, "held_to", lambda: held_to)
    patched(onednn_here, "multiplies", lambda dtype: True)
    asked = example(slot, (28, 28), (32, 48), 1, dtype=dtype)
    assert names(choose_plan(asked, "cpu")) == ["flip"] * (slot == "fine") + [form]


@pytest.mark.parametrize(
    ("asked", "cut"),
    [
        (example("coarse", (112, 112), (64, 16), stride=2, first=True, batch=12), True),
        (example("coarse", (112, 112), (64, 16), stride=2, first=True, batch=10), False),
        (example("coarse", (112, 112), (64, 160), stride=2, first=True, batch=12), False),
        (example("coarse", (56, 56), (1, 1), groups=201, first=True, batch=8), True),
        (example("coarse", (56, 56), (1, 1), groups=201, first=True, batch=7), False),
        (example("coarse", (56, 56), (1, 1), groups=160, first=True, batch=8), False),
        (example("coarse", (56, 56), (1, 1), groups=201, first=True, batch=8, onednn=False), False),
        (example("coarse", (112, 112), (1, 1), stride=2, groups=96, first=True, batch=8), False),
        (example("fine", (99, 99), (64, 9), stride=2, first=True, dtype="float16", batch=32), True),
        (example("fine", (99, 99), (64, 9), stride=2, first=True, dtype=BFLOAT16, batch=32), False),
        (example("kernel", (96, 96), (1, 1), groups=128, batch=8), True),
        (example("kernel", (96, 96), (1, 1), groups=128, batch=7), False),
        (example("kernel", (96, 96), (1, 1), groups=128, batch=4, dtype=BFLOAT16), True),
        (example("kernel", (96, 96), (1, 1), groups=1024, batch=1), True),
    ],
)
def test_copies_for_which_pages_are_mapped_anew_are_made_in_blocks(asked, cut, patched):
    patched(onednn_here, "multiplies", lambda dtype: dtype != np.float16)
    assert (names(choose_plan(asked, "cpu"))[0] == "by block") == cut


@pytest.mark.parametrize("native", [True, False])
@pytest.mark.parametrize(
    ("asked", "lacked", "had"),
    [
        (("coarse", (28, 28), (32, 32)), ["in float32", "onednn"], ["onednn"]),
        (("kernel", (28, 28), (32, 32)), ["in float32", "onednn-weights"], ["onednn-weights"]),
        (("coarse", (28, 28), (8, 31)), ["onednn"], ["onednn"]),
        (("coarse", (28, 28), (3, 32)), ["multiply-adds"], ["onednn"]),
        (("coarse", (28, 28), (32, 32), 1), ["in float32", "dot"], ["dot"]),
        (("coarse", (160, 160), (32, 32)), ["onednn"], ["onednn"]),
        (("coarse", (28, 28), (1, 1), 3, 32), ["multiply-adds"], ["onednn"]),
        (("coarse", (28, 28), (1, 1), 3, 31), ["onednn"], ["onednn"]),
        (("coarse", (28, 28), (1, 1), 5, 280), ["multiply-adds"], ["onednn"]),
        (("coarse", (28, 28), (1, 1), 5, 281), ["onednn"], ["onednn"]),
    ],
)
def test_what_the_processor_lacks_is_computed_in_float32(asked, lacked, had, native, patched):
    """Dense contractions of not too much data; few products of many groups widen as they go."""
    patched(onednn_here, "multiplies", lambda dtype: native or dtype == np.float32)
    patched(onednn_here, "has_avx512", lambda: False)
    patched(onednn_here, "has_amx", lambda: False)
    *sizes, groups = asked if len(asked) == 5 else (*asked, 1)
    found = choose_plan(example(*sizes, groups=groups, dtype=BFLOAT16), "cpu")
    assert names(found) == (had if native else lacked)


@pytest.mark.parametrize(("amx", "form"), [(False, "onednn-weights"), (True, "im2col")])
def test_weights_gradients_in_16_bits_are_left_to_amx(amx, form, patched):
    patched(onednn_here, "has_amx", lambda: amx)
    patched(onednn_here, "multiplies", lambda dtype: True)
    asked = example("kernel", (28, 28), (32, 32), dtype=BFLOAT16)
    assert names(choose_plan(asked, "cpu")) == [form]


def test_groups_of_one_result_are_no_weights_gradient_by_onednn():
    asked = (example("kernel", (24, 24), (16, results), groups=8) for results in (1, 2))
    assert [*map(onednn_weights.FORM.fills, asked)] == [False, True]


@pytest.mark.parametrize(
    ("sizes", "form"),
    [
        ({"channels": (1, 1), "groups": 64}, "spread"),
        ({"channels": (4, 4), "groups": 16}, "spread"),
        ({"channels": (4, 4), "groups": 16, "kernel": 6}, "phases"),
        ({"channels": (1, 1), "groups": 64, "stride": 5}, "phases"),
        ({"channels": (1, 1), "groups": 64, "dtype": BFLOAT16}, "phases"),
        ({"channels": (16, 32)}, "phases"),
    ],
)
def test_strides_of_planes_are_spread(sizes, form):
    """Few products by zero cost less than to transpose data, in 32 bits."""
    asked = partial(example, "fine", (56, 56), **{"stride": 2} | sizes)
    for onednn in (True, False):
        found = names(choose_plan(asked(onednn=onednn, first=True), "cpu"))
        assert found[0] == form
        assert found[1:] == ["multiply-adds, channels first"] or form != "spread"
    assert names(choose_plan(asked(onednn=False), "cpu"))[0] != "spread"


@pytest.mark.parametrize(
    ("sizes", "form"),
    [
        ({"fine": 64}, "multiply-adds, channels first"),
        ({"fine": 65}, "by block"),
        ({"fine": 65, "stride": 2}, "multiply-adds, channels first"),
        ({"fine": 65, "stride": 2, "kernel": 5}, "by block"),
        ({"fine": 64, "stride": 2, "kernel": 7}, "multiply-adds, channels first"),
        ({"fine": 64, "kernel": 9}, "slide"),
        ({"fine": 28, "stride": 2}, "multiply-adds"),
    ],
)
def test_rows_of_planes_are_vectors(sizes, form):
    """Planes that are a multiple of 2 KiB apart are slow to transpose, and strides halve rows."""
    asked = partial(problem, "kernel", [axis(**sizes)] * 2, 128, 1, 1, 4)
    assert names(choose_plan(asked(onednn=True, first=True), "cpu"))[0] == form
    assert "channels first" not in names(choose_plan(asked(), "cpu"))[0]


@pytest.mark.parametrize(
    ("release", "slices"),
    [("0.10.2", False), ("0.11.0", False)]
    + [(new, True) for new in ("0.11.2", "0.12.0.1", "0.12.1rc1", "0.13.0.dev20270101", "1.0")],
)
def test_what_each_release_of_jaxlib_is_fast_at(release, slices, monkeypatch):
    monkeypatch.setattr(blocks, "version", {"jaxlib": release}.get)
    assert blocks.has_release.__wrapped__(*blocks.FIRST_SLICING_RELEASE) == slices


def test_weights_gradients_read_few_images_rather_than_rows_twice():
    choose = onednn_weights._choose_block
    assert choose(example("kernel", (13, 13), (1024, 48), batch=32), 1024)[1:3] == (4, 13)
    assert choose(example("kernel", (56, 56), (400, 16), batch=1), 1024)[:2] == (8, 8)  # bands


@pytest.mark.parametrize("steady", [True, False])
def test_stems_are_windows_where_xla_is_erratic(steady, monkeypatch):
    monkeypatch.setattr(to_coarse, "has_release", lambda *least: steady and least == (0, 12))
    assert to_coarse._makes_many_of_few(example("coarse", (56, 56), (3, 64))) != steady


@pytest.mark.parametrize("slices", [True, False])
def test_loops_slice_16_bits_as_numbers_where_xla_does(slices, monkeypatch):
    monkeypatch.setattr(blocks, "has_release", lambda *_: slices)
    x = jax.ShapeDtypeStruct((5, 6, 8), BFLOAT16)

    def block(x):
        return blocks.loop_over_groups(2, lambda one, other: one, x, x, 4)

    def first_images(x):
        return blocks.slice_along(x, 1, 2, 0)

    for read in (block, first_images):
        text = jax.jit(read).lower(x).as_text()
        assert ("xui16>" in text) == (not slices)
        assert "dynamic_slice" in text


@pytest.mark.parametrize(
    ("spec", "strided", "plain"),  # of the kernel: coarse, fine, then spatial axes
    [((0, 1, 2, 3), True, True), ((2, 3, 0, 1), True, False), ((1, 0, 2, 3), False, False)],
)
def test_few_pixels_are_a_dot_where_the_kernel_need_not_move(spec, strided, plain):
    for stride, expected in ((2, strided), (1, plain)):
        asked = problem("fine", [axis(8, 4, stride, pad=1)] * 2, 1, 64, 256, batch=1)
        layout = KernelLayout(*spec[:2], spec[2:])
        asked = replace(asked, geometry=replace(asked.geometry, kernel=layout))
        assert (names(choose_plan(asked, "cpu")) == ["col2im"]) == expected


def test_strides_are_few_contractions_however_large():
    for stride in (2, 3, 8, 100):
        dense = choose_plan(problem("fine", [axis(200, 2 * stride, stride)] * 2, batch=64), "cpu")
        assert (names(dense)[0], len(dense.parts)) == ("phases", 1)
        odd = choose_plan(problem("fine", [axis(200, stride + 1, stride)] * 2, batch=64), "cpu")
        assert len(odd.parts) == 4
    assert len(choose_plan(problem("fine", [axis(56, 3, 2)] * 2, 32, 1, 1), "cpu").parts) == 4


def test_a_program_split_over_devices_gets_forms_without_loops():
    for asked in drawn(600):
        if asked.devices > 1:
            for one in walk(choose_plan(replace(asked, onednn=False), "cpu")):
                assert not one.form.gathers, (one.form.name, one.problem)


@pytest.mark.parametrize("stride", [2**20, 2**31 - 1])
def test_huge_strides_are_planned_at_once(stride):
    """A loop over residues of a stride would take minutes, here of processor time."""
    start = time.process_time()
    far = Axis(5, 3, 2, stride, stride - 1, 2)
    assert names(choose_plan(problem("fine", [far, far]), "cpu"))
    assert time.process_time() - start < 1


def test_forced_takes_the_first_place_that_it_can():
    strided = problem("fine", [axis(56, 3, 2)] * 2)
    assert names(choose_plan(strided, "cpu", "im2col")) == ["phases", *["im2col"] * 4]
    with pytest.raises(ValueError, match=r"must be one that can compute to .*; got 'by group'"):
        _lowering.choose_plan(strided, "cpu", "by group")
    many = problem("coarse", [axis()] * 2, 4, 1, 9, onednn=True)
    assert names(_lowering.choose_plan(many, "cpu"))[0] != "repeat"  # a table leaves it to others
    assert names(_lowering.choose_plan(many, "cpu", "repeat")) == ["repeat", "onednn"]
    with pytest.raises(ValueError, match=r"must be one that can compute to .*; got 'onednn'"):
        _lowering.choose_plan(replace(many, onednn=False), "cpu", "onednn")
    assert _lowering.choose_plan(strided, "gpu", "im2col") == _lowering.choose_plan(strided, "gpu")
    with pytest.raises(ValueError, match=r"`form` must be one of 'portable', .*'onednn', "):
        jaxconv.forced("fast")
