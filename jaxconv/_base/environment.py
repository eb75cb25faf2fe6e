"""What is around a convolution that JAX lowers: what else decides how, and who hears of it."""

import os
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from typing import Any, NamedTuple

import jax

from jaxconv._base.jax_names import (
    Equation,
    count_spmd_devices,
    is_lowered_for_export,
    skip_lowering_cache,
)
from jaxconv._base.messages import either

# Contexts are parts of the key of every jit: under another value, functions are compiled again. JAX
# must know a context before JAX compiles the functions that the context tells apart, so the
# contexts are made when the package is imported. `_lowering/force.py` and `_lax/install.py` set the
# contexts, and say what each value means.

#: The argument of `jaxconv.forced`.
FORCED = jax.make_user_context(None)

#: What `jaxconv.install` takes over, a `Scope` of `_lax/install.py`; False if it does not hold.
INSTALLED = jax.make_user_context(False)


@dataclass(frozen=True)
class Target:
    """A platform, and the ways of compiling for it that decide what a program may hold."""

    #: as JAX names it, or None in a rule for all platforms that have no table of their own
    platform: str | None
    #: the devices over which XLA itself splits the program
    devices: int = 1
    #: whether `jax.export` lowers the program
    exported: bool = False

    @classmethod
    def of(cls, platform: str | None, ctx: Any) -> "Target":
        """The target of the program for which JAX calls a lowering rule of a platform."""
        return cls(platform, count_spmd_devices(ctx), is_lowered_for_export(ctx))

    @property
    def alone(self) -> bool:
        """Whether the program is for one device, and this process runs it."""
        return self.devices == 1 and not self.exported

    @property
    def may_call_onednn(self) -> bool:
        """Whether a program may call oneDNN; `onednn_here` says if this process may."""
        return self.platform == "cpu" and self.alone


def read(name: str, accepted: tuple[str, ...], default: str = "") -> str:
    """Read a variable, in lower case; one that is not set, or set wrongly, is the default."""
    value = os.environ.get(name)
    return _check(name, value, accepted, default) if value else default


@cache  # so that each wrong value warns once in a process
def _check(name: str, value: str, accepted: tuple[str, ...], default: str) -> str:
    if value.lower() in accepted:
        return value.lower()
    rule = f"{name} must be {either(accepted)}; got {value!r}, which counts as not set"
    warnings.warn(rule, stacklevel=3)
    return default


# Who hears of each convolution that JAX lowers: an open `jaxconv.profile`, and the log. `lax` and
# the package's forms know nothing of listeners. `_contract/contractions.py` tells of each
# contraction, and `_lax/install.py` of lax's own convolutions.

#: A form's name and why it was chosen, for each form in use, the outermost first.
Steps = tuple[tuple[str, str], ...]


class Lowered(NamedTuple):
    """A convolution as it was lowered."""

    #: lax's convolution as lax has it, whoever computes it, or a contraction
    equation: Equation
    #: what computes it, a contraction or the max pool itself; None if it stays with lax
    contraction: Equation | None
    #: the forms in use, or why it stays with lax
    how: Steps | str
    #: what the program is for
    target: Target
    #: what a convolution of lax's is to this library, a `Mapped` or a `MaxPool`; None if it was not
    #: looked at, or has no contraction
    mapped: Any = None


class Listener(NamedTuple):
    """Somebody to tell."""

    #: whether to tell what this thread lowers now
    listens: Callable[[], bool]
    hear: Callable[[Lowered], None]


LISTENERS: list[Listener] = []

#: Where this thread puts what it would tell; None for the listeners.
_COLLECTION: ContextVar[list[Lowered] | None] = ContextVar("_COLLECTION", default=None)


def prepare(ctx: Any) -> bool:
    """Whether to tell of what is being lowered; if so, JAX is made to lower each equal use."""
    if not any(listener.listens() for listener in tuple(LISTENERS)):
        return False
    skip_lowering_cache(ctx)
    return True


def tell(lowered: Lowered) -> None:
    """Tell the listeners of a convolution."""
    collection = _COLLECTION.get()
    if collection is not None:
        collection.append(lowered)
        return
    for listener in tuple(LISTENERS):  # another thread may remove one
        if listener.listens():
            listener.hear(lowered)


@contextmanager
def listening(listener: Listener) -> Iterator[None]:
    """A context in which somebody listens."""
    LISTENERS.append(listener)
    try:
        yield
    finally:
        LISTENERS.remove(listener)


@contextmanager
def collect() -> Iterator[list[Lowered]]:
    """A context that keeps what this thread tells from the listeners, until it is told again."""
    collection: list[Lowered] = []
    token = _COLLECTION.set(collection)
    try:
        yield collection
    finally:
        _COLLECTION.reset(token)
