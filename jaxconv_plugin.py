"""What `JAXCONV_INSTALL=1 python anything.py` starts, so that no program has to be edited.

When JAX starts its backends, it imports every module that stands in the entry points of the group
`jax_plugins`, and calls `initialize`. To cost nothing where the variable is not set, the module
stands outside the package, whose import imports the operations.
"""

import os


def initialize() -> None:
    """Import jaxconv, which then installs itself, if JAXCONV_INSTALL is set.

    JAX holds a lock meanwhile, so nothing here may ask for a device. JAX must start in any case.
    """
    if os.environ.get("JAXCONV_INSTALL", "0") in ("", "0"):
        return
    try:
        import jaxconv  # noqa: F401
    except Exception as error:
        import warnings

        said = f"JAXCONV_INSTALL is set, but jaxconv is not used, since importing it fails: {error}"
        warnings.warn(said, stacklevel=1)
