"""`python -m jaxconv`: its lines, its exit code, and that it notices what is wrong."""

import subprocess
import sys
from functools import partial

import jax
import jax.numpy as jnp
import pytest

import jaxconv
from jaxconv import __main__
from jaxconv._checks import cases, selfcheck
from jaxconv._contract.contractions import SLOTS
from jaxconv._tools import compare
from tests.support.forms import OPS, each
from tests.support.plugin import ROOT, python


def run(*flags):
    return python("-m", "jaxconv", *flags)


def words_by_operation(text):
    """Of the lines that start with an operation's name, the other words."""
    lines = [line.split() for line in text.splitlines()]
    return {words[0]: words[1:] for words in lines if words and words[0] in OPS}


@pytest.fixture
def only(monkeypatch):
    """Check nothing but these operations, in nothing but the first, strided case."""

    def check_only(*operations):
        monkeypatch.setattr(cases, "OPERATIONS", operations)
        monkeypatch.setattr(selfcheck, "CASES", {"strided": selfcheck.CASES["strided"]})

    return check_only


def test_quick_run():
    done = run("--quick")
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stdout + done.stderr
    assert lines[0].startswith(f"jaxconv {jaxconv.__version__}: jax {jax.__version__}, jaxlib ")
    assert "backend" in lines[1]
    found = words_by_operation(done.stdout)
    assert list(found) == list(OPS)
    for *exact, error, bound, verdict in found.values():
        assert exact == ["6/6"] * 3
        assert 0 < float(error) < float(bound) < 1e-5
        assert verdict == "ok"
    assert lines[-1] == "ok: all six operations are right on this backend."
    assert "How fast" not in done.stdout
    assert "Traceback" not in done.stderr
    assert max(map(len, lines)) <= 80


@pytest.mark.slow
def test_full_run():
    done = run()
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split() for line in done.stdout.split("How fast?")[1].splitlines()]
    kinds = [row for row in rows if row[3:4] == ["exact"]]
    assert len(kinds) == 3 * len(__main__.LAYERS)
    assert all(float(number) > 0 for row in kinds for number in row[:3])


def test_help():
    done = run("--help")
    assert done.returncode == 0
    assert done.stdout == __main__.USAGE
    assert max(map(len, __main__.USAGE.splitlines())) <= 80


def test_a_pipe_that_closes_early_is_no_traceback():
    command = [sys.executable, "-m", "jaxconv", "--help"]
    kinds = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=ROOT, text=True, **kinds) as process:
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 1


