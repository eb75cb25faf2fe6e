"""What decides how convolutions are compiled, beside what they are."""

import os
import warnings
from dataclasses import dataclass
from functools import cache
from typing import Any

import jax

from jaxconv._base.jax_names import count_spmd_devices, is_lowered_for_export
from jaxconv._base.messages import either

# Contexts are parts of the key of every jit: under another value, functions are compiled again. JAX
# must know a context before JAX compiles the functions that the context tells apart, so the
# contexts are made when the package is imported. `_lowering/force.py` and `_lax/install.py` set the
# contexts, and say what each value means.

#: The argument of `jaxconv.forced`.
FORCED = jax.make_user_context(None)

#: What `jaxconv.install` takes over, a `Scope` of `_lax/install.py`; False if it does not hold.
INSTALLED = jax.make_user_context(False)


@dataclass(frozen=True)
class Target:
    """A platform, and the ways of compiling for it that decide what a program may hold."""

    #: as JAX names it, or None in a rule for all platforms that have no table of their own
    platform: str | None
    #: the devices over which XLA itself splits the program
    devices: int = 1
    #: whether `jax.export` lowers the program
    exported: bool = False

    @classmethod
    def of(cls, platform: str | None, ctx: Any) -> "Target":
        """The target of the program for which JAX calls a lowering rule of a platform."""
        return cls(platform, count_spmd_devices(ctx), is_lowered_for_export(ctx))

    @property
    def alone(self) -> bool:
        """Whether the program is for one device, and this process runs it."""
        return self.devices == 1 and not self.exported

    @property
    def may_call_onednn(self) -> bool:
        """Whether a program may call oneDNN; `onednn_here` says if this process may."""
        return self.platform == "cpu" and self.alone


def read(name: str, accepted: tuple[str, ...], default: str = "") -> str:
    """Read a variable, in lower case; one that is not set, or set wrongly, is the default."""
    value = os.environ.get(name)
    return _check(name, value, accepted, default) if value else default


@cache  # so that each wrong value warns once in a process
def _check(name: str, value: str, accepted: tuple[str, ...], default: str) -> str:
    if value.lower() in accepted:
        return value.lower()
    rule = f"{name} must be {either(accepted)}; got {value!r}, which counts as not set"
    warnings.warn(rule, stacklevel=3)
    return default
