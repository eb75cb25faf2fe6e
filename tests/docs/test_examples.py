"""The examples run, at a tiny size: they train, and `install` changes times and not losses."""

import importlib
import re
import sys
from pathlib import Path

import jax
import numpy as np
import pytest

from tests.support.peers import peer
from tests.support.plugin import findable, python

FOLDER = Path(__file__).parents[2] / "examples"
TINY = {
    # name: the packages it needs, and its size
    "equinox_unet": (["equinox", "optax"], {"batch": 4, "width": 8, "enlarged": 1}),
    "flax_linen": (["flax", "optax"], {"batch": 4, "width": 16, "groups": 4, "enlarged": 1}),
    "flax_nnx": (["flax", "optax"], {"batch": 4, "widths": (8, 16), "enlarged": 1}),
    "haiku_autoencoder": (["haiku", "optax"], {"batch": 4, "widths": (4, 8), "enlarged": 1}),
    "keras_mobile": (["keras"], {"batch": 4, "widths": (8, 8), "groups": 4, "enlarged": 1}),
    "shard_map": ([], {"batch": 16, "width": 8, "enlarged": 1}),
}


@pytest.fixture
def example(monkeypatch):
    """The module of an example, as if it were run from its folder."""
    if not FOLDER.exists():
        pytest.skip("the examples are not there")
    monkeypatch.setattr(sys, "path", [str(FOLDER), *sys.path])
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    # Other libraries rely on promotion.
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        yield importlib.import_module
    for name in ("common", *TINY, "pytorch_models", "onnx_model"):
        sys.modules.pop(name, None)


@pytest.mark.filterwarnings("default")  # those of other libraries
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(n, marks=[] if n in ("flax_nnx", "shard_map") else [pytest.mark.slow])
        for n in TINY
    ],
)
def test_an_example_trains(name, example, capsys):
    packages, size = TINY[name]
    for package in ["sklearn", *packages]:
        peer(package)
    losses = example(name).main(steps=9, **size)  # the last one is of the first batch again
    assert len(capsys.readouterr().out.splitlines()) == len(losses)
    for found in losses:
        assert found[-1] < found[0]
    np.testing.assert_allclose(losses[-1], losses[0], rtol=1e-3)
    assert len(losses) == (1 if name == "shard_map" else 2)


def test_models_of_pytorch_run_with_their_weights(example):
    """Twenty layers deep, and normalised after each."""
    peer("torch")
    differences = example("pytorch_models").main(width=4, size=32, batch=2)
    assert len(differences) == 2
    assert max(differences) < 256 * np.finfo(np.float32).eps


def test_a_model_of_onnx_runs(example):
    """Sums of floats may decide how a pixel is quantised: a step is 1/32, times weights below 2."""
    peer("onnx")
    expected, difference = example("onnx_model").main(width=8, size=16)
    assert difference <= 1 / 16 < np.abs(expected).max()


@pytest.mark.slow
@pytest.mark.usefixtures("example")
@pytest.mark.filterwarnings("default")  # those of other libraries
def test_a_program_that_is_not_edited_is_faster_by_the_variable(tmp_path):
    """It takes a tenth of the time."""
    peer("keras")
    script = FOLDER / "unmodified_keras.py"
    if not script.exists():
        pytest.skip("the examples are not there")
    assert "jaxconv" not in script.read_text().split('"""')[2]
    path, found = findable(tmp_path, first=FOLDER), []
    for told in ("0", "1"):
        code = "import unmodified_keras; unmodified_keras.main(steps=4, size=32)"
        ran = python("-c", code, path=path, told=told)
        found.append([float(n) for n in re.findall(r"\d+\.\d+", ran.stdout)])
    (*losses, slower), (*losses_taken, faster) = found
    np.testing.assert_allclose(losses_taken, losses, rtol=1e-2)
    assert losses[1] < losses[0]
    assert 2 * faster < slower


def test_every_example_is_tested():
    others = {"common", "onnx_model", "pytorch_models", "unmodified_keras"}
    if FOLDER.exists():
        assert {p.stem for p in FOLDER.glob("*.py")} == {*TINY, *others}
