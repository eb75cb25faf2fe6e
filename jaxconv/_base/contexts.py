"""The contexts that decide how convolutions are compiled: parts of the key of every jit.

Under another value, functions are compiled again. JAX must know a context before JAX compiles the
functions that the context tells apart, so the contexts are made when the package is imported.
`_lowering/force.py` and `_lax/install.py` set the contexts, and say what each value means.
"""

import jax

#: The argument of `jaxconv.forced`.
FORCED = jax.make_user_context(None)

#: What `jaxconv.install` takes over, a `Scope` of `_lax/install.py`; False if it does not hold.
INSTALLED = jax.make_user_context(False)
