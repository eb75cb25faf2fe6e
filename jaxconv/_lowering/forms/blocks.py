"""Loops over parts; and what keeps XLA:CPU from fusing forms, and from converting 16-bit floats."""

import math
import re
from collections.abc import Callable
from functools import cache, partial, reduce, wraps
from importlib.metadata import version

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxconv._base import meshes
from jaxconv._base.jax_names import set_xla_metadata
from jaxconv._base.reshape import merge_groups, split_groups
from jaxconv._base.typing import DType, Index
from jaxconv._lowering.problem import Call, Emit, Problem


def find_divisor(total: int, most: int) -> int:
    """Find the largest divisor of `total` that is at most `most`, or 1."""
    return next(n for n in range(max(min(most, total), 1), 0, -1) if total % n == 0)


def slice_along(x: Array, start: Index, size: int, axis: int) -> Array:
    """Slice `size` elements along an axis: `x` itself, if it has no more."""
    if size == x.shape[axis]:
        return x
    return as_floats(lax.dynamic_slice_in_dim(sliceable(x), start, size, axis), x.dtype)


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
    isolated: bool = False,
) -> Array:
    """Concatenate blocks along an axis of `total` indices; `block(start)` gives `size` of these.

    The last block overlaps its neighbour if `size` does not divide `total`. Blocks read `operands`.
    XLA:CPU runs a loop that writes into a part of an array on one core, and fuses a block into such
    a loop. If `isolated`, blocks are computed before, on all cores, and the loop only copies.
    """
    if size == total:
        return block(0)
    compute = partial(call_isolated, block) if isolated else block
    shape = jax.eval_shape(block, 0)
    extents = (*shape.shape[:axis], total, *shape.shape[axis + 1 :])
    zeros, *_ = meshes.vary_alike(jnp.zeros(extents, shape.dtype), *operands)

    def step(n: Index, out: Array) -> Array:
        start = jnp.minimum(n * size, total - size) if total % size else n * size
        return lax.dynamic_update_slice_in_dim(out, compute(start), start, axis)

    out: Array = lax.fori_loop(0, -(-total // size), step, zeros)
    return out


def loop_over_groups(
    size: int,
    compute: Callable[[Array, Array], Array],
    first: Array,
    second: Array,
    groups: int,
    side_by_side: int = 1,
) -> Array:
    """Call `compute(first, second)` in a loop over parts of `size` groups, a divisor of `groups`.

    Groups are on the last axis of the operands and of the result. XLA may compute up to
    `side_by_side` parts at a time.
    """
    if size == groups:
        return compute(first, second)
    parts = [split_groups(sliceable(x), groups // size) for x in (first, second)]

    def part(n: Array) -> Array:
        operands = (lax.dynamic_index_in_dim(x, n, -2, keepdims=False) for x in parts)
        return compute(*(as_floats(x, first.dtype) for x in operands))

    side = find_divisor(groups // size, side_by_side)

    def some(n: Array) -> Array:
        return jnp.stack([part(n * side + m) for m in range(side)])

    out = lax.map(some, jnp.arange(groups // size // side))
    out = out.reshape(groups // size, *out.shape[2:])
    return merge_groups(jnp.moveaxis(out, 0, -2))


def map_groups(
    most: Callable[[Problem], int] = lambda problem: problem.geometry.groups,
) -> Callable[[Emit], Emit]:
    """Make a channels-last form for one group a form for all groups, each contiguous.

    The new form takes at most `most(problem)` groups at a time, which bounds the memory of the form
    and of moving the groups to the front.
    """

    def decorate(form: Emit) -> Emit:
        @wraps(form)
        def each(first: Array, second: Array, call: Call) -> Array:
            geometry = call.geometry
            if geometry.groups == 1:
                return form(first, second, call)
            alone = call.of(geometry.with_groups(1))
            size = find_divisor(geometry.groups, most(call.problem))

            def one(first: Array, second: Array) -> Array:
                return form(first, second, alone)

            def compute(*operands: Array) -> Array:
                moved = (jnp.moveaxis(split_groups(x, size), -2, 0) for x in operands)
                return merge_groups(jnp.moveaxis(jax.vmap(one)(*moved), 0, -2))

            return loop_over_groups(size, compute, first, second, geometry.groups)

        return each

    return decorate


def unless_finite(out: Array, otherwise: Callable[[], Array]) -> Array:
    """Give a result in which zeros may have met infinities, or if so what `otherwise` computes.

    Such a product is NaN, and no product with a factor that is not finite is finite. So a result
    that is finite throughout is right.
    """
    safe: Array = lax.cond(jnp.isfinite(out).all(), lambda: out, otherwise)
    return safe


# Isolated functions. A form of several XLA operations is fast as written: operands are in memory,
# and one loop writes the result. XLA's fusion would put the normalisation or activation before a
# convolution inside the convolution's loop, to be computed again for every tap, and the whole sum
# inside each consumer of the sum: training steps took up to four times as long. A barrier does not
# help: XLA:CPU keeps barriers while it rewrites algebra, and drops them before it fuses. A function
# that is not inlined helps: fusion never crosses its border. Forms are isolated on CPU only.

#: Elements of both operands that are worth the time to compile another function.
MIN_ELEMENTS = 1 << 12


def call_isolated(function: Callable[..., Array], *operands: Array | int) -> Array:
    """Call a function of one result that XLA does not inline."""
    # JAX writes the attribute at the operation that makes the value: the call.
    out: Array = set_xla_metadata(jax.jit(function)(*operands), inlineable="false")
    return out


def are_small(*operands: Array) -> bool:
    """Whether operands are too small for another function; not if the batch is symbolic."""
    known = all(isinstance(n, int) for x in operands for n in x.shape)
    return known and sum(math.prod(x.shape) for x in operands) < MIN_ELEMENTS


# Floats as integers of the same size: XLA:CPU moves 16-bit floats by way of float32.

#: The first release of jaxlib that was seen to slice 16-bit floats in a loop as they are. Earlier
#: ones convert the whole tensor to float32 before the loop.
FIRST_SLICING_RELEASE = (0, 11, 2)

_BITS = {1: jnp.uint8, 2: jnp.uint16, 4: jnp.uint32, 8: jnp.uint64}


def movable(x: Array) -> Array:
    """Cast 16-bit floats to integers."""
    return as_integers(x) if x.dtype.itemsize == 2 else x


def sliceable(x: Array) -> Array:
    """Cast 16-bit floats to integers where XLA:CPU would convert all of `x` before a loop.

    Elsewhere a loop of multiply-adds takes up to four times as long with integers.
    """
    return x if has_release(*FIRST_SLICING_RELEASE) else movable(x)


@cache
def has_release(*least: int) -> bool:
    """Whether jaxlib is of this release or a later one."""
    numbers = re.findall(r"\d+", version("jaxlib"))  # also of "0.13.0rc1"
    return tuple(map(int, numbers[: len(least)])) >= least


def as_integers(x: Array) -> Array:
    """Cast floats to integers of the same size."""
    return lax.bitcast_convert_type(x, _BITS[x.dtype.itemsize])


def as_floats(x: Array, dtype: DType) -> Array:
    """Cast integers back to floats of `dtype`; floats stay."""
    return x if x.dtype == dtype else lax.bitcast_convert_type(x, dtype)
