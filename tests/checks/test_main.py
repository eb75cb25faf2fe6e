"""`python -m jaxconv`: its lines, its exit code, and that it notices what is wrong."""

import subprocess
import sys

import jax
import jax.numpy as jnp
import pytest

import jaxconv
from jaxconv import __main__
from jaxconv._checks import cases, selfcheck
from tests.support.grid import OPS
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


@pytest.fixture
def broken(monkeypatch):
    """Break an operation: pass its result through a function."""

    def break_with(operation, change):
        right = getattr(jaxconv, operation)
        monkeypatch.setattr(jaxconv, operation, lambda *a, **k: change(right(*a, **k)))

    return break_with


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
    for layer in __main__.racers():
        (line,) = [line for line in done.stdout.splitlines() if line.startswith(layer.name)]
        assert all(float(number) > 0 for number in line.removeprefix(layer.name).split())
    assert max(map(len, done.stdout.splitlines())) <= 80


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


def test_a_backend_that_does_not_start(monkeypatch):
    monkeypatch.setenv("JAX_PLATFORMS", "nowhere")
    done = run("--quick")
    assert done.returncode == 2
    assert "\nFAIL: no usable backend. RuntimeError: " in done.stdout
    assert "nowhere" in done.stdout
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("operation", OPS)
def test_one_wrong_element(operation, only, broken, capsys):
    def change(out):
        last = (-1,) * out.ndim
        return out.at[last].set(1 - out[last])

    only(operation)
    assert __main__.main(["jaxconv", "--quick"]) == 0
    assert words_by_operation(capsys.readouterr().out)[operation][-1] == "ok"
    broken(operation, change)
    assert __main__.main(["jaxconv", "--quick"]) == 1
    out = capsys.readouterr().out
    *exact, error, bound, verdict = words_by_operation(out)[operation]
    assert exact == ["0/1"] * 3
    assert float(error) > float(bound)
    assert verdict == "FAIL"
    assert "  strided, f32: the result has 1 of " in out
    assert out.splitlines()[-1] == "FAIL: 1 of the lines above went wrong on this backend."


def test_f32_multiplied_in_bf16_is_seen_in_the_random_case(only, monkeypatch, capsys):
    right = jaxconv.conv_transpose

    def narrow(src, weights, **attributes):  # exact for the integers
        src, weights = (x.astype(jnp.bfloat16).astype(x.dtype) for x in (src, weights))
        return right(src, weights, **attributes)

    only("conv_transpose")
    monkeypatch.setattr(jaxconv, "conv_transpose", narrow)
    assert selfcheck.check() == 1
    *exact, error, bound, verdict = words_by_operation(capsys.readouterr().out)["conv_transpose"]
    assert exact == ["1/1"] * 3
    assert float(error) > float(bound)
    assert verdict == "FAIL"


def test_partial_sums_rounded_to_16_bits_are_seen(only, monkeypatch, capsys):
    right = jaxconv.convolution

    def rounds_halfway(src, weights, **attributes):
        half = weights.shape[0] // 2  # the sum over the first rows, then over the others
        first = right(src, weights.at[half:].set(0), **attributes)
        return first + right(src, weights.at[:half].set(0), **attributes)

    only("convolution")
    monkeypatch.setattr(jaxconv, "convolution", rounds_halfway)
    assert selfcheck.check() == 1
    words = words_by_operation(capsys.readouterr().out)["convolution"]
    assert words[:3] == ["1/1", "0/1", "0/1"]


@pytest.mark.parametrize(
    "change",
    [lambda out: out[:1, ..., :1], lambda out: out.astype(jnp.float32), lambda out: out[None]],
    ids=["broadcastable", "wider", "nested"],
)
def test_another_shape_or_dtype(change, only, broken, capsys):
    only("convolution")
    broken("convolution", change)
    assert selfcheck.check() == 1
    assert "  strided: TypeError: " in capsys.readouterr().out


def test_an_operation_that_raises(only, broken, capsys):
    def fail(out):
        raise NotImplementedError("convolutions are off today\nand a long story")

    only("convolution", "conv_transpose")
    broken("convolution", fail)
    assert __main__.main(["jaxconv", "--quick"]) == 1
    out = capsys.readouterr().out
    assert "  strided: NotImplementedError: convolutions are off today\n" in out
    assert "a long story" not in out
    found = words_by_operation(out)
    assert found["convolution"] == ["0/1", "0/1", "0/1", "FAIL"]
    assert found["conv_transpose"][-1] == "ok"


def test_not_a_number(only, broken, capsys):
    only("conv_transpose_backward_data")
    broken("conv_transpose_backward_data", lambda out: out.at[(0,) * out.ndim].set(jnp.nan))
    assert selfcheck.check() == 1
    words = words_by_operation(capsys.readouterr().out)["conv_transpose_backward_data"]
    assert words[:4] == ["0/1", "0/1", "0/1", "inf"]


def racer(**changes):
    of = {
        "name": "tiny",
        "src": (1, 5, 4, 3),
        "weights": (3, 2, 3, 2),
        "ours": lambda src, weights: jaxconv.convolution(src, weights, strides=2),
        "plain": lambda src, weights: jax.lax.conv_general_dilated(
            src, weights, (2, 2), "VALID", dimension_numbers=("NHWC", "HWIO", "NHWC")
        ),
    }
    return __main__.Racer(**of | changes)


def test_what_differs_from_lax_is_not_timed(monkeypatch, capsys):
    flipped = racer(
        name="flipped", ours=lambda src, weights: jaxconv.convolution(src, weights[::-1], strides=2)
    )
    raising = racer(name="raising", weights=(3, 2, 4, 2))
    monkeypatch.setattr(__main__, "racers", lambda: [flipped, raising, racer()])
    assert __main__.race() == 2
    out = capsys.readouterr().out
    assert "flipped                     FAIL\n  ArithmeticError: off jax.lax by " in out
    assert "raising                     FAIL\n  " in out
    name, *numbers = out.splitlines()[-1].split()
    assert (name, len(numbers)) == ("tiny", 6)
    assert all(float(number) > 0 for number in numbers)


def test_gradients_that_differ_are_seen(monkeypatch, capsys):
    @jax.custom_vjp
    def ours(src, weights):
        return jaxconv.convolution(src, weights, strides=2)

    def forward(src, weights):
        return ours(src, weights), (src, weights)

    ours.defvjp(forward, lambda saved, diff_dst: tuple(2 * x for x in saved))
    monkeypatch.setattr(__main__, "racers", lambda: [racer(ours=ours)])
    assert __main__.race() == 1
    assert "ArithmeticError" in capsys.readouterr().out
