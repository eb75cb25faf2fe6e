"""Force forms: one by its name, for those who test, or what was measured."""

import warnings
from contextlib import AbstractContextManager
from typing import Any

import jax

from jaxconv._lowering import (
    convolution,
    dot,
    dots,
    im2col,
    multiply_adds,
    onednn,
    phases,
    reference,
    split,
    swap,
)
from jaxconv._lowering.measured import Measured
from jaxconv._lowering.plan import Form

#: All forms on CPU by their names, but zeros.
FORMS: dict[str, Form] = {
    form.name: form
    for form in (
        reference.FORM,
        onednn.FORM,
        convolution.FORM,
        dot.FORM,
        dots.BY_TAP,
        im2col.FORM,
        multiply_adds.FORM,
        multiply_adds.CHANNELS_FIRST,
        dots.BY_IMAGE,
        phases.FLIP,
        phases.PHASES,
        swap.FORM,
        split.GROUPS,
        split.BLOCKS,
        split.TAPS,
        split.FAR_TAPS,
        split.FIRST_AXIS,
    )
}

#: By the table, without oneDNN.
PORTABLE = "portable"

#: Earlier names, which still force, with a warning, until 0.2.
OLD_NAMES = {
    "direct": "convolution",
    "matmul": "dot",
    "columns": "im2col",
    "dots": "dot by tap",
    "planes": "dot by image",
    "taps": "multiply-adds",
    "each": "by group",
    "pieces": "by tap",
    "slabs": "by first axis",
    "swapped": "swap",
}

#: Part of the key of every jit: a change recompiles what is compiled already.
_context = jax.make_user_context(None)


def forced(form: str | Measured | None) -> AbstractContextManager[Any]:
    """A context in which contractions are computed by one form, on CPU.

    Every contraction is computed by the form of that name; where it cannot compute one, an error
    says so. A data gradient that a form does not know is rewritten as contractions that it may
    know. A form that rewrites is forced itself, and its parts are planned as ever.
    ``"portable"`` plans as ever, without oneDNN. ``"reference"`` is one
    ``lax.conv_general_dilated`` in the layouts at hand, on GPU and TPU too. What `jaxconv.measure`
    found is used where it was faster. None returns to the tables, within another such context too.

    Derivatives are forced where they are taken: inside the context. `jax.jit` traces again under
    it, so call a jitted function inside, too.

    Args:
      form: a name, what `jaxconv.measure` found, or None.

    Raises:
      ValueError: no such form.

    Example:
      >>> import jax.numpy as jnp, jaxconv
      >>> with jaxconv.forced("portable"):
      ...     jaxconv.convolution(jnp.ones((1, 8, 8, 2)), jnp.ones((3, 3, 2, 4))).shape
      (1, 6, 6, 4)
    """
    if isinstance(form, str) and form in OLD_NAMES:
        new = OLD_NAMES[form]
        warnings.warn(f"forced: {form!r} is now called {new!r}", DeprecationWarning, stacklevel=2)
        form = new
    known = form is None or isinstance(form, Measured)
    if not known and not (isinstance(form, str) and form in (*FORMS, PORTABLE)):
        raise ValueError(
            f"forced: `form` must be one of {', '.join((PORTABLE, *FORMS))}, what "
            f"`jaxconv.measure` found, or None; got {form!r}"
        )
    context: AbstractContextManager[Any] = _context(form)
    return context


def forced_here() -> str | Measured | None:
    """What is forced here and now."""
    form: str | Measured | None = _context.value
    return form
