"""Regret: the plans that are timed, and what the figures say of their times."""

import pytest

from benchmarks import files, regret
from tests.support.problems import example

FIELDS = ("layer", "line", "contender", "ms")


def rows(*cells):
    """Rows of the CSV; what is not told is the same in all."""
    return [dict.fromkeys(regret.COLUMNS, "any") | dict(zip(FIELDS, c, strict=True)) for c in cells]


@pytest.mark.parametrize(
    ("choice", "line"),
    [("mb2ic8ih9oc8kh1", "coarse: one-dot"), ("mb2ic16ih20oc16kh3ph1", "coarse: onednn")],
)
def test_a_row_has_the_forms_and_the_plans_without_a_line(choice, line, tmp_path, capsys):
    out = tmp_path / "regret.csv"
    flags = [f'--problem={choice}n"one"', "--ops=forward", f"--out={out}"]
    regret.main(["regret", *flags])
    told = files.read(out)
    assert told["schema"] == regret.SCHEMA
    assert "jax" in told["engines"]["jaxconv"]
    ms = {row["contender"]: row["ms"] for row in told["rows"]}
    assert [*ms][:2] == ["chosen", f"without {line}"]
    assert {"reference", "convolution", "im2col"} <= set(ms)
    assert {row["line"] for row in told["rows"]} == {line}
    forms = {row["contender"]: row["form"] for row in told["rows"]}
    assert forms[f"without {line}"] != forms["chosen"]
    assert ms[forms["chosen"]] == ms["chosen"]  # one program
    assert f"\n{line:32}    1  " in capsys.readouterr().out


def test_what_nothing_else_computes_has_no_plan_without_its_line():
    found = regret.plans(example("coarse", (28, 28), (16, 32), dtype="float64"))
    assert found["chosen"].line == "coarse: all-others"
    assert not any(name.startswith("without") for name in found)


def test_the_summary_is_by_class_and_line_and_of_each_line():
    found = rows(
        ("x", "a", "chosen", "3"), ("x", "a", "f", "2"),
        ("x", "a", "without a", "6"), ("x", "a", "without b", ""),
        ("y", "a", "chosen", "1"), ("y", "a", "without a", "2"),
        ("z", "b", "chosen", "1"), ("z", "b", "without b", "0.5"),
    )  # fmt: skip
    assert regret.worth(found) == {"a": [2.0, 2.0], "b": [0.5]}
    lines = [" ".join(line.split()) for line in regret.summary(found).splitlines()]
    assert lines[1:5] == ["all 3 1.44 67% 33%", "a 2 1.22 50% 0%", "b 1 2.00 100% 100%", ""]
    assert lines[-2:] == ["a 2 2.00 2.00, 2.00", "b 1 0.50 0.50"]
