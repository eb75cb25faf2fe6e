"""Group by group: each one contiguous, several at a time, and none sees another's numbers."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial, wraps
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxconv._geometry import Geometry
from jaxconv._reshape import merge_groups, split_groups


def _all(first: Any, geometry: Geometry) -> int:
    return geometry.groups


def by_group(together: Callable[[Any, Geometry], int] = _all) -> Callable[..., Any]:
    """Make a spelling of one group one of all groups, whose channels are the last axis everywhere.

    At most `together(first operand, geometry)` groups at a time, which bounds the memory of
    a spelling that needs much.
    """

    def decorate(spelling: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(spelling)
        def each(first: Any, second: Any, *, geometry: Geometry, **params: Any) -> Any:
            if geometry.groups == 1:
                return spelling(first, second, geometry=geometry, **params)
            groups, count = geometry.groups, together(first, geometry)
            one = partial(spelling, geometry=replace(geometry, groups=1), **params)
            operands = [jnp.moveaxis(split_groups(x, groups), -2, 0) for x in (first, second)]
            if count >= groups:
                out = jax.vmap(one)(*operands)
            else:
                out = lax.map(lambda pair: one(*pair), tuple(operands), batch_size=max(count, 1))
            return merge_groups(jnp.moveaxis(out, 0, -2))

        return each

    return decorate
