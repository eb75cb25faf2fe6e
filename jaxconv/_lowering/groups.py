"""Group by group: each one contiguous, several at a time, and none sees another's numbers."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxconv._reshape import merge_groups, split_groups


def each(contract: Callable[..., Any], first: Any, second: Any, groups: int, together: int) -> Any:
    """A contraction of one group for all of them; their channels are the last axis everywhere.

    At most `together` at a time, which bounds the memory of a contraction that needs much.
    """
    operands = [jnp.moveaxis(split_groups(x, groups), -2, 0) for x in (first, second)]
    if together >= groups:
        out = jax.vmap(contract)(*operands)
    else:
        out = lax.map(lambda pair: contract(*pair), tuple(operands), batch_size=max(together, 1))
    return merge_groups(jnp.moveaxis(out, 0, -2))
