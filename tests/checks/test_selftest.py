"""`python -m jaxconv --selftest`: random cases, right as they are, and a planted wrong lowering."""

import random
import re

import jax.numpy as jnp
import numpy as np
import pytest

import jaxconv
from jaxconv import __main__
from jaxconv._checks import selfcheck
from jaxconv._checks.cases import Case, compare
from jaxconv._checks.layer import Layer, contract
from jaxconv._checks.selfcheck import draw_case
from jaxconv._lowering.forms import phases
from tests.support.grid import OPS


def selftest(*flags):
    return __main__.main(["jaxconv", "--selftest", *flags])


def table(text):
    """Of each operation, the three counts of right cases and of all."""
    rows = [line.split() for line in text.splitlines()]
    return {words[0]: words[1:] for words in rows if words and words[0] in OPS}


def test_all_is_right(capsys):
    assert selftest("6", "--seed", "5") == 0
    lines = capsys.readouterr().out
    assert "6 random cases of seed 5" in lines
    assert "first, sizes at which oneDNN failed elsewhere: 11/11 right" in lines
    assert "6/6, 0.0 min left, 0 wrong" in lines
    found = table(lines)
    assert [*found] == [*OPS]
    for cells in found.values():
        right, of = zip(*(map(int, cell.split("/")) for cell in cells), strict=True)
        assert right == of
        assert sum(of) == 1
    assert max(map(len, lines.splitlines())) <= 80


def test_a_wrong_lowering_is_found_and_reproduced(patched, capsys):
    patched(phases.lax, "rev", lambda kernel, axes: kernel)
    with jaxconv.forced("portable"):
        assert selftest("6", "--seed", "5") == 1
        out = capsys.readouterr().out
        *_, wrong, _ = out.split("\n\n")  # before the verdict
        assert wrong
        right = sum(int(cell.split("/")[0]) for cells in table(out).values() for cell in cells)
        said, line = wrong.strip().split("; reproduce it by:\n")
        exec(line, {})
        assert capsys.readouterr().out.strip() == said
    named = 11 - int(re.search(r"elsewhere: (\d+)/11 right", out)[1])
    assert right == 6 - (out.count("reproduce it by") - named) < 6
    assert named > 0
    assert re.search("(result|gradient by the fine tensor) has [0-9]+ of [0-9]+ integers", out)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (lambda out: out[..., None], "ValueError"),
        # What is whole stays so.
        (lambda out: jnp.where(out == jnp.round(out), out, out * (1 + 1e-5)), "the result is off"),
    ],
)
def test_what_it_says(change, text, monkeypatch):
    case = Case("convolution", selfcheck.CASES["1-D, groups"], formats=("NCX", "OIX"))
    right = jaxconv.convolution
    monkeypatch.setattr(jaxconv, "convolution", lambda *a, **k: change(right(*a, **k)))
    assert re.match(f"convolution, f32: ({text})", compare(case))


@pytest.mark.parametrize("name", [*selfcheck.LEAKING])
def test_a_nan_that_leaks_is_found(name, monkeypatch):
    case, right = selfcheck.NAMED[name], jaxconv.convolution

    def leak(src, weights, **attributes):
        """Each row of the product is read on into the next one, and times zero."""
        out = right(src, weights, **attributes)
        rows = src.reshape(out[..., 0].size, -1)
        beyond = 0 * jnp.roll(rows, -1, 0)[:, :1]
        return (out.reshape(rows.shape[0], -1) + beyond).reshape(out.shape)

    assert compare(case) == ""
    monkeypatch.setattr(jaxconv, "convolution", leak)
    assert re.match(r"convolution, bf16: the result has \d+ of \d+ integers wrong", compare(case))


@pytest.mark.parametrize("operation", OPS)
def test_a_case_of_padding_alone_is_right(operation):
    layer = Layer((2,), (2,), (1,), (3,), (1,), (1,), (2, 3))
    tensors = {name: np.ones(layer.shapes[name]) for name in ("fine", "kernel")}
    assert not contract(layer, "coarse", tensors).any()
    assert compare(Case(operation, layer)) == ""


def test_the_same_seed_draws_the_same_cases():
    one, same, other = ([draw_case(random.Random(s), OPS[0]) for _ in range(9)] for s in (1, 1, 2))
    assert one == same
    assert one != other


@pytest.mark.parametrize("count", ["0", "-3"])
def test_what_cannot_be_asked_for(count, capsys):
    assert selftest(count) == 2
    assert "--selftest [N]" in capsys.readouterr().err
