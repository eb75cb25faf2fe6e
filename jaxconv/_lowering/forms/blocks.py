"""Loops over parts of a contraction: groups, sums over blocks, and blocks side by side."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial, reduce, wraps

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxconv._base import meshes
from jaxconv._base.geometry import Geometry
from jaxconv._base.reshape import merge_groups, split_groups
from jaxconv._base.typing import Index
from jaxconv._lowering.form import Call, Emit
from jaxconv._lowering.forms import bits
from jaxconv._lowering.isolate import call_apart


def _count_all(first: Array, geometry: Geometry) -> int:
    return geometry.groups


def map_groups(most: Callable[[Array, Geometry], int] = _count_all) -> Callable[[Emit], Emit]:
    """Make a channels-last form for one group a form for all groups, each contiguous.

    The new form takes at most `most(first operand, geometry)` groups at a time, which bounds the
    memory of the form and of moving the groups to the front.
    """

    def decorate(form: Emit) -> Emit:
        @wraps(form)
        def each(first: Array, second: Array, call: Call) -> Array:
            geometry = call.geometry
            if geometry.groups == 1:
                return form(first, second, call)
            alone = call.of(replace(geometry, groups=1))

            def one(first: Array, second: Array) -> Array:
                return form(first, second, alone)

            def compute(count: int, *operands: Array) -> Array:
                moved = (jnp.moveaxis(split_groups(x, count), -2, 0) for x in operands)
                return merge_groups(jnp.moveaxis(jax.vmap(one)(*moved), 0, -2))

            return loop_over_groups(most(first, geometry), compute, first, second, geometry.groups)

        return each

    return decorate


def find_divisor(total: int, most: int) -> int:
    """Find the largest divisor of `total` that is at most `most`, or 1."""
    return next(n for n in range(max(min(most, total), 1), 0, -1) if total % n == 0)


def sum_over_blocks(
    block: Callable[[Index], Array], count: int, *operands: Array, side_by_side: int = 1
) -> Array:
    """Sum `block(n)` over n below `count`; blocks read `operands`.

    XLA may compute up to `side_by_side` blocks at a time.
    """
    if count == 1:
        return block(0)
    side = find_divisor(count, side_by_side)
    shape = jax.eval_shape(block, 0)
    zeros, *_ = meshes.vary_alike(jnp.zeros(shape.shape, shape.dtype), *operands)

    def add(n: Index, out: Array) -> Array:
        return reduce(lax.add, (block(n * side + m) for m in range(side)), out)

    out: Array = lax.fori_loop(0, count // side, add, zeros)
    return out


def concatenate_blocks(
    block: Callable[[Index], Array],
    size: int,
    total: int,
    axis: int,
    *operands: Array,
    apart: bool = False,
) -> Array:
    """Concatenate blocks along an axis of `total` indices; `block(start)` gives `size` of these.

    The last block overlaps its neighbour if `size` does not divide `total`. Blocks read `operands`.
    XLA:CPU runs a loop that writes into a part of an array on one core, and fuses a block into such
    a loop. If `apart`, blocks are computed before, on all cores, and the loop only copies.
    """
    if size == total:
        return block(0)
    compute = partial(call_apart, block) if apart else block
    shape = jax.eval_shape(block, 0)
    extents = (*shape.shape[:axis], total, *shape.shape[axis + 1 :])
    zeros, *_ = meshes.vary_alike(jnp.zeros(extents, shape.dtype), *operands)

    def step(n: Index, out: Array) -> Array:
        start = jnp.minimum(n * size, total - size) if total % size else n * size
        return lax.dynamic_update_slice_in_dim(out, compute(start), start, axis)

    out: Array = lax.fori_loop(0, -(-total // size), step, zeros)
    return out


def slice_along(x: Array, start: Index, size: int, axis: int) -> Array:
    """Slice `size` elements along an axis; all elements are `x` itself."""
    if size == x.shape[axis]:
        return x
    return bits.to_floats(lax.dynamic_slice_in_dim(bits.sliceable(x), start, size, axis), x.dtype)


def loop_over_groups(
    most: int,
    form: Callable[[int, Array, Array], Array],
    first: Array,
    second: Array,
    groups: int,
    side_by_side: int = 1,
) -> Array:
    """Call `form(groups, first, second)` in a loop over equal parts of at most `most` groups.

    Groups are on the last axis of the operands and of the result. XLA may compute up to
    `side_by_side` parts at a time.
    """
    size = find_divisor(groups, most)
    if size == groups:
        return form(groups, first, second)
    parts = [split_groups(bits.sliceable(x), groups // size) for x in (first, second)]

    def part(n: Array) -> Array:
        operands = (lax.dynamic_index_in_dim(x, n, -2, keepdims=False) for x in parts)
        return form(size, *(bits.to_floats(x, first.dtype) for x in operands))

    side = find_divisor(groups // size, side_by_side)

    def some(n: Array) -> Array:
        return jnp.stack([part(n * side + m) for m in range(side)])

    out = lax.map(some, jnp.arange(groups // size // side))
    out = out.reshape(groups // size, *out.shape[2:])
    return merge_groups(jnp.moveaxis(out, 0, -2))
