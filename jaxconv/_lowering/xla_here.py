"""How fast this release of XLA:CPU is, as far as the table depends on it."""

from functools import cache
from importlib.metadata import version

#: The first release of jaxlib whose dense convolution of two spatial axes was measured to use all
#: cores. Earlier releases use all cores for many result channels or long rows only.
FAST_DENSE = (0, 12)


@cache
def fast_dense() -> bool:
    """Whether XLA:CPU's dense convolution uses all cores."""
    return tuple(map(int, version("jaxlib").split(".")[:2])) >= FAST_DENSE
