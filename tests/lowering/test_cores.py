"""On CPU, XLA splits each loop of much work over the cores: how many tasks a program's text says.

Work of libraries is not asked about: oneDNN's, and that of XLA's dots and convolutions.
"""

import pytest

from tests.support.cores import loops_on

#: A million elements in float32.
MUCH_BYTES = 4 << 20

#: By cores, the fewest tasks of a loop of much work. XLA gives a loop that mostly moves data the
#: square root of the cores at most, and a loop that mostly computes all of them at most.
MIN_TASKS = {2: 2, 8: 2, 64: 4}

#: Forms that compute in a loop that writes into a part of the result: to compute before was
#: slower on two cores (TUNING.md).
ONE_CORE = {("data", "by block"), ("weights", "by piece")}


def demand_tasks(loops, cores):
    much = [loop for loop in loops if loop["bytes"] >= MUCH_BYTES]
    few = [loop for loop in much if loop["tasks"] < MIN_TASKS[cores]]
    assert len(much) > len({loop["layer"] for loop in loops})
    for loop in few:  # XLA never splits a loop that writes into a part of an array
        assert "dynamic-update-slice" in loop["opcodes"], loop
        known = any(op == loop["op"] and f"/{form}/" in loop["text"] for op, form in ONE_CORE)
        assert known or loop["computed"] < MUCH_BYTES, loop


def test_loops_of_much_work_are_split_over_64_cores(tmp_path):
    """Layer 82 is so large that it is computed in blocks."""
    demand_tasks(loops_on(64, tmp_path, 77, [*range(9), 82]), 64)


@pytest.mark.slow
@pytest.mark.parametrize("cores", [8, 64])
def test_loops_of_many_layers_are_split(cores, tmp_path):
    demand_tasks(loops_on(cores, tmp_path, 78, range(24)), cores)
