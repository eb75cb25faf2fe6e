"""Each group by itself, as a contraction of one group, which XLA:CPU runs twice as fast."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax.numpy as jnp

from jaxconv._geometry import Geometry, Slot
from jaxconv._lowering.apart import apart
from jaxconv._lowering.groups import at_most

#: As many groups as may each have a piece of the program, which XLA may run side by side.
MOST = 8


@apart
def _each(
    first: Any,
    second: Any,
    *,
    result: Slot,
    geometry: Geometry,
    contract: Callable[..., Any],
    **params: Any,
) -> Any:
    """Spell with `contract`, of one group; the kernel's groups are along its last axis."""
    one = partial(contract, result, geometry=replace(geometry, groups=1), **params)
    data, kernel = geometry.data.channel, geometry.kernel.coarse
    channels = (data, kernel, data) if result == "coarse" else (data, data, kernel)

    def some(count: int, *operands: Any) -> Any:
        *ins, out = channels
        split = (jnp.split(x, count, axis) for x, axis in zip(operands, ins, strict=True))
        return jnp.concatenate([one(*pair) for pair in zip(*split, strict=True)], out)

    return at_most(MOST, some, first, second, geometry.groups, channels)


to_coarse = partial(_each, result="coarse")
to_kernel = partial(_each, result="kernel")
