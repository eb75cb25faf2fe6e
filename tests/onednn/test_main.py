"""`python -m jaxconv.onednn`: runs a file, finds what is wrong, and times it beside plain lax."""

import json
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxconv
from jaxconv import onednn
from jaxconv._tools import clock
from jaxconv.onednn import __main__ as main
from jaxconv.onednn import _check
from jaxconv.onednn._graphs.run import convolution_calls, evaluate
from tests.support.forms import PUBLISHED
from tests.support.graphs import (
    BIAS,
    KINDS,
    RELU,
    exact,
    graph,
    integers,
    kinds_of,
    node,
    tensor,
    written,
)
from tests.support.plugin import python


def graphs():
    """Of all six operations, with a bias where there may be one, and of the other reading."""
    for kind in KINDS:
        yield kind, written(kind)
    for kind, (first, second, attributes, out) in list(kinds_of(PUBLISHED))[3:]:
        tensors = [tensor(i, *shape) for i, shape in enumerate((first, second, out))]
        yield f"{kind}, published", graph(node(0, kind, tensors[:2], tensors[2], **attributes))
    for kind, channels in {"Convolution": 6, "ConvTranspose": 4}.items():
        biased = written(kind)
        bias = {"id": 9, "dtype": "f32", "shape": [channels]}
        biased["graph"][0]["inputs"].append(bias)
        yield f"{kind}, bias", biased


GRAPHS = dict(graphs())
HUGE = graph(node(0, "Abs", [tensor(0, 1 << 50)], tensor(1, 1 << 50)))


@pytest.fixture(scope="module")
def findings():
    """Each graph's only convolution, and what it found; all are run as one program."""
    read = {name: onednn.load_graph(g) for name, g in GRAPHS.items()}
    inputs = {name: onednn.random_inputs(g) for name, g in read.items()}

    @jax.jit
    def run(inputs):
        ours = {name: evaluate(g, inputs[name]) for name, g in read.items()}
        with jaxconv.forced("reference"):
            plain = {name: evaluate(g, inputs[name]) for name, g in read.items()}
        return ours, plain

    ours, plain = run(inputs)
    return {
        name: (*next(convolution_calls(g, ours[name])), ours[name], plain[name])
        for name, g in read.items()
    }


def output(node, arrays):
    return np.asarray(arrays[node.outputs[0].id])


@pytest.mark.parametrize("name", GRAPHS)
def test_what_is_right_is_found_so_and_what_is_wrong_too(findings, name):
    node, function, arguments, ours, plain = findings[name]
    found = output(node, ours)
    find_error = partial(_check.find_error, function, arguments)
    assert find_error(found) < 0.5
    assert find_error(output(node, plain)) <= 1
    for place in ((0,) * found.ndim, (-1,) * found.ndim):
        wrong = found.copy()
        wrong[place] += 1e-4 * np.max(np.abs(found))
        assert find_error(wrong) > 1
        wrong[place] = np.nan
        assert find_error(wrong) > 1


def test_the_reference_is_that_of_the_tests():
    for kind, (first, second, _, _) in KINDS.items():
        graph = onednn.load_graph(written(kind))
        x, y = integers(*first, seed=1), integers(*second, seed=2)
        [(_, *call)] = convolution_calls(graph, {0: x, 1: y})
        assert _check.find_error(*call, exact(kind, x, y).astype(np.float32)) == 0
        if kind == "Convolution":  # of no images, too
            [(_, *call)] = convolution_calls(graph, {0: x[:0], 1: y})
            assert _check.find_error(*call, exact(kind, x, y)[:0].astype(np.float32)) == 0


@pytest.mark.parametrize(("name", "dtype"), [("bf16", jnp.bfloat16), ("f16", np.float16)])
def test_16_bits_are_held_to_one_rounding(name, dtype):
    graph = onednn.load_graph(written("Convolution", dtype=name))
    first, second, _, _ = KINDS["Convolution"]
    x, y = (integers(*s, seed=i, most=60).astype(dtype) for i, s in enumerate((first, second)))
    [(_, *call)] = convolution_calls(graph, {0: x, 1: y})
    once = exact("Convolution", x.astype(np.float32), y.astype(np.float32)).astype(dtype)
    assert 0.5 < _check.find_error(*call, once) <= 1
    twice = (once.astype(np.float32) * (1 + 2 * float(jnp.finfo(dtype).eps))).astype(dtype)
    assert _check.find_error(*call, twice) > 1
    x, y = (np.full_like(z, jnp.finfo(dtype).max) for z in (x, y))
    [(_, *call)] = convolution_calls(graph, {0: x, 1: y})
    assert _check.find_error(*call, np.full_like(once, np.inf)) == 0


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "graph.json"
    made = written("Convolution", int8=[2**-4, 2**-5] * 3, dtype="bf16", then=[BIAS, RELU])
    path.write_text(json.dumps(made))
    return str(path)


def test_a_graph_is_run_checked_explained_and_timed(path, capsys, monkeypatch):
    monkeypatch.setattr(clock, "BUDGET_SECONDS", 0.0)
    assert main.main([path, "--check", "--explain", "--time", "--seed", "3"]) == 0
    out = capsys.readouterr().out
    assert "9 nodes, fpmath_mode strict" in out
    assert "node 4 'CONVOLUTION_4' (Convolution)\n    2: bf16 (2, 4, 7, 6)" in out
    assert "u8 (2, 6, 3, 6): from " in out
    assert "node 4: convolution to (2, 6, 3, 6)" in out
    starts = ("  node 4 'CONVOLUTION_4' (Convolution)", "  the whole graph")
    checked, timed, whole = [x.split() for x in out.splitlines() if x.startswith(starts)][-3:]
    assert checked[-1] == "ok"
    assert 0 <= float(checked[-2]) <= 1
    for line in (timed, whole):
        assert min(map(float, line[-2:])) > 0


def test_a_wrong_convolution_is_an_exit_code(path, capsys, monkeypatch):
    def wrong(graph, inputs, **more):
        arrays = evaluate(graph, inputs, **more)
        return arrays | {6: arrays[6].at[0, 0, 0, 0].add(1)}

    assert main.main([path, "--check"]) == 0
    assert "FAIL" not in capsys.readouterr().out
    monkeypatch.setattr(_check, "evaluate", wrong)
    assert main.main([path, "--check"]) == 1
    assert "node 4 'CONVOLUTION_4' (Convolution): " in (out := capsys.readouterr().out)
    assert "FAIL" in out
    monkeypatch.setattr(main, "check", lambda *_: [("one", 2.0), ("another", 0.5)])
    assert main.main([path, "--check"]) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"{", "FAIL: graph: "),
        (b"\xff{", "FAIL: graph: {path} must be JSON; "),
        (json.dumps(HUGE).encode(), "FAIL: "),
        (b'{"graph": []}', "FAIL: graph: `graph` must list at least one node; got none"),
        (None, "FAIL: [Errno 2] No such file or directory"),
    ],
)
def test_a_file_that_cannot_be_run(text, message, tmp_path, capsys):
    path = tmp_path / "graph.json"
    if text is not None:
        path.write_bytes(text)
    assert main.main([str(path)]) == 2
    assert capsys.readouterr().err.startswith(message.format(path=path))


def test_an_unknown_flag(capsys):
    with pytest.raises(SystemExit, match="2"):
        main.main(["--chek"])
    assert "usage: python -m jaxconv.onednn" in capsys.readouterr().err


@pytest.mark.slow
def test_the_command(path):
    ran = python("-W", "error", "-m", "jaxconv.onednn", path, "--check")
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "ok" in ran.stdout
