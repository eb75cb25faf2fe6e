"""Variables of the environment that change what the package does."""

import os
import warnings
from functools import cache

from jaxconv._base.messages import either


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