@pytest.mark.parametrize("flag", ["--quack", "quick"])
def test_an_unknown_flag(flag, capsys):
    assert __main__.main(["jaxconv", flag]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert flag.strip("-") in printed.err.splitlines()[0]
    assert "--quick" in printed.err
    with pytest.raises(SystemExit, match="2"):
        __main__.main(["jaxconv", "--quick", "--selftest"])  # one of them


def test_a_backend_that_does_not_start(monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "nowhere")
    done = run("--quick")
    assert done.returncode == 2
    assert "\nFAIL: no usable backend, with JAX_PLATFORMS='nowhere'. RuntimeError:" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "Traceback" not in done.stderr


def after(change):
    """What passes the result of an operation through a function."""
    return lambda right, *arrays, **attributes: change(right(*arrays, **attributes))


@pytest.mark.parametrize("operation", OPS)
def test_one_wrong_element(operation, only, monkeypatch, capsys):
    wrong = after(lambda out: out.at[(-1,) * out.ndim].set(1 - out[(-1,) * out.ndim]))
    only(operation)
    assert __main__.main(["jaxconv", "--quick"]) == 0
    assert words_by_operation(capsys.readouterr().out)[operation][-1] == "ok"
    monkeypatch.setattr(jaxconv, operation, partial(wrong, getattr(jaxconv, operation)))
    assert __main__.main(["jaxconv", "--quick"]) == 1
    out = capsys.readouterr().out
    *exact, error, bound, verdict = words_by_operation(out)[operation]
    assert exact == ["0/1"] * 3
    assert float(error) > float(bound)
    assert verdict == "FAIL"
    assert "  strided, f32: the result has 1 of " in out
    assert out.splitlines()[-1] == "FAIL: 1 of the lines above went wrong on this backend."


def multiply_in_bfloat16(right, src, weights, **attributes):
    src, weights = (x.astype(jnp.bfloat16).astype(x.dtype) for x in (src, weights))
    return right(src, weights, **attributes)


def round_halfway(right, src, weights, **attributes):
    half = weights.shape[0] // 2  # the sum over the first rows, then over the others
    first = right(src, weights.at[half:].set(0), **attributes)
    return first + right(src, weights.at[:half].set(0), **attributes)


def fail(right, *arrays, **attributes):
    raise NotImplementedError("convolutions are off today\nand a long story")


OFF, NOTHING = "  strided, f32: the result is off by ", ["0/1"] * 3
#: operation, what computes it, how many integers are right by type, a line below
WRONG = {
    "products in bfloat16": ("conv_transpose", multiply_in_bfloat16, ["1/1"] * 3, OFF),
    "partial sums in 16 bits": (
        "convolution", round_halfway, ["1/1", "0/1", "0/1"], "  strided, bf16: the result has "),
    "not a number": (
        "conv_transpose_backward_data", after(lambda out: out.at[(0,) * out.ndim].set(jnp.nan)),
        NOTHING, f"{OFF}inf"),
    "broadcastable": (
        "convolution", after(lambda out: out[:1, ..., :1]), NOTHING, "  strided: TypeError: "),
    "wider": (
        "convolution", after(lambda out: out.astype(jnp.float32)), ["1/1", "0/1", "0/1"],
        "  strided: TypeError: "),
    "nested": ("convolution", after(lambda out: out[None]), NOTHING, "  strided: TypeError: "),
    "an error": (
        "convolution", fail, NOTHING,
        "  strided: NotImplementedError: convolutions are off today\n"),
}  # fmt: skip


@each("given", WRONG)
def test_what_is_wrong_is_seen(given, only, monkeypatch, capsys):
    """And told in a line; other operations are checked as well."""
    operation, wrong, exact, line = given
    only(operation, "convolution_backward_data")
    monkeypatch.setattr(jaxconv, operation, partial(wrong, getattr(jaxconv, operation)))
    assert selfcheck.check() == 1
    out = capsys.readouterr().out
    found = words_by_operation(out)
    assert (found[operation][:3], found[operation][-1]) == (exact, "FAIL")
    assert line in out
    assert "a long story" not in out
    assert found["convolution_backward_data"][-1] == "ok"


TINY = ("convolution", (1, 5, 4, 3), (3, 2, 3, 2), {"strides": 2})


def test_what_differs_from_lax_counts(monkeypatch, capsys):
    monkeypatch.setattr(__main__, "LAYERS", [TINY])
    assert __main__.race() == 0
    capsys.readouterr()
    bind = compare._bind_both

    def break_gradients(lowered):
        calls, slot = bind(lowered), SLOTS[lowered.equation.primitive]
        if slot == "kernel":
            raise ArithmeticError("no such gradient")
        off = {"fine": 1.03, "coarse": 1.01}[slot]  # more than MAX_DIFFERENCE, and less
        return calls | {"jaxconv": lambda *operands: off * calls["lax"](*operands)}

    monkeypatch.setattr(compare, "_bind_both", break_gradients)
    assert __main__.race() == 2
    out = capsys.readouterr().out
    for slot, off in {"data": "3e-02", "forward": "1e-02"}.items():
        assert [line.split()[3] for line in out.splitlines() if f" {slot} " in line] == [off]
    assert "\n  failed: ArithmeticError: no such gradient\n" in out
    monkeypatch.setattr(__main__, "LAYERS", [TINY, (*TINY[:2], (3, 2, 4, 2), {})])
    assert __main__.race() == 1
    assert "\nFAIL\n  ValueError: convolution: `weights` " in capsys.readouterr().out
