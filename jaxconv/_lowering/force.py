"""Force spellings: one by its name, for those who test, or what was measured."""

from contextlib import AbstractContextManager
from typing import Any

import jax

from jaxconv._lowering.measured import Measured

SPELLINGS = (
    "reference",
    "direct",
    "matmul",
    "planes",
    "columns",
    "dots",
    "products",
    "taps",
    "each",
    "phases",
    "alike",
    "depth",
    "slabs",
    "abreast",
    "images",
    "blocks",
    "pieces",
    "skewed",
    "strips",
    "swapped",
)

#: Part of the key of every jit: a change recompiles what is compiled already.
_context = jax.make_user_context(None)


def forced(spelling: str | Measured | None) -> AbstractContextManager[Any]:
    """A context in which contractions are spelled so, on CPU.

    With the name of a spelling, every one is; where it cannot spell a contraction, an error says so
    (`"blocks"` is for programs that XLA splits over several devices; `"abreast"`, `"images"` and
    `"swapped"` want a batch of known size). A data gradient that a spelling has no form for becomes
    phases, and those are spelled so. A rewrite is forced, but not what it hands on: there the rules
    choose. `"reference"` is one `lax.conv_general_dilated` in the layouts at hand, on GPU too. With
    what `jaxconv.measure` found, those are that were faster so; the rules choose for the others.
    With None they choose for all, also within another such context.

    Derivatives are forced where they are taken: inside the context. `jax.jit` retraces under it,
    so that a jitted function is to be called inside, too.

    Args:
      spelling: a name, what `jaxconv.measure` found, or None.

    Raises:
      ValueError: no such spelling.

    Example:
      >>> import jax.numpy as jnp, jaxconv
      >>> with jaxconv.forced("reference"):
      ...     jaxconv.convolution(jnp.ones((1, 8, 8, 2)), jnp.ones((3, 3, 2, 4))).shape
      (1, 6, 6, 4)
    """
    if not isinstance(spelling, Measured | None) and spelling not in SPELLINGS:
        raise ValueError(
            f"forced: `spelling` must be one of {', '.join(SPELLINGS)}, what `jaxconv.measure` "
            f"found, or None; got {spelling!r}"
        )
    context: AbstractContextManager[Any] = _context(spelling)
    return context


def forced_here() -> str | Measured | None:
    """What is forced here and now."""
    spelling: str | Measured | None = _context.value
    return spelling
