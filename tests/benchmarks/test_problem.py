"""Problem descriptors mean what oneDNN's lists mean, and bad ones say where."""

import math

import pytest

from benchmarks import problem, random_layers, table
from tests.support.plugin import prints


def test_every_key_of_every_axis():
    layer = problem.parse(
        "g2mb3_ic4id5ih6iw7_oc8od2oh3ow1_kd2kh3kw4_sd3sh2sw5_pd1ph0pw2_dd1dh0dw2n"
    )
    assert (layer.groups, layer.batch) == (2, 3)
    assert layer.ends == (((5, 6, 7), 4), ((2, 3, 1), 8))
    assert (layer.kernel, layer.strides) == ((2, 3, 4), (3, 2, 5))
    assert (layer.pads_begin, layer.dilations) == ((1, 0, 2), (2, 1, 3))
    assert layer.pads_end == (0, 1, 1)


@pytest.mark.parametrize("layer", table.layers(), ids=lambda layer: layer.name)
def test_spelling_and_parsing_are_inverse(layer):
    assert problem.parse(problem.spell(layer), layer.family, layer.network, layer.tags) == layer


@pytest.mark.parametrize(
    ("text", "at", "why"),
    [
        ("mb8xc64ih56oc64kh3", 3, "expected"), ("mb8ic64ih56oc64khx", 17, "needs a number"),
        ("mb8ic64ih-5oc64kh3", 9, "at least 1"), ("ic64ih56oc64kh3ph-1", 17, "at least 0"),
        ("ic64ih56kh3", 11, "`oc` is missing"), ("ic64oc64", 8, "no spatial axis"),
        ("g3ic64ih56oc66kh3", 0, "divide ic64"), ("ic64ih2oc64kh3", 11, "no `oh`"),
    ],
)  # fmt: skip
def test_a_bad_descriptor_is_pointed_at(text, at, why):
    with pytest.raises(problem.ProblemError, match=why) as caught:
        problem.parse(text)
    assert caught.value.at == at
    *_, shown, caret = str(caught.value).splitlines()
    assert shown.strip() == text
    assert caret.index("^") - shown.index(text) == at


def test_layers_do_without_jax():
    """Workers of other engines do not load it, and `--path` is another version."""
    loaded = "import sys, benchmarks.problem; print(*{'jax', 'jaxconv'} & {*sys.modules})"
    assert prints(loaded)[0].strip() == ""


def test_a_seed_draws_the_same_layers_on_every_python():
    assert [row.name for row in random_layers.layers(4, 0)] == [
        "r0-1 up-dw 3x3 s2 8x8 c192 n32", "r0-2 dense 3x3x3 7x7x7 c256-120 n1",
        "r0-3 up 2x2 s2 14x14 c100-72 n8", "r0-4 dw 3x3 s2 40x40 c576 n1",
    ]  # fmt: skip
    rows = random_layers.layers(40, 5)
    descriptor = 'g1mb2ic112iw512oc112ow2052kw8sw4pw0dw0n"r5-3 up 8 s4 512 c112 n2"'
    assert problem.spell(rows[2]) == descriptor
    assert rows[:3] == random_layers.layers(3, 5)
    for row in rows:
        spelled = problem.spell(row)
        assert problem.parse(spelled, row.family, row.network, row.tags) == row


def test_ensembles_have_members_from_tiny_to_large():
    rows = random_layers.ensembles(40, 5)
    assert rows[:3] == random_layers.ensembles(3, 5)
    assert {row.members for row in rows} == set(random_layers.MEMBERS)
    flops = [row.flops for row in rows]
    assert min(flops) < 1e6 < 3e7 < max(flops) <= 1e8
    [row] = random_layers.ensembles(1, 5)
    count = row.members * sum(map(math.prod, row.op_shapes("data")[:2]))
    assert problem.operand_count(problem.cell(row), "data") == count
