"""The figures of `benchmarks.install` are of steps that agree."""

import sys

import numpy as np
import pytest

import jaxconv
from benchmarks import figures, files, install
from tests.support.results import entry


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=[] if n in ("16 groups", "MobileNet-like") else [pytest.mark.slow])
        for n in install.MODELS
    ],
)
def test_a_model_is_measured(name, monkeypatch):
    network, (_, *rest) = install.MODELS[name]
    monkeypatch.setitem(install.MODELS, name, (network, (1, 16, 16, rest[-1])))
    found = install.measure(name, rounds=2)
    assert list(found) == ["lax", "lax+install"]
    for times in found.values():
        assert times["status"] == "ok"
        assert len(times["rounds_s"]) == 2
        assert 0 < times["min_s"] == min(times["rounds_s"])
        assert times["compile_s"] > 0


def test_what_is_measured_is_written(monkeypatch, tmp_path, capsys):
    """The table that is printed is that of the file."""
    lax, own = entry(0.3, 0.2, 0.4), entry(0.02, 0.05, 0.04)
    found = {"lax": lax | {"compile_s": 2.0}, "lax+install": own | {"compile_s": 3.0}}
    monkeypatch.setattr(install, "measure", lambda name, rounds: found)
    path = tmp_path / "steps.csv"
    monkeypatch.setattr(sys, "argv", ["install", "--out", str(path)])
    install.main()
    results = files.read(path)
    assert [row["layer"] for row in results["rows"]] == list(install.MODELS)
    assert results["machine"]["cores"] >= 1
    assert results["engines"]["lax+install"] == {
        **results["engines"]["lax"],
        "jaxconv": jaxconv.__version__,
    }
    assert capsys.readouterr().out.splitlines() == figures.steps([results], [])
    assert figures.steps([results], [])[2] == "| dense CNN | 200 | 20 | 10 | 2.0 | 3.0 |"


def test_a_step_that_differs_is_not_measured(monkeypatch):
    """Each compiled program is of another network."""
    calls = []

    def step(network):
        calls.append(network)
        return lambda arrays, x: (x.sum() + len(calls), arrays)

    monkeypatch.setattr(install, "step", step)
    with pytest.raises(AssertionError):
        install.measure("16 groups", rounds=1)
    assert np.shape(calls) == (2,)
