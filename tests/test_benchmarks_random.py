"""Random layers are the same everywhere, are layers, and are many kinds of layer."""

import collections
import math

import pytest

from benchmarks import layer, problem, random_layers

FIRST_OF_SEED_0 = [
    "r0-1 up-dw 3x3 s2 8x8 c192 n32",
    "r0-2 dense 3x3x3 7x7x7 c256-120 n1",
    "r0-3 up 2x2 s2 14x14 c100-72 n8",
    "r0-4 dw 3x3 s2 40x40 c576 n1",
]
THIRD_OF_SEED_5 = 'g1mb2ic112iw512oc112ow2052kw8sw4pw0dw0n"r5-3 up 8 s4 512 c112 n2"'
MANY = [row for seed in range(5) for row in random_layers.layers(200, seed)]


def test_a_seed_draws_the_same_layers_on_every_python():
    assert [row.name for row in random_layers.layers(4, 0)] == FIRST_OF_SEED_0
    assert problem.spell(random_layers.layers(3, 5)[-1]) == THIRD_OF_SEED_5


def test_more_layers_begin_with_the_same():
    assert random_layers.layers(40, 3)[:7] == random_layers.layers(7, 3)
    assert random_layers.layers(7, 3) != random_layers.layers(7, 4)


def test_names_are_unique_and_descriptors_read_back():
    assert len({row.name for row in MANY}) == len(MANY)
    for row in MANY[::10]:
        spelled = problem.spell(row)
        assert problem.parse(spelled, row.family, row.network, row.tags) == row


def test_the_work_is_bounded():
    for row in MANY:
        depthwise = "depthwise" in layer.layer_class(row)
        assert (2e6 if depthwise else 2e7) <= row.flops <= 3e9, row
        shapes = row.shapes.values()
        assert max(4 * math.prod(shape) for shape in shapes) <= 64e6, row


def test_the_geometry_is_that_of_a_real_layer():
    for row in MANY:
        for p, end, e, s in zip(
            row.pads_begin, row.pads_end, row.extents, row.strides, strict=True
        ):
            assert 0 <= p < e, row
            assert -s < end < e, row


def test_every_kind_occurs():
    classes = collections.Counter(layer.layer_class(row) for row in MANY)
    for kind in ("dense", "depthwise"):
        for rank in (1, 2, 3):
            assert classes[f"{kind} {rank}-D"]
    for kind in ("pointwise", "grouped", "transposed dense", "transposed depthwise"):
        assert classes[f"{kind} 2-D"]
    assert {s for row in MANY for s in row.strides} >= {1, 2, 3, 4}
    assert {d for row in MANY for d in row.dilations} >= {1, 2, 4, 6, 12}
    assert {row.batch for row in MANY} == {1, 2, 4, 8, 16, 32}
    assert any(row.dst_channels == 2 * row.groups == 2 * row.src_channels for row in MANY)
    assert any(row.src_channels < 5 for row in MANY)


def test_every_padding_occurs():
    """Of kernels of three taps, strided and not."""
    found = {1: collections.Counter(), 2: collections.Counter()}
    for row in MANY:
        if (row.family, row.kernel[0], row.dilations[0]) == ("conv", 3, 1) and row.strides[0] < 3:
            found[row.strides[0]][row.pads_begin[0], row.pads_end[0]] += 1
    assert {(1, 1), (0, 0), (2, 0)} <= set(found[1])  # symmetric or SAME, valid, causal
    symmetric, same = found[2][1, 0], found[2][0, 1]
    assert symmetric > same > symmetric / 10


def test_the_weights_are_per_cent_and_are_kept():
    kinds = random_layers.kinds()
    assert sum(kind.weight for kind in kinds) == 100
    words = collections.Counter(row.name.split()[1] for row in MANY)
    for word in ("dense", "pw", "dw", "grouped"):
        expected = sum(kind.weight for kind in kinds if kind.word == word) / 100 * len(MANY)
        assert words[word] == pytest.approx(expected, abs=4 * math.sqrt(expected))
