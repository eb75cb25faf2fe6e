"""What the TPU's forms compute, on CPU, and which contractions get which form."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np
import pytest

from jaxconv._lowering import tpu
from jaxconv._lowering.plan import choose_plan
from tests.support import exact
from tests.support.grid import CASES
from tests.support.pretend import each_part, pretend
from tests.support.problems import axis, problem
from tests.support.small import SLOTS

F32, BF16 = np.float32, jnp.bfloat16


@pytest.fixture
def on_tpu(monkeypatch):
    pretend(monkeypatch, "tpu")


GROUPED = [case for case in CASES if case.attributes.get("groups", 1) > 1 and case.form.batch]


@each_part(8, 1)
def test_values_in_16_bits_are_rounded_once(on_tpu, part):
    exact.check_values([(case, BF16, None) for case in GROUPED if not case.bias][part::8])


@each_part(8, 0)
def test_values_and_that_non_finite_ones_stay_in_their_group(on_tpu, part):
    exact.check_contained([(case, F32, None) for case in GROUPED[part::8]])


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        (problem("coarse", [axis()] * 2, 32, 4, 4), ["bundle", "reference", "reference"]),
        (problem("fine", [axis()] * 2, 32, 4, 4), ["bundle", "reference", "reference"]),
        (problem("kernel", [axis()] * 2, 32, 4, 4), ["bundle", "reference"]),
        (problem("kernel", [axis()] * 2, 32, 4, 4, devices=4), ["reference"]),
        (problem("coarse", [axis()] * 2, 64, 32, 16), ["bundle", "reference", "reference"]),
        (problem("coarse", [axis(14)] * 2, 64, 32, 16), ["reference"]),
        (problem("coarse", [axis()] * 2, 3, 16, 16), ["reference"]),
        (problem("coarse", [axis()] * 2, 2, 8, 8), ["bundle", "reference", "reference"]),
        (problem("coarse", [axis()] * 2, 64, 1, 1), ["reference"]),
        (problem("fine", [axis()] * 2, 64, 1, 2), ["bundle", "reference", "reference"]),
        (problem("coarse", [axis()] * 2, 64, 1, 2), ["reference"]),
        (problem("coarse", [axis(224, 16, 16, pad=0)] * 2, fine=3), ["dot"]),
        (problem("fine", [axis(224, 16, 16, pad=0)] * 2, fine=3), ["dot"]),
        (problem("kernel", [axis(224, 16, 16, pad=0)] * 2, fine=3), ["reference"]),
        (problem("fine", [axis(224, 16, 16, pad=0)] * 2, fine=8), ["reference"]),
        (problem("coarse", [axis(8, 16, 16, pad=4)] * 2, fine=3), ["reference"]),
        (problem("fine", [axis(224, 4, 4, pad=0)] * 2, fine=3), ["dot"]),
        (problem("fine", [axis(112, 4, 4, pad=0)] * 2, fine=3), ["reference"]),
        (problem("coarse", [axis(64, 2, 2, pad=0)] * 2, fine=128), ["reference"]),
        (problem("fine", [axis(64, 2, 2, pad=0)] * 2, fine=128, batch=4), ["dot"]),
        (problem("fine", [axis(64, 2, 2, pad=0)] * 2, fine=128), ["reference"]),
        (problem("fine", [axis(64, 2, 2, pad=0)] * 2, fine=64, batch=4), ["reference"]),
        (problem("fine", [axis(56, 1, 2, pad=0)] * 2), ["dot"]),
        (problem("kernel", [axis(56, 1, 2, pad=0)] * 2), ["reference"]),
        (problem("coarse", [axis(56, 1, 2, pad=0)] * 2), ["reference"]),
        (problem("coarse", [axis(32, 1)] * 2), ["dot"]),
        (problem("coarse", [axis(28, 1)] * 2), ["reference"]),
        (problem("fine", [axis(28, 1)] * 2, batch=4), ["dot"]),
        (problem("coarse", [axis(32, 1)], batch=4), ["reference"]),
        (problem("fine", [axis(32, 1)], fine=128, batch=4), ["reference"]),
        (problem("coarse", [axis(14, 1)] * 2, batch=4), ["reference"]),
        (problem("coarse", [axis(14, 1)] * 2, batch=1), ["dot"]),
        (problem("coarse", [axis(32, 1)] * 2, batch=None), ["reference"]),
        (problem("coarse", [axis(64)] * 2, batch=4), ["dot by tap"]),
        (problem("fine", [axis(64)] * 2, batch=4), ["flip", "dot by tap"]),
        (problem("kernel", [axis(64)] * 2, batch=4), ["reference"]),
        (problem("coarse", [axis(64)] * 2, coarse=64, batch=4), ["reference"]),
        (problem("fine", [axis(64)] * 2, coarse=64, batch=4), ["flip", "dot by tap"]),
        (problem("coarse", [axis(64)] * 2, batch=8), ["reference"]),
        (problem("coarse", [axis(64)] * 2, fine=3, batch=4), ["reference"]),
        (problem("coarse", [axis(64)] * 2, batch=3), ["reference"]),
        (problem("coarse", [axis(64, 5)] * 2, batch=4), ["reference"]),
        (problem("coarse", [axis(64, dilation=2)] * 2, batch=4), ["reference"]),
        (problem("coarse", [axis(128, stride=2)] * 2, batch=4), ["reference"]),
        (problem("coarse", [axis()] * 2, batch=None), ["reference"]),
    ],
)
def test_lines_of_the_table(asked, found):
    assert [name for name, _ in choose_plan(asked, "tpu").steps()] == found
    assert choose_plan(asked, None).form.name == "reference"


def test_a_bundle_fits_the_matrix_unit():
    assert tpu.count_groups(problem("coarse", [axis()], 32, 4, 4)) == 32
    assert tpu.count_groups(problem("coarse", [axis()], 64, 8, 4)) == 16
    assert tpu.count_groups(problem("coarse", [axis()], 7, 24, 24)) == 1
    assert tpu.count_groups(problem("coarse", [axis()], 4, 256, 2)) == 1


@pytest.mark.parametrize("slot", SLOTS)
def test_a_symbolic_batch(slot):
    asked = problem(slot, [axis()] * 2, 32, 4, 4, batch=None)
    assert choose_plan(asked, "tpu").form.name == "bundle"
    assert choose_plan(replace(asked, batch=0), "tpu").form.name == "zeros"
