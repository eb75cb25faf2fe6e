"""What compare says of a row, its means, and its exit code."""

from pathlib import Path

import pytest

from benchmarks import compare, files
from tests.support.results import entry, results, row

STEADY = (1.0, 1.01, 0.99)


@pytest.fixture
def compared(tmp_path, capsys):
    """The exit code and the words for rows, each with entries before and after."""

    def make(*rows):
        path = str(tmp_path / "run.csv")
        both = [row(name, kind=kind, old=a, new=b) for name, kind, a, b in rows]
        files.write(path, results(*both) | {"engines": {"old": None, "new": None}})
        code = compare.main(["compare", "--threshold=0.2", path, "old", "new"])
        return code, capsys.readouterr().out

    return make


@pytest.mark.parametrize(
    ("after", "code", "told"),
    [
        (entry(*STEADY), 0, "0 of 2 rows slower, 0 newly failing"),
        (entry(0.5, 0.6, 0.5), 0, "0.51  faster  x forward"),
        (entry(1.3, 1.4, 1.3), 1, "1.31  slower  x forward"),
        (entry(1.3, 1.0, 1.3), 0, "0 of 2 rows slower"),  # the fastest call is no slower
        (entry(1.25, 1.4, 1.3), 1, "about 0.1 would look slower"),  # two of 20 orders
        (entry(9.0, 9.0), 0, "1 of too few rounds to tell"),  # in one of ten orders
        ({"status": "failed", "reason": "it broke"}, 1, "failed  x forward f32 NXC: it broke"),
    ],
)
def test_the_exit_code(compared, after, code, told):
    still = ("y", "dense 2-D", entry(1.0, 1.0, 1.0), entry(1.0, 1.0, 1.0))
    found, out = compared(("x", "dense 2-D", entry(*STEADY), after), still)
    assert (found, told in out) == (code, True), out


def test_noise_that_could_explain_a_change_is_no_verdict(compared):
    code, out = compared(("x", "dense 2-D", entry(1.0, 1.9, 1.1), entry(1.3, 1.8, 2.0)))
    assert (code, "0 of 1 rows slower" in out) == (0, True), out


def test_means_are_geometric_and_of_the_fastest_calls(compared):
    once, twice, eight = entry(1.0, 9.0, 1.0), entry(2.0, 2.0, 2.0), entry(8.0, 8.0, 8.0)
    rows = [("x", "dense 2-D", once, twice), ("y", "dense 2-D", once, eight)]
    _, out = compared(*rows, ("z", "grouped 2-D", twice, once))
    lines = [line.split(maxsplit=2) for line in out.splitlines()]
    assert ["2", "4.00", "dense 2-D"] in lines
    assert ["3", "2.00", "all"] in lines


def test_an_engine_that_did_not_run_is_an_error(capsys):
    path = Path(compare.__file__).parent / "results" / "random-f32.csv"
    with pytest.raises(SystemExit):
        compare.main(["compare", str(path), "jaxconv", "jaxconv@before"])
    assert "no jaxconv@before in" in capsys.readouterr().err
