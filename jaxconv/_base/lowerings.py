"""Each convolution that JAX lowers, told to reports and to the log while someone listens.

`lax` and the package's forms know nothing of listeners. `_contract/contractions.py` tells of each
contraction, and `_lax/install.py` of what stays with lax.
"""

import logging
import os
import sys
import sysconfig
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from traceback import walk_stack
from typing import Any, NamedTuple

import jax

from jaxconv._base import environment
from jaxconv._base.jax_names import Equation, skip_lowering_cache, walk_equation_sources

#: A form's name and why it was chosen, for each form in use, the outermost first.
Steps = tuple[tuple[str, str], ...]

LOG = logging.getLogger("jaxconv")

PACKAGE = Path(__file__).parents[1]

#: Values of JAXCONV_LOG.
LEVELS = ("debug", "info", "warning", "error", "critical")


class Lowered(NamedTuple):
    """A convolution as it was lowered."""

    #: lax's convolution as lax has it, whoever computes it, or a contraction
    equation: Equation
    #: the contraction by which it is computed; None if it stays with lax
    contraction: Equation | None
    #: the forms in use, or why it stays with lax
    how: Steps | str
    #: over how many devices XLA splits the program
    devices: int
    #: the functions and scopes around it, as JAX joins them
    names: str
    #: the file and line that wrote it
    line: str

    def __str__(self) -> str:
        operands = ", ".join(t.str_short() for t in self.equation.operands)
        return f"{self.equation.primitive.name} of {operands}: {told(self.how)} ({self.line})"


#: Whom to tell: for each `jaxconv.profile` that is open.
LISTENERS: list[Callable[[Lowered], None]] = []

#: The convolution of lax's that is being lowered by a contraction, and what is to tell of it.
_OF_LAX: ContextVar[tuple[Equation, list[Lowered]] | None] = ContextVar("_OF_LAX", default=None)


def heard(ctx: Any) -> bool:
    """Whether someone listens to what is being lowered; then JAX lowers each equal use."""
    if not LISTENERS and not LOG.isEnabledFor(logging.INFO):
        return False
    skip_lowering_cache(ctx)
    return True


def tell(equation: Equation, how: Steps | str, devices: int) -> None:
    """Tell the listeners of a contraction, or of a convolution of lax's that stays with lax."""
    contraction = None if isinstance(how, str) else equation
    of_lax, waiting = _OF_LAX.get() or (equation, None)
    lowered = Lowered(of_lax, contraction, how, devices, *_origin())
    if waiting is None:
        _publish(lowered)
    else:
        waiting.append(lowered)


@contextmanager
def of_lax(equation: Equation) -> Iterator[None]:
    """A context in which contractions are those of a convolution of lax's.

    The listeners hear of them at its end; of none, if an error ends it.
    """
    waiting: list[Lowered] = []
    token = _OF_LAX.set((equation, waiting))
    try:
        yield
    finally:
        _OF_LAX.reset(token)
    for lowered in waiting:
        _publish(lowered)


def _publish(lowered: Lowered) -> None:
    LOG.info("%s", lowered)
    for listener in tuple(LISTENERS):  # another thread may remove one
        listener(lowered)


def told(how: Steps | str) -> str:
    """How a convolution is computed, in words."""
    if isinstance(how, str):
        return f"stays with lax: {how}"
    return "; ".join(f"{form}: {why}" for form, why in dict.fromkeys(how))


def _origin() -> tuple[str, str]:
    """The innermost name around a convolution, and the innermost line of a user's own code.

    Of library code, if no user's wrote it. Where JAX does not know, as of an operation that is
    called outside of any jit, the line is the one that has it compiled.
    """
    around = list(walk_equation_sources())
    stack = [(frame.f_code.co_filename, line) for frame, line in walk_stack(None)]
    own = tuple(f"{folder}{os.sep}" for folder in (Path(jax.__file__).parent, PACKAGE))
    lines = [
        (path, line)
        for lines in (*(lines for _, lines in around), stack)
        for path, line in lines
        if not path.startswith(own)
    ]
    users = [line for line in lines if not line[0].startswith((*_installed(), "<frozen"))]
    path, line = (users or lines or [("unknown", 0)])[0]
    return next(filter(None, (name for name, _ in around)), ""), f"{path}:{line}"


@cache
def _installed() -> tuple[str, ...]:
    """The folders of Python and of what is installed beside it."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return tuple({f"{sysconfig.get_path(name)}{os.sep}" for name in names})


def _set_up_log() -> None:
    """What JAXCONV_LOG asks for: a level, and a handler that writes to stderr.

    Without it, a program that logs at INFO does not get a line for each of its convolutions, unless
    it sets the level of this logger.
    """
    asked = environment.read("JAXCONV_LOG", LEVELS)
    if not asked:
        LOG.setLevel(LOG.level or logging.WARNING)
        return
    LOG.setLevel(asked.upper())
    if not LOG.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        LOG.addHandler(handler)


_set_up_log()
