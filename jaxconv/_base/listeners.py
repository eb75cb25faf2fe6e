"""Who hears of each convolution that JAX lowers: an open `jaxconv.profile`, and the log.

`lax` and the package's forms know nothing of listeners. `_contract/contractions.py` tells of each
contraction, and `_lax/install.py` of lax's own convolutions.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, NamedTuple

from jaxconv._base.environment import Target
from jaxconv._base.jax_names import Equation, skip_lowering_cache

#: A form's name and why it was chosen, for each form in use, the outermost first.
Steps = tuple[tuple[str, str], ...]


class Lowered(NamedTuple):
    """A convolution as it was lowered."""

    #: lax's convolution as lax has it, whoever computes it, or a contraction
    equation: Equation
    #: the contraction by which it is computed; None if it stays with lax
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
