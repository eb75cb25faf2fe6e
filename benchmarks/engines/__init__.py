"""Which code computes a layer: one small file per engine, one interface.

`load(label)` gives `versions()` and `prepare(job, operands)`. The latter returns, by variant
(PyTorch has two memory formats, the others one), a `Timed`: a compiled call that has run
once, ready to be timed. A JAX engine's file only says how the layer is spelled.
"""

import importlib
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

DEFAULT = ("jaxconv", "lax", "torch")
MODELS = "keras"  # computes whole models alone, in benchmarks.applications
LOOP = "loop"


class Unsupported(Exception):
    """The engine has no way to spell this layer."""


@dataclass(frozen=True)
class Timed:
    """A call that is ready to be timed."""

    call: Callable[[], Any]  # starts it
    wait: Callable[[Any], Any]  # returns when its result is there
    fetch: Callable[[Any], list[np.ndarray]]  # the results, channels last, in f32 or f64
    facts: dict[str, float] = field(default_factory=dict)  # compile_s, memory


@dataclass(frozen=True)
class Engine:
    """The functions of an engine."""

    prepare: Callable[[dict, list[np.ndarray]], dict[str, Timed]]
    versions: Callable[[], dict[str, str]]
    contraction: Callable | None = None  # of JAX's engines: an op of a layer, for `compilers`
    form: str = ""  # the one that is forced


def name_of(label: str) -> str:
    """The file of a label: `:FORM`, `+install`, `+compile` and `@TAG` are dropped."""
    return _parts(label)[0]


def load(label: str) -> Engine:
    """The engine of a label: a file of this folder, `jaxconv:FORM`, `lax+install`, ...

    `+install` is for what calls lax: the same program, compiled where jaxconv is installed.
    `lax:loop` calls the members of an ensemble one by one in one program, others use `vmap`.
    `torch+compile` is PyTorch's compiler, with frozen weights; it computes inferences alone. Any
    label may end with `@TAG`, which only tells two runs of one engine apart, by interpreter,
    source path or environment.
    """
    name, form, word = _parts(label)
    module = importlib.import_module(f"benchmarks.engines.{name}")
    if name == "torch":
        return Engine(partial(module.prepare, word == "compile"), module.versions)
    if name == MODELS:
        if word:
            importlib.import_module("jaxconv").install()
        return Engine(module.prepare, module.versions)
    from benchmarks.engines import _xla

    packages, apart = [module.PACKAGE], form == LOOP
    scope = partial(module.scope, form) if form and not apart else None
    if word:
        library = importlib.import_module("jaxconv")
        packages, scope = [*packages, library], lambda function, arrays: library.installed()
    return Engine(
        partial(_xla.prepare, module, scope, apart),
        partial(_xla.versions, packages),
        module.contraction,
        form,
    )


#: A label: `:FORM`, `+WORD` and `@TAG` may follow the name.
_LABEL = re.compile(
    r"(jaxconv(:[^+]+)?|lax(:loop)?(\+install)?|torch(\+compile)?|keras(\+install)?)(@.*)?"
)


def _parts(label: str) -> tuple[str, str, str]:
    """The name, and the form and the word, if there are any."""
    if not _LABEL.fullmatch(label):
        known = f"{', '.join(DEFAULT)}, lax+install and so on, and torch+compile"
        raise ValueError(f"unknown engine {label!r}; known: {known}")
    engine, _, word = label.partition("@")[0].partition("+")
    name, _, form = engine.partition(":")
    return name, form, word
