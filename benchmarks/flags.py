"""The flags of every measuring command, and what their values may be."""

from argparse import ArgumentParser, ArgumentTypeError, Namespace
from collections.abc import Callable, Sequence

from benchmarks import engines
from benchmarks.layer import DTYPES


def parser(description: str) -> ArgumentParser:
    """A parser with the flags that all commands share."""
    new = ArgumentParser(description=description, allow_abbrev=False)
    add = new.add_argument
    labels = "NAME, jaxconv:FORM, lax+install; @TAG"
    add("--engines", type=_engines, default=[*engines.DEFAULT], help=labels)
    add("--filter", default="", help="regular expression: rows by name, network or tag")
    add("--dtypes", type=listed(DTYPES), default=["f32"], help=f"of {', '.join(DTYPES)}")
    add("--repeats", type=_count, default=5, help="interleaved rounds")
    add("--burst", type=float, default=0.04, help="seconds of calls per turn")
    cap = "seconds an engine may take to prepare a row; a quarter of it for its turns"
    add("--cap", type=float, default=20.0, help=cap)
    once = "a first call of more seconds is the only one; default a quarter of --cap"
    add("--once", type=float, help=once)
    pairs = {"action": "append", "default": []}
    add("--python", type=_pair, **pairs, help="ENGINE=INTERPRETER")
    add("--path", type=_pair, **pairs, help="ENGINE=FOLDER to import packages from first")
    add("--env", type=_variable, **pairs, help="ENGINE=NAME=VALUE: a variable of its process alone")
    add("--device", choices=["any", "cpu"], default="any", help="cpu hides every accelerator")
    exact = "exact: no TF32 or bf16 passes on accelerators either"
    add("--f32", choices=["default", "exact"], default="default", help=exact)
    add("--out", default="", help="where the CSV goes")
    return new


def parse(new: ArgumentParser, argv: Sequence[str] | None = None) -> Namespace:
    """The flags; --python, --path and --env as a dictionary by engine."""
    flags = new.parse_args(argv)
    for name in ("python", "path", "env"):
        pairs = getattr(flags, name)
        if unknown := [label for label, _ in pairs if label not in flags.engines]:
            new.error(f"--{name}: {', '.join(unknown)}; known: {', '.join(flags.engines)}")
    flags.python, flags.path = dict(flags.python), dict(flags.path)
    environments: dict[str, dict[str, str]] = {}
    for label, (variable, value) in flags.env:
        environments.setdefault(label, {})[variable] = value
    flags.env = environments
    if flags.once is None:
        flags.once = flags.cap / 4
    return flags


def listed(known: Sequence[str]) -> Callable[[str], list[str]]:
    """The type of a flag that takes several of `known`, joined by commas."""

    def read(text: str) -> list[str]:
        values = text.split(",")
        if unknown := [v for v in values if v not in known]:
            raise ArgumentTypeError(f"{', '.join(unknown)}; known: {', '.join(known)}")
        return values

    return read


def integers(text: str) -> list[int]:
    """The type of a flag that takes integers joined by commas."""
    try:
        return [int(word) for word in text.split(",")]
    except ValueError:
        raise ArgumentTypeError(f"{text}; expected integers joined by commas") from None


def _engines(text: str) -> list[str]:
    labels = text.split(",")
    try:
        for label in labels:
            engines.name_of(label)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from None
    return labels


def _count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"{text}; expected at least 1")
    return int(text)


def _pair(text: str) -> tuple[str, str]:
    label, equals, value = text.partition("=")
    if not (equals and value):
        raise ArgumentTypeError(f"{text}; expected ENGINE=VALUE")
    return label, value


def _variable(text: str) -> tuple[str, tuple[str, str]]:
    label, _, assignment = text.partition("=")
    name, equals, value = assignment.partition("=")
    if not (name and equals):
        raise ArgumentTypeError(f"{text}; expected ENGINE=NAME=VALUE")
    return label, (name, value)
