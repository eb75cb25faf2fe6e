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


def by_group(most: Callable[[Any, Geometry], int] = _all) -> Callable[..., Any]:
    """Make a spelling of one group one of all groups, whose channels are the last axis everywhere.

    At most `most(first operand, geometry)` groups at a time, which bounds the memory of a
    spelling that needs much, and of moving the groups to the front.
    """

    def decorate(spelling: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(spelling)
        def each(first: Any, second: Any, *, geometry: Geometry, **params: Any) -> Any:
            groups = geometry.groups
            if groups == 1:
                return spelling(first, second, geometry=geometry, **params)
            one = partial(spelling, geometry=replace(geometry, groups=1), **params)
            some = divisor(groups, most(first, geometry))

            def of_some(*operands: Any) -> Any:
                return jax.vmap(one)(*(_groups_first(x, some) for x in operands))

            if some == groups:
                out = of_some(first, second)
            else:
                parts = [split_groups(x, groups // some) for x in (first, second)]
                count = jnp.arange(groups // some)
                out = lax.map(lambda n: of_some(*(part(x, n) for x in parts)), count)
                out = out.reshape(groups, *out.shape[2:])
            return merge_groups(jnp.moveaxis(out, 0, -2))

        return each

    return decorate


def _groups_first(x: Any, groups: int) -> Any:
    return jnp.moveaxis(split_groups(x, groups), -2, 0)


def part(x: Any, n: Any) -> Any:
    """The n-th of the last axis but one."""
    return lax.dynamic_index_in_dim(x, n, x.ndim - 2, keepdims=False)


def divisor(number: int, most: int) -> int:
    """The largest one that is at most so large, and at least 1."""
    return next(n for n in range(max(min(number, most), 1), 0, -1) if number % n == 0)
