"""The contexts that decide how convolutions are compiled: parts of the key of every jit.

Under another value, functions are compiled again. JAX must know a context before it compiles what
the context is to tell apart, so these are made when the package is imported. What they mean, and
how they are set, is told where that is imported first: `_lowering/force.py` and `_lax/install.py`.
"""

import jax

#: What `jaxconv.forced` was given.
FORCED = jax.make_user_context(None)

#: Whether `jaxconv.install` holds.
INSTALLED = jax.make_user_context(False)

#: What `jaxconv.install` was given as `only` and `without`: None, or names.
CHOICE = jax.make_user_context((None, None))
