"""The benchmark of inference: engines compute the same network, and a wrong one is refused."""

import numpy as np
import pytest

from benchmarks import arrays, engines, files, inference, networks, run
from benchmarks.pool import Pool
from tests.support.peers import peer
from tests.support.results import entry

JAX = ("lax", "lax+install", "jaxconv")
TORCH = ("torch", "torch+compile")


def small(net, x):
    """All that the networks are made of, on few pixels."""
    x = net.unit(x, 3, 8, 3, 2, activation="relu6")
    y = net.unit(x, 8, 8, 5, g=8, activation="silu")
    gate = net.unit(net.ops.mean(y, keep=True), 8, 8, 1, activation="sigmoid")
    y = net.unit(y * gate, 8, 8, 1, activation="relu", residual=x, gain=3.0)
    x = net.unit(net.ops.max_pool(y, 3, 2, 1), 8, 4, 2, 2, up=True)
    return net.head(net.ops.concat(x, y), 12, networks.CLASSES)


@pytest.fixture
def logits(monkeypatch):
    """The logits of a network through engines in this process, by label."""
    own = networks.Network(small, {"images": (2, 16, 16, 3)}, training=False)
    monkeypatch.setitem(networks.NETWORKS, "small", own)

    def compute(name, dtype, labels, size=16):
        drawn = networks.NETWORKS[name].operands(2, size)
        operands = [arrays.representable(x, "bf16") for x in drawn]
        job = {"kind": "inference", "network": name, "dtype": dtype}
        prepared = {label: engines.load(label).prepare(job, operands) for label in labels}
        return {label: timed[""].fetch(timed[""].call()) for label, timed in prepared.items()}

    return compute


@pytest.fixture
def judge(monkeypatch):
    """The notes about results, which a reference is held against."""

    def of(dtype, expected, results):
        monkeypatch.setattr(run, "reference", lambda *_: expected)
        return inference.judge({"dtype": dtype}, [], results, {})

    return of


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_the_engines_compute_the_same_network(logits, judge, dtype):
    [whole] = expected = logits("small", "f32", ["lax"])["lax"]
    assert whole.shape == (2, networks.CLASSES)
    spread = np.linalg.norm(whole[0] - whole[1]) / np.linalg.norm(whole)
    assert spread > 4 * inference.TOLERANCE[dtype]  # so that each image counts
    notes = judge(dtype, expected, logits("small", dtype, JAX))
    assert all(note["ok"] for note in notes.values()), notes
    assert dtype == "f32" or notes["jaxconv"]["error"] < notes["lax"]["error"]


def test_pytorch_computes_the_same_network_and_a_changed_one_is_refused(logits, judge, monkeypatch):
    peer("torch")
    from benchmarks.engines import torch as engine

    expected = logits("small", "f32", ["lax"])["lax"]
    found = {dtype: logits("small", dtype, ["torch"]) for dtype in ("f32", "bf16")}
    for dtype, results in found.items():
        assert judge(dtype, expected, results)["torch"]["ok"], dtype
    finished = engine.Ops.finished

    def changed(change):
        def other(self, x, w, b, *rest):
            *attributes, activation, residual = rest
            given = {"b": b, "activation": activation, "residual": residual}
            given |= {k: v for k, v in change.items() if given[k] is not None}
            tail = given["activation"], given["residual"]
            return finished(self, x, w, given["b"], *attributes, *tail)

        with monkeypatch.context() as patch:
            patch.setattr(engine.Ops, "finished", other)
            return logits("small", "f32", ["torch"])

    # A missing bias changes less than bfloat16 may; the program is the same in float32.
    changes = (("f32", {"b": None}), ("bf16", {"residual": None}), ("bf16", {"activation": "relu"}))
    for dtype, change in changes:
        note = judge(dtype, expected, changed(change))["torch"]
        assert not note["ok"], change
        assert "differs from lax in float32" in note["reason"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")  # PyTorch's compiler uses it
@pytest.mark.parametrize("name", [n for n, own in networks.NETWORKS.items() if not own.training])
def test_all_engines_compute_the_same_networks(logits, judge, name):
    peer("torch")
    expected = logits(name, "f32", ["lax"], 32)["lax"]
    for dtype in ("f32", "bf16"):
        engines = (
            [*JAX, *TORCH] if name == "U-Net" else [*JAX, "torch"]
        )  # to compile takes a minute
        notes = judge(dtype, expected, logits(name, dtype, engines, 32))
        assert all(note["ok"] for note in notes.values()), notes


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("ResNet-18", 11_689_512 - 4_800),
        ("MobileNetV2", 3_504_872 - 17_056),
        ("EfficientNet-B0", 5_288_548 - 21_008),
    ],
)
def test_the_networks_have_as_many_parameters_as_the_published_ones(name, count):
    """As torchvision's, less the scale of each channel's batch norm, which is folded."""
    _, *parameters = networks.NETWORKS[name].operands(1, 8)
    assert sum(x.size for x in parameters) == count


def test_rows_and_summary(monkeypatch, tmp_path, capsys):
    seconds = {"lax": 0.08, "lax+install": 0.04, "jaxconv": 0.01, "torch": 0.02}

    def measure(pool, asked, job, operands, verify, folder):
        labels = asked.engines
        assert operands[0].shape == (job["batch"], 16, 16, 3)
        slow = 2 if job["dtype"] == "bf16" else 1
        timed = {label: entry(seconds[label] * slow, error=0.5) for label in labels[:-1]}
        timed["torch"] = entry(0.02, error=0.5)
        return timed | {"torch+compile": {"status": "failed", "reason": "no compiler"}}

    monkeypatch.setattr(run, "open_pool", lambda *_: Pool())
    monkeypatch.setattr(run, "reference", lambda *_: None)
    monkeypatch.setattr(run, "measure", measure)
    out = tmp_path / "inference.csv"
    argv = ["any", "--size=16", "--batches=1,3", "--filter=U-Net|Mobile", f"--out={out}"]
    inference.main(argv)
    rows = files.read(out)["rows"]
    names = ("MobileNetV2, batch 1", "MobileNetV2, batch 3", "U-Net, batch 1", "U-Net, batch 3")
    assert [(row["layer"], row["dtype"]) for row in rows] == [
        (name, dtype) for name in names for dtype in ("f32", "bf16")
    ]
    assert {(row["class"], row["op"], row["layout"]) for row in rows} == {
        ("inference", "inference", "NXC")
    }
    assert list(rows[0]["engines"]) == [*JAX, *TORCH]
    assert rows[0]["engines"]["torch+compile"] == {"status": "failed", "reason": "no compiler"}
    lines = capsys.readouterr().out.splitlines()
    means = {line.split("|")[0].strip(): line.split()[3::7] for line in lines if " | " in line}
    assert means["f32"] == ["4", "2", "0.50", "1", "-"]
    assert means["U-Net"] == ["5.66", "2.83", "0.71", "1", "-"]
    assert lines[-1] == "torch+compile: 8 rows failed"


@pytest.mark.parametrize("label", ["torch+install", "lax+compile", "jaxconv+", "torch+"])
def test_a_word_that_an_engine_does_not_know(label):
    with pytest.raises(ValueError, match=r"unknown engine .*torch\+compile"):
        engines.load(label)
