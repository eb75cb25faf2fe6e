"""`forced`: compute by one form, for tests, or by the forms that `measure` found fastest."""

import warnings
from contextlib import AbstractContextManager
from typing import Any

import jax

from jaxconv._lowering import (
    bundle,
    col2im,
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

#: All forms on CPU by name, except zeros.
FORMS: dict[str, Form] = {
    form.name: form
    for form in (
        reference.FORM,
        onednn.FORM,
        convolution.FORM,
        col2im.FORM,
        dot.FORM,
        dot.IN_PARTS,
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
        split.PIECES,
        split.TAPS,
        split.FIRST_AXIS,
        bundle.FORM,
    )
}

#: The table without oneDNN.
PORTABLE = "portable"

#: Earlier names of forms: `forced` takes them, with a warning, until 0.2.
OLD_NAMES = {
    "direct": "convolution",
    "matmul": "dot",
    "columns": "im2col",
    "dots": "dot by tap",
    "planes": "dot by image",
    "taps": "multiply-adds",
    "each": "by group",
    "pieces": "by piece",
    "slabs": "by first axis",
    "swapped": "swap",
}

#: Part of the key of every jit: under another value, functions are compiled again.
_context = jax.make_user_context(None)


def forced(form: str | Measured | None) -> AbstractContextManager[Any]:
    """A context in which one form computes the contractions, on CPU.

    The form of that name computes every contraction, or an error says that it cannot. If it cannot
    compute data gradients, these are rewritten first, and it computes their parts. If the form is a
    rewrite itself, its parts are planned as usual.

    ``"portable"`` plans as usual, without oneDNN. ``"reference"`` is one
    ``lax.conv_general_dilated`` in the layouts at hand, on GPU and TPU too. What `jaxconv.measure`
    found is used where it was faster. None returns to the tables, also within another such context.

    Take derivatives, and call jitted functions, inside the context: it acts when JAX traces them.

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
    """What the innermost `forced` context holds."""
    form: str | Measured | None = _context.value
    return form
