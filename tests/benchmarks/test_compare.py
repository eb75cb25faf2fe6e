"""compare's arithmetic and its exit code."""

import subprocess
import sys

import pytest

from benchmarks import compare, files
from benchmarks.pool import ROOT
from tests.support.results import entry, results, row


@pytest.fixture
def sides(tmp_path):
    """Two sides read from files of the given rows."""

    def make(a, b):
        for name, rows in (("a", a), ("b", b)):
            files.write(str(tmp_path / f"{name}.csv"), results(*rows))
        return compare.read(str(tmp_path / "a.csv")), compare.read(str(tmp_path / "b.csv"))

    return make


def test_ratios_are_of_medians_and_means_are_geometric(sides):
    a, b = sides(
        [
            row("x", jaxconv=entry(1.0, 1.0, 9.0, 1.0)),
            row("y", jaxconv=entry(2.0, 2.0, 2.0)),
            row("z", kind="grouped 2-D", jaxconv=entry(1.0, 1.0, 1.0)),
        ],
        [
            row("x", jaxconv=entry(2.0, 2.0, 2.0, 0.1)),
            row("y", jaxconv=entry(16.0, 16.0, 16.0)),
            row("z", kind="grouped 2-D", jaxconv=entry(0.5, 0.5, 0.5)),
        ],
    )
    found = compare.compare(a, b, 0.9)
    ratios = {key[0]: change.ratio for key, change in found["rows"].items()}
    assert ratios == pytest.approx({"x": 2, "y": 8, "z": 0.5})
    assert found["classes"]["jaxconv", "dense 2-D"].ratio == pytest.approx(4)
    assert found["all"]["jaxconv", "all"].ratio == pytest.approx(2)
    assert found["rows"]["y", "forward", "f32", "NXC", "jaxconv"].verdict(0.05) == "slower"
    assert found["rows"]["z", "forward", "f32", "NXC", "jaxconv"].verdict(0.05) == "faster"


def test_noise_that_could_explain_a_change_is_no_verdict(sides):
    noisy = [1.0, 1.9, 1.1, 1.4, 1.2]
    a, b = sides(
        [row("x", jaxconv=entry(*noisy)), row("y", jaxconv=entry(1.0, 1.01, 0.99, 1.0, 1.0))],
        [
            row("x", jaxconv=entry(*(1.2 * t for t in reversed(noisy)))),
            row("y", jaxconv=entry(1.2, 1.21, 1.19, 1.2, 1.2)),
        ],
    )
    found = compare.compare(a, b, 0.99)["rows"]
    verdicts = {key[0]: change.verdict(0.05) for key, change in found.items()}
    assert verdicts == {"x": "", "y": "slower"}
    change = found["x", "forward", "f32", "NXC", "jaxconv"]
    assert change.low < 1 < change.ratio < change.high


def test_runs_are_drawn_as_wholes():
    key = ("x", "forward", "f32", "NXC", "e")
    steady = [[1.0] * 3, [1.0] * 3, [1.0] * 3]
    drifting = [[1.0] * 3, [1.5] * 3, [1.1] * 3]  # no noise within a run, much between them
    a, b = (
        compare.Side({key: runs}, {key: "c"}, set(), s)
        for runs, s in ((steady, "a"), (drifting, "b"))
    )
    change = compare.compare(a, b, 0.95)["rows"][key]
    assert change.low == pytest.approx(1.0)
    assert change.high > 1.3


def test_two_engines_of_one_run_share_their_noise(tmp_path):
    path = tmp_path / "run.csv"
    slow_rounds = [1.0, 3.0, 1.5, 2.0]
    both = {"new": entry(*slow_rounds), "old": entry(*(1.1 * t for t in slow_rounds))}
    run = results(row("x", **both))
    files.write(str(path), run | {"engines": dict.fromkeys(both)})
    a, b = (compare.read(f"{path}@{engine}") for engine in ("new", "old"))
    (change,) = compare.compare(a, b, 0.99)["rows"].values()
    assert (change.low, change.ratio, change.high) == pytest.approx((1.1, 1.1, 1.1))


@pytest.mark.parametrize(
    ("after", "code", "told"),
    [
        (entry(1.0, 1.01, 0.99), 0, "0 rows and 0 means slower"),
        (entry(0.5, 0.5, 0.5), 0, "faster  x forward"),
        (entry(1.3, 1.3, 1.3), 1, "slower  x forward"),
        (entry(1.3, 1.3, 1.3), 1, "1 rows and 0 means slower"),
        (entry(9.0, 9.0), 1, "x forward f32 NXC jaxconv has too few rounds: 3 and 2"),
        ({"status": "failed", "reason": "it broke"}, 1, "x forward f32 NXC jaxconv fails"),
    ],
)
def test_the_exit_code(tmp_path, after, code, told):
    still = row("y", jaxconv=entry(1.0, 1.0, 1.0))
    for name, one in (("a", entry(1.0, 1.0, 1.0)), ("b", after)):
        files.write(str(tmp_path / f"{name}.csv"), results(row("x", jaxconv=one), still))
    command = [sys.executable, "-m", "benchmarks.compare", "--threshold=0.2"]
    done = subprocess.run(
        [*command, str(tmp_path / "a.csv"), str(tmp_path / "b.csv")],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert told in done.stdout
    assert "one run a side" in done.stdout
