"""The GPU's forms computed on CPU, and its table; programs are judged in `test_compilers.py`."""

import re
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxconv
from jaxconv._base.geometry import Axis
from jaxconv._lowering import gpu
from jaxconv._lowering.plan import choose_plan
from tests.support import exact, oracle
from tests.support.classes import BF16, CLASSES, F32, F64, OPERATIONS, each_slot
from tests.support.forms import operands
from tests.support.grid import CASES
from tests.support.pretend import each_part, pretend
from tests.support.problems import axis, problem

pytestmark = pytest.mark.usefixtures("however_little")


def text(of, slot, platform):
    """What is lowered for a platform that need not be here."""
    traced = jax.jit(of.filling(slot)).trace(*of.types(slot))
    return traced.lower(lowering_platforms=(platform,)).as_text()


@each_slot
@pytest.mark.parametrize("name", ["dilated and strided", "4-D"])
def test_xla_may_fuse_what_it_likes(name, slot):
    assert "inlineable" not in text(CLASSES[name], slot, "cuda")


@each_slot
@pytest.mark.parametrize("name", ["strided", "grouped, strided", "dilated"])
def test_both_kinds_of_gpu_get_the_same(name, slot):
    assert text(CLASSES[name], slot, "rocm") == text(CLASSES[name], slot, "cuda")


LAYOUTS = [(data, weights) for data in ("NXC", "NCX") for weights in ("OIX", "XIO", "IOX", "XOI")]


@each_slot
@pytest.mark.parametrize("platform", ["cuda", "tpu"])
@pytest.mark.parametrize("formats", LAYOUTS)
def test_no_layout_needs_a_transpose(formats, platform, slot):
    """What dimension numbers can say stays unsaid in memory: one group, in any layout."""
    program = text(replace(CLASSES["strided"], formats=formats), slot, platform)
    operations = re.findall(r"(?<!\S)stablehlo\.\w+", program)
    reversed_first = ["stablehlo.reverse"] * (slot == "fine")
    assert operations == [*reversed_first, "stablehlo.convolution"]


def test_partial_sums_are_wide():
    """What is summed by several convolutions is rounded after."""
    lowered = text(replace(CLASSES["4-D"], dtype=BF16), "coarse", "cuda")
    found = [line for line in lowered.splitlines() if "stablehlo.convolution" in line]
    assert len(found) == 2
    assert all(line.endswith("xf32>") for line in found)


LINES = {
    "stride 1": problem("fine", [axis()] * 2, groups=4),
    "strided": problem("fine", [axis(28, 3, 2)] * 2, groups=4, devices=4),
    "strided, alike": problem("fine", [axis(28, 2, 2, pad=0)] * 2, groups=4),
    "strided, one tap": problem("fine", [axis(28, 1, 70)] * 2, groups=4, devices=4),
    "odd strides": problem("fine", [axis(28, 3, 300)] * 2, groups=4, devices=4),
    "4-D": problem("kernel", [axis()] * 4),
    "dot by tap": problem("coarse", [axis()] * 2, groups=4, devices=4),
    "all others": problem("coarse", [axis()] * 2, groups=4),
}


def test_lines_of_the_table():
    found = {
        name: next(line.name for line in gpu.TABLES[asked.result] if line.holds(asked))
        for name, asked in LINES.items()
    }
    assert found == {line.name: line.name for line in gpu.TABLES["fine"]}
    of_integers = replace(LINES["all others"], dtype=np.dtype(np.int8))
    assert choose_plan(of_integers, "gpu").form.name == "dot by tap"


@pytest.mark.parametrize(
    ("one", "pad", "before", "after"),
    [
        # fine, kernel, coarse, stride, dilation, pad_low
        (Axis(9, 3, 9, 1, 1, 1), 1, 0, 0), (Axis(9, 4, 9, 1, 1, 1), 2, 1, 0),
        (Axis(9, 4, 9, 1, 1, 2), 2, 0, 1), (Axis(9, 3, 9, 1, 4, 8), 8, 0, 8),
        (Axis(8, 3, 4, 2, 1, 1), 1, 0, 0),  # high 0, but 1 would do
        (Axis(8, 3, 4, 2, 1, 0), 2, 1, 0),  # high 1: a stride more at the low end
        (Axis(9, 1, 3, 4, 1, 0), 0, 0, 0), (Axis(10, 5, 6, 3, 1, 4), 7, 1, 0),
    ],
)  # fmt: skip
def test_even_padding(one, pad, before, after):
    assert gpu._EvenPadding.of(one) == (pad, before, after)


@pytest.mark.parametrize(("channels", "barriers"), [((24, 4), 0), ((4, 24), 1)])
def test_uneven_padding_copies_the_smaller_tensor(channels, barriers):
    """Of a surplus, results are cut off; or else the fine tensor is padded."""
    of = replace(CLASSES["uneven"], channels=channels)
    assert text(of, "coarse", "cuda").count("optimization_barrier") == barriers


def test_far_more_padding_is_kept_apart():
    assert "optimization_barrier" in text(CLASSES["causal"], "coarse", "cuda")


@pytest.fixture
def on_gpu(monkeypatch):
    pretend(monkeypatch, "gpu")


@each_part(24, 0)
def test_values_and_where_non_finite_ones_are_read(on_gpu, part):
    exact.check_contained([(case, F32, None) for case in CASES[part::24]])


@each_part(24, 1)
def test_values_in_16_bits_are_rounded_once(on_gpu, part):
    """Even in 4-D. (On CPU: here a 16-bit convolution is rounded once by itself.)"""
    exact.check_values([(x, BF16, None) for x in CASES[part::24] if not x.bias])


@each_slot
@pytest.mark.parametrize("wide", [False, True])
def test_values_of_each_class(on_gpu, wide, slot):
    """Against the oracle, in the class's own type; all classes of 64 bits or of fewer at once."""
    some = [layer for layer in CLASSES.values() if (layer.dtype is F64) == wide]
    ops = [layer.filling(slot) for layer in some]
    given = [operands(layer, OPERATIONS[slot], layer.dtype, limit=2)[:2] for layer in some]
    with jax.enable_x64(wide):
        found = jax.jit(lambda given: [f(*x) for f, x in zip(ops, given, strict=True)])(given)
    for layer, op, arrays, result in zip(some, ops, given, found, strict=True):
        expected = getattr(oracle, op.func.__name__)(*arrays, **op.keywords)
        assert np.asarray(result).dtype == layer.dtype
        np.testing.assert_array_equal(result, oracle.round_to(expected, layer.dtype), str(op))


def test_nothing_is_read(on_gpu):
    """A transposed convolution of which only the output padding is left."""
    src, weights = jnp.ones((2, 3, 1)), jnp.ones((4, 1, 1))
    op = partial(jaxconv.conv_transpose, pads_begin=6, output_padding=7)
    lowered = jax.jit(op).trace(src, weights).lower(lowering_platforms=("cuda",)).as_text()
    assert "convolution" not in lowered.replace("jit_convolution", "")
    assert not op(src, weights).any()
