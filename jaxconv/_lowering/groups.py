"""Group by group, and none sees another's numbers; channels are the last axis everywhere."""

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


def by_group(most: Callable[[Any, Geometry], int] = _all) -> Callable[..., Any]:
    """Make a spelling of one group one of all groups, each contiguous.

    At most `most(first operand, geometry)` groups at a time, which bounds the memory of a
    spelling that needs much, and of moving the groups to the front.
    """

    def decorate(spelling: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(spelling)
        def each(first: Any, second: Any, *, geometry: Geometry, **params: Any) -> Any:
            if geometry.groups == 1:
                return spelling(first, second, geometry=geometry, **params)
            one = partial(spelling, geometry=replace(geometry, groups=1), **params)

            def some(count: int, *operands: Any) -> Any:
                moved = (jnp.moveaxis(split_groups(x, count), -2, 0) for x in operands)
                return merge_groups(jnp.moveaxis(jax.vmap(one)(*moved), 0, -2))

            return at_most(most(first, geometry), some, first, second, geometry.groups)

        return each

    return decorate


def at_most(most: int, spelling: Callable[..., Any], first: Any, second: Any, groups: int) -> Any:
    """`spelling(groups, first, second)`, in a loop over equal parts of at most so many groups."""
    some = next(n for n in range(max(min(groups, most), 1), 0, -1) if groups % n == 0)
    if some == groups:
        return spelling(groups, first, second)
    parts = [split_groups(x, groups // some) for x in (first, second)]

    def part(n: Any) -> Any:
        one = (lax.dynamic_index_in_dim(x, n, x.ndim - 2, keepdims=False) for x in parts)
        return spelling(some, *one)

    out = lax.map(part, jnp.arange(groups // some))
    return merge_groups(jnp.moveaxis(out, 0, -2))
