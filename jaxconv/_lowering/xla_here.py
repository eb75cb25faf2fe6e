"""How fast this release of XLA:CPU is, as far as the table depends on it."""

import re
from functools import cache
from importlib.metadata import version

#: The first release of jaxlib whose dense convolution of two spatial axes was measured to use all
#: cores. Earlier releases use all cores for many result channels or long rows only.
FAST_DENSE = (0, 12)


#: The first release of jaxlib that was seen to slice 16-bit floats in a loop as they are. Earlier
#: ones convert the whole tensor to float32 before the loop.
SLICES_FLOATS = (0, 11, 2)


@cache
def fast_dense() -> bool:
    """Whether XLA:CPU's dense convolution uses all cores."""
    return _is_at_least(FAST_DENSE)


@cache
def slices_floats() -> bool:
    """Whether XLA:CPU slices 16-bit floats in a loop, and does not convert them before."""
    return _is_at_least(SLICES_FLOATS)


def _is_at_least(first: tuple[int, ...]) -> bool:
    numbers = re.findall(r"\d+", version("jaxlib"))  # also of "0.13.0rc1"
    return tuple(map(int, numbers[: len(first)])) >= first
