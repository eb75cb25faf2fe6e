"""The figures of `benchmarks.install` are of steps that agree."""

import numpy as np
import pytest

from benchmarks import install


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
    found = install.measure(name, rounds=1)
    assert list(found) == ["lax_ms", "ms", "lax_compile_s", "compile_s"]
    assert all(value > 0 for value in found.values())


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
