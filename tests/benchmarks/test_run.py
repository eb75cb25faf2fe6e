"""Engines in processes of their own: failures stay in their row, turns are taken, all idle."""

import json
import stat
import sys
import textwrap
from contextlib import ExitStack

import jax
import numpy as np
import pytest

import jaxconv
from benchmarks import arrays, engines, files, flags, layers, networks, run, train_step
from benchmarks.engines import _xla
from benchmarks.pool import Pool
from tests.support.plugin import python

# Speaks a worker's protocol without being one; argv[-1] is the engine's label.
FAKE = """
    #!{python}
    import json, os, pathlib, sys, time
    label = sys.argv[-1]
    if label == "nostart":
        sys.exit("cannot start")
    for line in sys.stdin:
        request = json.loads(line)
        reply = {{}}
        if request["do"] == "hello":
            reply = {{"versions": {{"platform": "cpu", "pid": os.getpid()}}}}
            if label == "missing":
                reply = {{"error": "no such module", "status": "missing"}}
        elif request["do"] == "prepare":
            if label == "dies":
                os._exit(3)
            if label == "sleeps":
                time.sleep(60)
            if label == "raises":
                reply = {{"error": "ValueError: no", "status": "failed"}}
            elif label == "cannot":
                reply = {{"error": "no groups", "status": "unsupported"}}
            else:
                folder = pathlib.Path(request["folder"])
                data = (folder / "operands.npz").read_bytes()
                variants = ("fast", "slow") if label == "two" else ("",)
                for v in variants:
                    (folder / (label + v)).write_bytes(data)
                reply = {{"variants": {{v: {{"facts": {{"compile_s": 1.0}},
                    "results": str(folder / (label + v))}} for v in variants}}}}
        elif request["do"] == "burst":
            with open(os.environ["FAKE_LOG"], "a") as log:
                log.write(label + "/" + request["variant"] + " ")
            if label == "dies in a burst":
                os._exit(4)
            seconds = {{"fast": 0.001, "slow": 0.002}}.get(request["variant"], 0.004)
            reply = {{"min": seconds / 2, "median": seconds}}
        print(json.dumps(reply), flush=True)
"""


@pytest.fixture
def measure(tmp_path):
    """Measure an array with fake engines; gives the rows, the order of turns and the pool."""
    script = tmp_path / "fake"
    script.write_text(textwrap.dedent(FAKE.format(python=sys.executable)).lstrip())
    script.chmod(script.stat().st_mode | stat.S_IXUSR)
    log = tmp_path / "log"
    log.touch()

    def everything_is_right(results):
        return {key: {"ok": True, "error": 0.25} for key in results}

    with ExitStack() as stack:

        def measured(labels, *argv, verify=everything_is_right):
            pool = Pool(dict.fromkeys(labels, str(script)), {}, {"FAKE_LOG": str(log)})
            stack.enter_context(pool)
            asked = flags.parse(flags.measuring("any", "any"), ["any", *argv])
            asked.engines = labels
            job, operands = {"kind": "layer"}, [np.arange(5.0)]
            rows = run.measure(pool, asked, job, operands, verify, tmp_path)
            return rows, log.read_text().split(), pool

        yield measured


def test_a_failing_engine_is_reported_in_its_row(measure):
    labels = ["good", "dies", "missing", "raises", "cannot", "nostart", "sleeps"]
    rows, _, pool = measure(labels, "--repeats=2", "--cap=1")
    assert {label: row["status"] for label, row in rows.items()} == {
        "good": "ok", "dies": "failed", "missing": "missing", "raises": "failed",
        "cannot": "unsupported", "nostart": "failed", "sleeps": "capped",
    }  # fmt: skip
    assert "exit code 3" in rows["dies"]["reason"]
    assert "cannot start" in rows["nostart"]["reason"]
    assert rows["raises"]["reason"] == "ValueError: no"
    before = pool.versions["dies"]["pid"]
    assert pool.ask("dies", {"do": "burst", "variant": "", "seconds": 0}, 5)["min"] == 0.002
    assert pool.versions["dies"]["pid"] != before  # restarted


def test_engines_take_turns_and_each_round_starts_with_the_next(measure):
    rows, turns, _ = measure(["a", "b", "c"], "--repeats=3")
    assert turns == ["a/", "b/", "c/", "b/", "c/", "a/", "c/", "a/", "b/"]
    assert rows["a"]["rounds_ms"] == [4.0] * 3
    assert (rows["a"]["min_ms"], rows["a"]["spread"]) == (2.0, 0)
    assert (rows["a"]["error"], rows["a"]["compile_s"]) == (0.25, 1.0)


def test_an_engine_whose_turns_take_long_sits_out_the_rest(measure):
    rows, turns, _ = measure(["a", "b"], "--repeats=3", "--turns=0")
    assert turns == ["a/", "b/"]
    assert rows["a"]["min_ms"] == 2.0


def test_the_faster_variant_is_the_engines_time(measure):
    rows, *_ = measure(["two"], "--repeats=2")
    assert rows["two"]["variant"] == "fast"
    assert rows["two"]["variants"] == {"fast": 0.5, "slow": 1.0}  # the least
    assert rows["two"]["median_ms"] == 1.0


def test_a_wrong_result_is_not_timed(measure):
    def verify(results):
        for (result,) in results.values():
            np.testing.assert_array_equal(result, np.arange(5.0))
        return {key: {"ok": key == "good/", "error": 7.0, "reason": "differs"} for key in results}

    rows, turns, _ = measure(["good", "bad"], "--repeats=1", verify=verify)
    assert rows["bad"] == {"status": "wrong", "error": 7.0, "reason": "differs"}
    assert turns == ["good/"]


