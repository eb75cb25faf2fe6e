"""`forced`: compute by one form, for tests, or by the forms that `measure` found fastest."""

from contextlib import AbstractContextManager
from typing import Any

from jaxconv._base.contexts import FORCED
from jaxconv._lowering import cpu, tpu
from jaxconv._lowering.form import Form
from jaxconv._lowering.forms import reference
from jaxconv._lowering.measured import Measured

#: All forms that can be forced on CPU, by name: XLA:CPU may abort on forms of the GPU's table.
FORMS: dict[str, Form] = {
    form.name: form
    for form in (
        reference.FORM,
        *(
            line.form
            for tables in (cpu.TABLES, tpu.TABLES)
            for table in tables.values()
            for line in table
        ),
    )
}

#: The table of the CPU without oneDNN.
PORTABLE = "portable"

Forced = str | Measured | None


def forced(form: Forced) -> AbstractContextManager[Any]:
    """A context in which one form computes the contractions, on CPU.

    The form of that name computes every contraction, or an error says why not. If the form cannot
    compute data gradients, these are rewritten first, and the form computes the parts.
    If the form is a rewrite itself, the parts are planned as usual.

    ``"portable"`` plans as usual, without oneDNN. ``"reference"`` is one
    ``lax.conv_general_dilated`` in the layouts at hand, on GPU and TPU too. The result of
    `jaxconv.measure` names the forms that were faster. None returns to the tables, also within
    another such context.

    Take derivatives, and call jitted functions, inside the context, which acts when JAX traces.

    Args:
      form: a name, the result of `jaxconv.measure`, or None.

    Raises:
      ValueError: no such form.

    Example:
      >>> import jax.numpy as jnp, jaxconv
      >>> with jaxconv.forced("portable"):
      ...     jaxconv.convolution(jnp.ones((1, 8, 8, 2)), jnp.ones((3, 3, 2, 4))).shape
      (1, 6, 6, 4)
    """
    known = form is None or isinstance(form, Measured)
    if not known and not (isinstance(form, str) and form in (*FORMS, PORTABLE)):
        raise ValueError(
            f"forced: `form` must be one of {', '.join((PORTABLE, *FORMS))}, what "
            f"`jaxconv.measure` found, or None; got {form!r}"
        )
    context: AbstractContextManager[Any] = FORCED(form)
    return context
