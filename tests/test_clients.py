"""Tests of other projects: what `python -m tests.clients` compares, and what its page says."""

import re
import sys
from pathlib import Path

import pytest

from benchmarks import files
from tests.clients import CLIENTS, RESULTS, Client
from tests.clients.__main__ import compare

PAGE = Path(__file__).parents[1] / "docs" / "clients.md"
TESTS = """
import atexit, os, sys, time
import pytest

told = os.environ["JAXCONV_INSTALL"]
report = "Convolutions in jit(f): 12, of 3 kinds. jaxconv\\ncomputes 9 of them: 5 %"
atexit.register(lambda: print(report, file=sys.stderr))

def test_neither():
    assert told == "never"

@pytest.mark.parametrize("x", ["a b", "PASSED"])
def test_both(x):
    print("test_of.py::test_neither PASSED")

def test_without():
    assert told == "0"

@pytest.mark.skipif(told != "0", reason="only there")
def test_skipped_with():
    pass

@pytest.mark.skip
def test_skipped():
    pass

@pytest.mark.xfail
def test_expected_to_fail():
    assert 0

class TestOf:
    def test_last(self):
        time.sleep(float(os.environ.get("SECONDS_OF_THE_LAST", "0")) * (told != "0"))
"""


@pytest.fixture
def project(tmp_path):
    """An environment, which is the environment of these tests, and a project's source."""
    (tmp_path / "bin").mkdir()
    interpreter = tmp_path / "bin" / "python"
    interpreter.write_text(f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    interpreter.chmod(0o755)
    (source := tmp_path / "source").mkdir()
    (source / "test_of.py").write_text(TESTS)
    return tmp_path, source


def test_outcomes_are_compared_test_by_test(project):
    found = compare(Client("project", "test_of.py"), *project)
    assert found == {
        "differ": "test_of.py::test_skipped_with | test_of.py::test_without", "note": "",
        "ran": "7", "without": "6", "with": "4", "convolutions": "12", "taken": "9",
    }  # fmt: skip


@pytest.mark.slow  # 18 seconds, in which even a busy machine starts
def test_tests_that_ended_are_compared_when_time_is_over(project, monkeypatch):
    monkeypatch.setenv("SECONDS_OF_THE_LAST", "100")
    found = compare(Client("project", "test_of.py", minutes=0.3), *project)
    assert (found["without"], found["with"], found["note"]) == ("5", "3", "the first 0.3 minutes")


def test_every_client_has_a_row():
    assert [row["client"] for row in files.read(RESULTS)["rows"]] == [c.name for c in CLIENTS]


@pytest.mark.parametrize("client", [c.name for c in CLIENTS])
def test_the_page_names_each_difference(client):
    [row] = [row for row in files.read(RESULTS)["rows"] if row["client"] == client]
    named = re.findall(r"`[\w:]*::(test_\w+)`", PAGE.read_text())
    differ = filter(None, row["differ"].split(" | "))
    assert [test for test in differ if not any(name in test for name in named)] == []
