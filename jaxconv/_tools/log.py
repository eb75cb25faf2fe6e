"""The log: a line for each convolution that JAX lowers, with the line of Python that wrote it."""

import logging
import os
import sys
import sysconfig
from functools import cache, partial
from pathlib import Path
from traceback import walk_stack
from typing import NamedTuple

import jax

from jaxconv._base import environment
from jaxconv._base.environment import Listener, Lowered, Steps
from jaxconv._base.jax_names import walk_equation_sources

LOG = logging.getLogger("jaxconv")

#: Values of JAXCONV_LOG.
LEVELS = ("debug", "info", "warning", "error", "critical")

PACKAGE = Path(__file__).parents[1]


def set_up() -> None:
    """Listen, at what JAXCONV_LOG asks for: a level, and a handler that writes to stderr.

    Without it, a program that logs at INFO does not get a line for each of its convolutions, unless
    it sets the level of this logger.
    """
    if LISTENER not in environment.LISTENERS:
        environment.LISTENERS.append(LISTENER)
    asked = environment.read("JAXCONV_LOG", LEVELS)
    if not asked:
        LOG.setLevel(LOG.level or logging.WARNING)
        return
    LOG.setLevel(asked.upper())
    if not LOG.handlers:
        handler = logging.StreamHandler(sys.stderr)
        handler.setFormatter(logging.Formatter("%(name)s: %(message)s"))
        LOG.addHandler(handler)


def _log(lowered: Lowered) -> None:
    equation = lowered.equation
    operands = ", ".join(t.str_short() for t in equation.operands)
    written = describe(lowered.how), find_origin().line
    LOG.info("%s of %s: %s (%s)", equation.primitive.name, operands, *written)


LISTENER = Listener(partial(LOG.isEnabledFor, logging.INFO), _log)


def describe(how: Steps | str) -> str:
    """How a convolution is computed, in words."""
    if isinstance(how, str):
        return f"stays with lax: {how}"
    return "; ".join(f"{form}: {why}" for form, why in dict.fromkeys(how))


class Origin(NamedTuple):
    """Where the convolution that is being lowered was written."""

    #: the functions and scopes around it, as JAX joins them
    names: str
    #: the file and line
    line: str


def find_origin() -> Origin:
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
    return Origin(next(filter(None, (name for name, _ in around)), ""), f"{path}:{line}")


@cache
def _installed() -> tuple[str, ...]:
    """The folders of Python and of what is installed beside it."""
    names = ("stdlib", "platstdlib", "purelib", "platlib")
    return tuple({f"{sysconfig.get_path(name)}{os.sep}" for name in names})
