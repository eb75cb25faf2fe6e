"""Each command has flags of its own: --help shows these, and what makes no sense is refused."""

import re

import pytest

from benchmarks import (
    applications,
    compare,
    compiled,
    figures,
    inference,
    layers,
    regret,
    summary,
    train_step,
)

SHARED = {"burst", "cap", "device", "dtypes", "engines", "env", "f32", "filter", "out"}
SHARED |= {"path", "python", "repeats", "turns"}
ROWS = {"family", "layouts", "ops", "preset", "problem", "random", "rare", "seed"}
COMMANDS = {
    layers: SHARED | ROWS | {"ensembles", "quick", "summary"},
    regret: {"dtypes", "filter", "out"} | ROWS, train_step: SHARED, applications: SHARED,
    inference: SHARED | {"batches", "size"}, compare: {"threshold"}, figures: {"check"},
    compiled: SHARED | ROWS | {"platform", "sample", "target"}, summary: set(),
}  # fmt: skip
each_command = pytest.mark.parametrize("module", COMMANDS, ids=lambda m: m.__name__)


def ended(module, *argv):
    """The exit code of a command that ends before it does anything."""
    with pytest.raises(SystemExit) as end:
        module.main(["any", *argv])
    return end.value.code or 0


@each_command
@pytest.mark.parametrize("spelling", ["-h", "--help"])
def test_help_shows_the_flags_of_the_command_alone(module, spelling, capsys):
    for _ in range(2):  # nothing is left behind in this process
        assert ended(module, spelling) == 0
        told, said = capsys.readouterr()
        assert told.startswith(f"usage: python -m {module.__name__} [flags]")
        assert {*re.findall(r"^  --(?:\[no\])?([\w-]+): .", told, re.MULTILINE)} == COMMANDS[module]
        assert said == ""


@pytest.mark.parametrize(
    ("module", "argv", "why"),
    [
        *((m, ["--colour=red"], "Unknown command line flag 'colour'") for m in COMMANDS),
        (layers, ["--dtypes=f32,f33"], "--dtypes=f32,f33: no f33; known: f32, bf16, f16, f64"),
        (layers, ["--repeats=0"], "--repeats=0: 0 is not a positive integer"),
        (layers, ["--burst=long"], "--burst=long: could not convert string to float"),
        (layers, ["--preset=big"], "--preset=big: value should be one of <tiny|cpu-small|gpu|tpu>"),
        (layers, ["--out"], "Missing value for flag --out"), (layers, ["--repeats=2.5"], "=2.5: "),
        (layers, ["--filter=("], "--filter=(: no regular expression: missing ), "),
        (layers, ["--path=lax=/no"], "--path: no package of lax in /no"),
        (layers, ["--python=lax"], "--python=lax: expected ENGINE=INTERPRETER"),
        (train_step, ["--env=flax=A=1"], "--env: no flax; known: jaxconv, lax, lax+install, torch"),
        (compare, ["a.csv", "lax"], "takes RUN.csv BEFORE AFTER; got a.csv lax"),
        (compare, list("abcd"), "takes RUN.csv BEFORE AFTER; got a b c d"),
        (figures, ["--check"], "takes DOCUMENT...; got none"), (layers, ["a"], "alone; got a"),
        (compiled, ["--target=h100"], "--target: h100; known for tpu: v5e, v4"),
        (compiled, ["--engines=torch"], "--engines: torch compiles nothing; known: jaxconv, lax"),
        (compiled, ["--engines=lax+install"], "--engines: lax+install compiles nothing"),
    ],
)  # fmt: skip
def test_what_makes_no_sense_is_refused_in_one_sentence(module, argv, why, capsys):
    assert ended(module, *argv) == 2
    told, said = capsys.readouterr()
    assert told == ""
    usage, sentence = said.splitlines()
    assert usage.startswith(f"usage: python -m {module.__name__} [flags]")
    assert sentence.startswith(f"{module.__name__}: ")
    assert why in sentence
