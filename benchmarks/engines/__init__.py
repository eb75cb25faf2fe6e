"""Which code computes a layer: one small file per engine, one interface.

`load(label)` gives `versions()` and `prepare(job, operands)`. The latter returns, by variant
(PyTorch has two memory formats, the others one), a `Timed`: a compiled call that has run
once, ready to be timed. A JAX engine's file only says how the layer is spelled.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

DEFAULT = ("jaxconv", "lax", "torch", "flax", "equinox", "haiku")


class Unsupported(Exception):
    """The engine has no way to spell this layer."""


@dataclass(frozen=True)
class Timed:
    """A call that is ready to be timed."""

    call: Callable[[], Any]  # starts it
    wait: Callable[[Any], Any]  # returns when its result is there
    fetch: Callable[[Any], list[np.ndarray]]  # the results, channels last, in f32 or f64
    facts: dict[str, float] = field(default_factory=dict)  # compile_s, first_s, memory


@dataclass(frozen=True)
class Engine:
    """The functions of an engine."""

    prepare: Callable[[dict, list[np.ndarray]], dict[str, Timed]]
    versions: Callable[[], dict[str, str]]
    program: Callable[[dict], str] | None = None  # a digest of what a job's layer is compiled from


def name_of(label: str) -> str:
    """The file of a label: `jaxconv:SPELLING` and any `@TAG` are dropped."""
    name, _, spelling = label.partition("@")[0].partition(":")
    if name not in DEFAULT or (spelling and name != "jaxconv"):
        raise ValueError(f"unknown engine {label!r}; known: {', '.join(DEFAULT)}")
    return name


def load(label: str) -> Engine:
    """The engine of a label: a file of this folder, `jaxconv:SPELLING`, either with `@TAG`.

    A tag only tells two runs of one engine apart, by interpreter, source path or environment.
    """
    name, spelling = name_of(label), label.partition("@")[0].partition(":")[2]
    module = importlib.import_module(f"benchmarks.engines.{name}")
    if name == "torch":
        return Engine(module.prepare, module.versions)
    from benchmarks.engines import _xla

    spelled = module.scope(spelling) if spelling else None
    return Engine(
        partial(_xla.prepare, module, spelled),
        partial(_xla.versions, module),
        partial(_xla.program, module),
    )
