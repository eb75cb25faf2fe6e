"""The faults that the tests were tried with still fit the package."""

import ast
from pathlib import Path

import pytest

from tests.faults import FAULTS
from tests.faults.__main__ import known_rows

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.what)
def test_a_fault_changes_one_place_of_a_program_that_still_runs(fault):
    ast.parse(fault.applied(ROOT))


def test_no_two_faults_are_alike():
    assert len({fault.what for fault in FAULTS} & {*known_rows()}) == len(FAULTS), "--new"
    assert len({(fault.file, fault.old) for fault in FAULTS}) == len(FAULTS)