def test_a_run_from_the_command_line(tmp_path):
    """Of two engines, with another absent and one without its form."""
    out = tmp_path / "results.csv"
    flags = ["--preset", "tiny", "--repeats", "3", "--filter", "dcgan-image", "--out", out]
    flags += ["--engines", "jaxconv,lax,lax@gone,jaxconv:no-such", "--burst", "0.002"]
    done = python("-m", "benchmarks.layers", *flags, "--python", "lax@gone=/nowhere/python")
    assert done.returncode == 0, done.stderr
    assert "[3/3] dcgan-image weights f32 NXC: jaxconv " in done.stdout
    assert "lax@gone: missing" in done.stderr
    found = files.read(out)
    assert found["machine"]["cores"] >= 1
    assert found["engines"]["lax"]["jax"]
    assert found["engines"]["lax@gone"] is None
    assert [row["op"] for row in found["rows"]] == ["forward", "data", "weights"]
    for row in found["rows"]:
        assert row["engines"]["lax@gone"]["status"] == "missing"
        assert row["engines"]["jaxconv:no-such"]["status"] != "ok"
        for label in ("jaxconv", "lax"):
            entry = row["engines"][label]
            assert entry["status"] == "ok", entry
            assert 0 < entry["min_ms"] <= entry["median_ms"]
            assert len(entry["rounds_ms"]) == 3
            assert entry["compile_s"] > 0
            assert entry["temp_bytes"] >= 0
            assert 0 <= entry["error"] < 1e-5


def steps(name, labels):
    """The first step of a network, at batch 2, through engines in this process."""
    operands = networks.NETWORKS[name].operands(batch=2)
    job = {"kind": "step", "network": name, "dtype": "f32"}
    results = {}
    for label in labels:
        for variant, timed in engines.load(label).prepare(job, operands).items():
            results[f"{label}/{variant}"] = timed.fetch(timed.call())
    return operands, results


def test_an_engine_is_compiled_where_the_library_is_installed(monkeypatch):
    [job] = layers.jobs(flags.parse(layers.command(), ["x", "--filter=dcgan-image", "--ops=data"]))
    operands = arrays.operands(job["layer"], "data", "f32")
    plain, installed = (engines.load(label) for label in ("lax", "lax+install@any"))
    monkeypatch.setattr(_xla, "compiled", lambda f, xs, _: jax.jit(f).lower(*xs).as_text())

    def program(engine):
        return engine.prepare(job, operands)[""]

    text = program(plain)
    assert program(installed) != text
    with jaxconv.installed():
        assert program(plain) == program(installed)
    assert program(plain) == text
    assert installed.versions() == plain.versions() | {"jaxconv": jaxconv.__version__}


@pytest.mark.slow
@pytest.mark.parametrize("name", ["16-groups", "convnext", "dcgan-generator", "mnist", "unet3d"])
def test_a_training_step_is_the_same_in_every_engine(name):
    """Grouped, depthwise, transposed, in 3-D; each run of the benchmark judges its own network."""
    pytest.importorskip("torch")
    operands, results = steps(name, ["jaxconv", "lax", "lax+install", "torch"])
    job = {"kind": "step", "network": name, "dtype": "f32"}
    notes = train_step.judge(job, operands, results, dict.fromkeys(results, "cpu"))
    assert len(notes) == 5
    assert all(note["ok"] for note in notes.values()), notes


@pytest.mark.slow
def test_a_wrong_training_step_is_refused_though_no_other_engine_ran(monkeypatch):
    operands, results = steps("dcgan-discriminator", ["lax"])
    job = {"kind": "step", "network": "dcgan-discriminator"}
    exact = run.reference(job | {"dtype": "f64"}, operands)
    right = results["lax/"]
    _, before, _ = networks.NETWORKS["dcgan-discriminator"].split(operands)
    monkeypatch.setattr(run, "reference", lambda *_: exact)
    changed = {
        "right": right,
        "loss": [right[0] * 1.1, *right[1:]],
        "no step": [right[0], *before],
        "uphill": [right[0], *(2 * p - x for p, x in zip(before, right[1:], strict=True))],
        "one transposed": [right[0], right[1].swapaxes(0, 1), *right[2:]],
        "nan": [right[0], right[1] * np.nan, *right[2:]],
    }
    cpu = dict.fromkeys(changed, "cpu")
    for dtype in ("f32", "f16", "bf16"):
        notes = train_step.judge(job | {"dtype": dtype}, operands, changed, cpu)
        # Updates in bfloat16 are not compared, but must be numbers.
        ok = ["right"] if dtype != "bf16" else [c for c in changed if c not in ("loss", "nan")]
        assert [name for name, note in notes.items() if note["ok"]] == ok, dtype
        json.dumps(notes, allow_nan=False)


# What is asked of workers on an accelerator: seen without one.
def environment(*given):
    asked = flags.parse(flags.measuring("any", "any"), ["any", *given])
    asked.engines = []
    return run.open_pool(asked).environment


def test_what_workers_are_started_with():
    """Without leave, JAX would take most of the device's memory, in every process."""
    plain, exact = environment(), environment("--f32=exact")
    assert plain["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"
    assert exact["JAX_DEFAULT_MATMUL_PRECISION"] == "highest"
    assert exact["NVIDIA_TF32_OVERRIDE"] == "0"
    assert not {*run.EXACT_F32} & {*plain}
    # Exact f32 is held to the tolerance of a CPU.
    for given, platform in ((exact, "cpu"), (plain, "cuda")):
        pool = Pool(environment=given, versions={"any": {"platform": "cuda"}})
        assert run.platforms(pool, ["any/"]) == {"any/": platform}
