"""Each group by itself, as a contraction of one group, which XLA:CPU runs twice as fast."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax.numpy as jnp
from jax import lax

from jaxconv._geometry import Geometry, Slot
from jaxconv._lowering.apart import apart
from jaxconv._lowering.groups import divisor, part
from jaxconv._reshape import merge_groups, split_groups

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
    """Spell with `contract`, of one group; the channels are the last axis everywhere."""
    one = partial(contract, result, geometry=replace(geometry, groups=1), **params)
    some = divisor(geometry.groups, MOST)

    def of_some(*operands: Any) -> Any:
        split = (jnp.split(x, some, -1) for x in operands)
        return jnp.concatenate([one(*pair) for pair in zip(*split, strict=True)], -1)

    if some == geometry.groups:
        return of_some(first, second)
    parts = [split_groups(x, geometry.groups // some) for x in (first, second)]
    count = jnp.arange(geometry.groups // some)
    out = lax.map(lambda n: of_some(*(part(x, n) for x in parts)), count)
    return merge_groups(jnp.moveaxis(out, 0, -2))


to_coarse = partial(_each, result="coarse")
to_kernel = partial(_each, result="kernel")
