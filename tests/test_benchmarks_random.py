"""Random layers are the same everywhere, are layers, and are many kinds of layer."""

from benchmarks import problem, random_layers

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
