"""The flags of every command: how they are read, and what their values may be.

A command has flags of its own (`Command.own`), not absl's global ones: `--help` shows these alone,
and several commands can be read in one process, again and again.
"""

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NoReturn

from absl import app, flags

from benchmarks import engines
from benchmarks.layer import DTYPES


class Command:
    """What `python -m NAME` takes: flags, and operands such as "A.csv" or "FILE..."."""

    def __init__(self, name: str, description: str, *operands: str):
        self.name, self.description, self.operands = name, description, operands
        self.known = flags.FlagValues()
        self.known.set_gnu_getopt()  # flags may follow operands
        #: What each `flags.DEFINE_...` is given: whose flag it is.
        self.own = {"flag_values": self.known, "module_name": name}
        #: Defaults by the flag that brings them.
        self.presets: dict[str, Mapping[str, object]] = {}
        flags.DEFINE_boolean("help", False, "show this help", short_name="h", **self.own)

    def usage(self) -> str:
        """The usage in one line."""
        return " ".join([f"usage: python -m {self.name} [flags]", *self.operands])

    def fail(self, why: str) -> NoReturn:
        """End the process, with one sentence and exit code 2."""
        print(f"{self.usage()}; --help shows them\n{self.name}: {why}", file=sys.stderr)
        sys.exit(2)

    def read(self, argv: Sequence[str]) -> SimpleNamespace:
        """Each flag's value, and the list `operands`; `argv` begins with the program's name."""
        try:
            _, *operands = self.known(argv)
        except flags.Error as error:
            self.fail(str(error))
        if self.known.help:
            print(f"{self.usage()}\n\n{self.description}\n{self.known.module_help(self.name)}")
            sys.exit()
        takes, extra = " ".join(self.operands), len(operands) - len(self.operands)
        if extra < 0 or (extra > 0 and not takes.endswith("...")):
            self.fail(f"takes {takes or 'flags alone'}; got {' '.join(operands) or 'none'}")
        for switch, defaults in self.presets.items():
            if self.known[switch].value:
                self.default(defaults)
        values = {k.replace("-", "_"): v for k, v in self.known.flag_values_dict().items()}
        return SimpleNamespace(operands=operands, **values)

    def default(self, defaults: Mapping[str, object]) -> None:
        """Other defaults than those that the flags were defined with."""
        for name, value in defaults.items():
            self.known.set_default(name, value)


class _Values(flags.ArgumentParser):
    """The parser of a flag whose value a function reads, or says by a ValueError why not."""

    def __init__(self, read: Callable[[str], Any]):
        self.parse = read


def run(main: Callable[[Sequence[str]], int | None]) -> None:
    """Run the command of this process by absl; its flags are read by `main` alone."""

    def leave(argv: Sequence[str]) -> Sequence[str]:
        flags.FLAGS(argv[:1])
        return argv

    app.run(main, flags_parser=leave)


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"no regular expression: {error}") from None
    return text


def choosing(name: str, description: str) -> Command:
    """A command that measures rows of some types, and writes a CSV."""
    new = Command(name, description)
    found = "regular expression: rows by name, network or tag"
    flags.DEFINE(_Values(_pattern), "filter", "", found, **new.own)
    define_list(new, "dtypes", "f32", DTYPES)
    flags.DEFINE_string("out", "", "where the CSV goes", **new.own)
    return new


def measuring(name: str, description: str) -> Command:
    """A command with the flags that all commands share that time engines."""
    new = choosing(name, description)
    own = new.own
    labels = "NAME, jaxconv:FORM, lax+install; @TAG; joined by commas"
    define_several(new, "engines", ",".join(engines.DEFAULT), labels, _engine)
    flags.DEFINE_integer("repeats", 5, "interleaved rounds", lower_bound=1, **own)
    flags.DEFINE_float("burst", 0.04, "seconds of calls per turn", **own)
    flags.DEFINE_float("cap", 20.0, "seconds an engine may take to prepare a row", **own)
    turns = "seconds of turns after which an engine sits out the rest; default a quarter of --cap"
    flags.DEFINE_float("turns", None, turns, **own)
    for flag, form, told in (
        ("python", "ENGINE=INTERPRETER", ""),
        ("path", "ENGINE=FOLDER", " to import packages from first"),
        ("env", "ENGINE=NAME=VALUE", ": a variable of its process alone"),
    ):
        read = _Values(partial(_split, form))
        flags.DEFINE_multi(read, None, flag, [], form + told, **own)
    flags.DEFINE_enum("device", "any", ["any", "cpu"], "cpu hides every accelerator", **own)
    exact = "exact: no TF32 or bf16 passes on accelerators either"
    flags.DEFINE_enum("f32", "default", ["default", "exact"], exact, **own)
    return new


def parse(command: Command, argv: Sequence[str]) -> SimpleNamespace:
    """The flags of a measuring command; --python, --path and --env as dictionaries by engine."""
    asked = command.read(argv)
    for name in ("python", "path", "env"):
        given = [label for label, *_ in getattr(asked, name)]
        if unknown := [label for label in given if label not in asked.engines]:
            command.fail(f"--{name}: no {', '.join(unknown)}; known: {', '.join(asked.engines)}")
    asked.python, asked.path = dict(asked.python), dict(asked.path)
    asked.env = {
        label: {name: value for own, name, value in asked.env if own == label}
        for label in asked.engines
    }
    for label, folder in asked.path.items():
        known = engines.name_of(label), "jaxconv", "jax"
        if not any((Path(folder) / name / "__init__.py").exists() for name in known):
            command.fail(f"--path: no package of {label} in {folder}")
    if asked.turns is None:
        asked.turns = asked.cap / 4
    return asked


def define_several(
    command: Command, name: str, default: str, told: str, read: Callable[[str], Any]
) -> None:
    """A flag that takes values joined by commas, each of which a function reads."""
    parser = _Values(lambda text: [read(word) for word in text.split(",")])
    # So that --help shows a default as it is written on a command line.
    serializer = flags.ListSerializer(",")
    flags.DEFINE(parser, name, default, told, serializer=serializer, **command.own)


def define_list(
    command: Command, name: str, default: str, known: Sequence[str], told: str = ""
) -> None:
    """A flag that takes several of `known`, joined by commas."""

    def read(word: str) -> str:
        if word not in known:
            raise ValueError(f"no {word}; known: {', '.join(known)}")
        return word

    told = told or f"of {', '.join(known)}; joined by commas"
    define_several(command, name, default, told, read)


def _engine(label: str) -> str:
    engines.name_of(label)  # which raises if there is none
    return label


def _split(form: str, text: str) -> list[str]:
    """What is joined by `=`, as often as the form says."""
    parts = text.split("=", form.count("="))
    if len(parts) <= form.count("="):
        raise ValueError(f"expected {form}")
    return parts
