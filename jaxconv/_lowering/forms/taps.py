"""A contraction as a part for each tap of the kernel, or for each tap of the first axis.

Data is channels-last. Parts are summed, or stand side by side in a kernel.
"""

import math
from dataclasses import replace
from functools import reduce

import jax.numpy as jnp
from jax import Array, lax

from jaxconv._base.geometry import Axis, Geometry
from jaxconv._base.reshape import pad, replace_axes
from jaxconv._lowering.forms import window
from jaxconv._lowering.problem import Call, Form, Problem

#: Taps that a program may write out one by one.
MAX_TAPS = 256


# By tap: a part has one tap, and only the padding of that tap. For strides and dilations beyond the
# image, a padded image would exceed the memory, and XLA, which counts extents in 31 bits, is
# silently wrong about larger extents.

#: Elements of the padded image, in multiples of the elements of the tensors.
MAX_PADDED_RATIO = 1000


def reaches_far(problem: Problem) -> bool:
    """Whether windows reach over little else than padding."""
    axes = problem.geometry.axes
    reach = [a.reach for a in axes]
    tensors = math.prod(a.fine for a in axes) + problem.positions + problem.taps
    return max(reach) >= 2**31 or math.prod(reach) > MAX_PADDED_RATIO * tensors


def _split_taps(problem: Problem) -> tuple[Problem, ...]:
    def of_tap(a: Axis, t: int) -> Axis:
        return replace(a, kernel=1, dilation=1, pad_low=a.pad_low - a.dilation * t)

    axes, taps = problem.geometry.axes, window.taps(problem.geometry)
    return tuple(problem.of_axes(list(map(of_tap, axes, tap))) for tap in taps)


def taps_to_data(data: Array, kernel: Array, call: Call) -> Array:
    """Sum the parts of all taps, to fine or to coarse."""
    wide, ones = call.numerics.wide, (1,) * call.geometry.rank
    terms = (
        part(data, window.weights_of_tap(tap, kernel).reshape(*ones, *kernel.shape[-2:]), wide)
        for tap, part in zip(window.taps(call.geometry), call.parts, strict=True)
    )
    return reduce(lax.add, terms)


def taps_to_kernel(fine: Array, coarse: Array, call: Call) -> Array:
    """Put the weights of all taps side by side."""
    shape = call.geometry.shape("kernel", fine.shape, coarse.shape)
    return jnp.stack([part(fine, coarse, call.numerics) for part in call.parts]).reshape(shape)


TAPS = Form(
    "by tap",
    {"coarse": taps_to_data, "fine": taps_to_data, "kernel": taps_to_kernel},
    cannot=lambda p: not 1 < p.taps <= MAX_TAPS,  # of one tap, it would be its own part
    parts=_split_taps,
)


# By first axis, which joins the batch; its taps are summed. XLA:CPU has fast convolutions of two
# spatial axes only, and cuDNN of three at most.


def _merge_first_axis(problem: Problem) -> tuple[Problem, ...]:
    batch = None if problem.batch is None else problem.batch * problem.geometry.axes[0].coarse
    rest = replace(problem.geometry, axes=problem.geometry.axes[1:]).canonical()
    return (replace(problem, geometry=rest, batch=batch),)


def axis_to_coarse(fine: Array, kernel: Array, call: Call) -> Array:
    """Sum the part over the taps of the first axis."""
    geometry, wide = call.geometry, call.numerics.wide
    sums = [
        call.part(slab, lax.index_in_dim(kernel, tap, keepdims=False), wide)
        for tap, slab in enumerate(read_slabs(fine, geometry))
    ]
    return replace_axes(reduce(lax.add, sums), 0, 1, (fine.shape[0], geometry.axes[0].coarse))


def axis_to_kernel(fine: Array, coarse: Array, call: Call) -> Array:
    """Put the weights of the taps of the first axis side by side."""
    coarse, slabs = merge_into_batch(coarse), read_slabs(fine, call.geometry)
    return jnp.stack([call.part(slab, coarse, call.numerics) for slab in slabs])


def read_slabs(fine: Array, geometry: Geometry) -> list[Array]:
    """Read the slab of each tap of the first axis, with that axis in the batch."""
    a = geometry.axes[0]
    fine = pad(fine, {1: (a.pad_low, a.pad_high, 0)})
    return [
        merge_into_batch(
            lax.slice_in_dim(fine, a.dilation * t, a.dilation * t + a.span, a.stride, axis=1)
        )
        for t in range(a.kernel)
    ]


def merge_into_batch(x: Array) -> Array:
    """Reshape (N, X1, ...) to ((N, X1), ...): a batch in front may stay sharded."""
    return replace_axes(x, 0, 2, (x.shape[0] * x.shape[1],))


FIRST_AXIS = Form(
    "by first axis",
    {"coarse": axis_to_coarse, "kernel": axis_to_kernel},
    cannot=lambda p: p.rank < 2,
    parts=_merge_first_axis,
)
