"""compare's arithmetic and its exit code."""

import pytest

from benchmarks import compare, files
from tests.support.results import entry, results, row


@pytest.fixture
def changes(tmp_path):
    """What the rounds of some rows in one file are against those in another."""

    def make(a, b, confidence):
        for name, rounds in (("a", a), ("b", b)):
            rows = [row(x, kind=kind, jaxconv=entry(*r)) for (x, kind), r in rounds.items()]
            files.write(str(tmp_path / f"{name}.csv"), results(*rows))
        sides = (compare.read(str(tmp_path / f"{name}.csv")) for name in "ab")
        return compare.compare(*sides, confidence)

    return make


X, Y, Z = ("x", "dense 2-D"), ("y", "dense 2-D"), ("z", "grouped 2-D")


def key(name):
    return (name, "forward", "f32", "NXC", "jaxconv")


def test_ratios_are_of_medians_and_means_are_geometric(changes):
    a = {X: (1.0, 1.0, 9.0, 1.0), Y: (2.0, 2.0, 2.0), Z: (1.0, 1.0, 1.0)}
    b = {X: (2.0, 2.0, 2.0, 0.1), Y: (16.0, 16.0, 16.0), Z: (0.5, 0.5, 0.5)}
    every = changes(a, b, 0.9)
    assert [every["rows"][key(x)].ratio for x in "xyz"] == pytest.approx([2, 8, 0.5])
    assert every["classes"]["jaxconv", "dense 2-D"].ratio == pytest.approx(4)
    assert every["all"]["jaxconv", "all"].ratio == pytest.approx(2)
    assert every["rows"][key("y")].verdict(0.05) == "slower"
    assert every["rows"][key("z")].verdict(0.05) == "faster"


def test_noise_that_could_explain_a_change_is_no_verdict(changes):
    noisy = [1.0, 1.9, 1.1, 1.4, 1.2]
    a = {X: noisy, Y: (1.0, 1.01, 0.99, 1.0, 1.0)}
    b = {X: [1.2 * t for t in reversed(noisy)], Y: (1.2, 1.21, 1.19, 1.2, 1.2)}
    rows = changes(a, b, 0.99)["rows"]
    assert [rows[key(x)].verdict(0.05) for x in "xy"] == ["", "slower"]
    change = rows[key("x")]
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
def test_the_exit_code(tmp_path, capsys, after, code, told):
    still = row("y", jaxconv=entry(1.0, 1.0, 1.0))
    paths = [str(tmp_path / "a.csv"), str(tmp_path / "b.csv")]
    for path, one in zip(paths, (entry(1.0, 1.0, 1.0), after), strict=True):
        files.write(path, results(row("x", jaxconv=one), still))
    assert compare.main(["compare", "--threshold=0.2", *paths]) == code
    out = capsys.readouterr().out
    assert told in out
    assert "one run a side" in out
