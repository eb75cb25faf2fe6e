"""On CPU, XLA splits each loop of much work over the cores, and temporary memory is bounded.

How many tasks a loop has, a program's text says.

Work of libraries is not asked about: oneDNN's, and that of XLA's dots and convolutions.
"""

import pytest

from tests.support.cores import programs_on

#: A million elements in float32.
MUCH_BYTES = 4 << 20

#: By cores, the fewest tasks of a loop of much work. XLA gives a loop that mostly moves data the
#: square root of the cores at most, and a loop that mostly computes all of them at most.
MIN_TASKS = {2: 2, 8: 2, 64: 4}

#: Forms that compute in a loop that writes into a part of the result: to compute before was
#: slower on two cores (TUNING.md).
ONE_CORE = {("data", "by block"), ("weights", "by piece")}


@pytest.mark.parametrize(
    ("cores", "seed", "numbers"),
    [
        (64, 77, [*range(9), 82]),  # the last is so large that it is computed in blocks
        pytest.param(8, 78, range(20), marks=pytest.mark.slow),
        pytest.param(64, 78, range(20, 40), marks=pytest.mark.slow),
    ],
)
def test_loops_of_much_work_are_split(cores, seed, numbers, tmp_path):
    programs, much = programs_on(cores, tmp_path, seed, numbers), 0
    for program in programs:
        # A few times the tensors at most, whatever the sizes.
        excess = program["temporary"] - 3 * program["tensors"]
        assert excess <= 32 << 20, (program["layer"], program["op"], program["way"], excess >> 20)
        loops = [loop for loop in program["loops"] if loop["bytes"] >= MUCH_BYTES]
        much += len(loops)
        for loop in loops:
            if loop["tasks"] >= MIN_TASKS[cores]:
                continue
            # XLA never splits a loop that writes into a part of an array.
            assert "dynamic-update-slice" in loop["opcodes"], (program["layer"], loop)
            known = any(
                op == program["op"] and f"/{form}/" in loop["text"] for op, form in ONE_CORE
            )
            assert known or loop["computed"] < MUCH_BYTES, (program["layer"], loop)
    assert much > len(programs) / 3
