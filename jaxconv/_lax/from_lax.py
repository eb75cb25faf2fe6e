"""lax's general convolution as a contraction: which slot, which geometry, which axes move.

On one axis, where D is the dilated lhs,

    out[q] = sum_t rhs[t] * D[stride*q + rhs_dilation*t - low]

Lhs, rhs and out fill the three slots in one of four ways. A weights gradient has batch
groups, or JAX's numbers of a gradient (see `_looks_like_gradient`):

    lhs dilated   weights gradient   lhs      rhs      out      kernel
    no            no                 fine     kernel   coarse   as it is
    yes           no                 coarse   kernel   fine     reversed
    no            yes                fine     coarse   kernel   as it is
    yes           yes                coarse   fine     kernel   reversed

The second way needs a stride of 1, and the last an rhs_dilation of 1: else there is no contraction.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from math import prod
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax.export import is_symbolic_dim
from jax.sharding import NamedSharding

from jaxconv._base.dtypes import ACCUMULATION, EIGHT_BITS, INT32
from jaxconv._base.geometry import Axis, DataLayout, Geometry, KernelLayout, Slot, reorder
from jaxconv._base.reshape import move_groups
from jaxconv._base.typing import DType, Shape, Typed
from jaxconv._contract.contractions import contract

Numbers = lax.ConvDimensionNumbers

#: Why a convolution has no contraction.
NO_AXIS = "no spatial axis"
SYMBOLIC = "a symbolic extent other than the batch"
MALFORMED = "what lax refuses, too: a stride of 0, say"
EMPTY = "an empty operand or result"
NOT_FORWARD = "8-bit integers with lhs_dilation, batch groups or a gradient's dimension_numbers"
BOTH_STRIDES = "lhs_dilation together with a stride, or with a weights gradient's rhs_dilation"


#: The parameters of `jax.lax.conv_general_dilated_p` that say what is summed, and those that the
#: type of the result says, too.
SIZES = (
    "window_strides",
    "padding",
    "lhs_dilation",
    "rhs_dilation",
    "dimension_numbers",
    "feature_group_count",
    "batch_group_count",
)
IN_THE_RESULT = ("preferred_element_type", "out_sharding")


@dataclass(frozen=True)
class Mapped:
    """The contraction that computes a convolution of lax's."""

    result: Slot
    geometry: Geometry
    #: whether lhs is the coarse tensor; then lax's kernel is reversed, with groups on the fine axis
    lhs_dilated: bool


def compute(
    found: Mapped,
    params: Mapping[str, Any],
    dtype: DType,
    lhs: Array,
    rhs: Array,
    *,
    sharding: NamedSharding | None = None,
) -> Array:
    """Compute a convolution of these parameters, with a result of this type, by the contraction."""
    lhs_spec, rhs_spec, _ = map(tuple, params["dimension_numbers"])
    geometry, kernel = found.geometry, found.geometry.kernel
    groups, to_kernel = geometry.groups, found.result == "kernel"
    precision = params["precision"] or (lax.Precision.DEFAULT,) * 2
    if to_kernel:  # in the layout of lhs, which rhs takes, too
        in_batch = params["feature_group_count"]  # lax has these groups in the channels
        lhs = move_groups(lhs, in_batch, source=lhs_spec[1], target=lhs_spec[0])
        rhs = reorder(rhs, _exchange(rhs_spec), geometry.data.spec)
    else:
        lhs = reorder(lhs, lhs_spec, geometry.data.spec)
        if found.lhs_dilated:
            rhs = move_groups(lax.rev(rhs, kernel.spatial), groups, kernel.fine, kernel.coarse)
    reversed_kernel = to_kernel and found.lhs_dilated
    if reversed_kernel:  # lhs is coarse, rhs fine
        lhs, rhs, precision = rhs, lhs, precision[::-1]
    moved = reversed_kernel and groups > 1  # sharded after the groups have moved
    out = contract(
        found.result,
        lhs,
        rhs,
        geometry=geometry,
        precision=precision,
        dtype=dtype,
        sharding=None if moved else sharding,
    )
    if reversed_kernel:
        out = lax.rev(move_groups(out, groups, kernel.coarse, kernel.fine), kernel.spatial)
    return jax.sharding.reshard(out, sharding) if moved and sharding is not None else out


def as_contraction(operands: Sequence[Typed], result: Typed, **params: Any) -> Mapped | str:
    """Find the contraction of a convolution of lax's of these types, or why there is none.

    The parameters are the parameters of `jax.lax.conv_general_dilated_p`.
    """
    if unknown := sorted(params.keys() - {*SIZES, "precision", *IN_THE_RESULT}):
        return f"unknown parameter {unknown[0]}"
    lhs, rhs = operands
    precision, dtype = params["precision"], result.dtype
    if lhs.dtype not in (*ACCUMULATION, *EIGHT_BITS) or lhs.dtype != rhs.dtype:
        return f"operands of type {lhs.dtype} and {rhs.dtype}"
    if lhs.dtype in EIGHT_BITS:
        fits = dtype == INT32
    else:
        wider = dtype in ACCUMULATION and dtype.itemsize > lhs.dtype.itemsize
        fits = dtype == lhs.dtype or wider
    if not fits:
        return f"a result of type {dtype}"
    if not isinstance(precision, tuple | None):
        return f"precision {precision}"
    found = find_contraction(lhs.shape, rhs.shape, **{name: params[name] for name in SIZES})
    if lhs.dtype in EIGHT_BITS and isinstance(found, Mapped) and found.result != "coarse":
        return NOT_FORWARD
    return found


def find_contraction(
    lhs: Shape,
    rhs: Shape,
    *,
    window_strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int],
    rhs_dilation: Sequence[int],
    dimension_numbers: Numbers,
    feature_group_count: int,
    batch_group_count: int,
) -> Mapped | str:
    """Find the contraction of a convolution of operands of these shapes, or why there is none.

    The parameters are those of `jax.lax.conv_general_dilated_p`, as users give them.
    """
    if any(sorted(spec) != [*range(len(lhs))] for spec in dimension_numbers):
        return MALFORMED
    (batch, features, *spatial), (outputs, _, *window), _ = dimension_numbers
    if not spatial:
        return NO_AXIS
    counts, steps = (feature_group_count, batch_group_count), (lhs_dilation, rhs_dilation)
    if any(len(column) != len(spatial) for column in (window_strides, padding, *steps)):
        return MALFORMED
    extents = [lhs[axis] for axis in spatial], [rhs[axis] for axis in window]
    columns = *extents, window_strides, *zip(*padding, strict=True), *steps
    if any(map(is_symbolic_dim, chain([rhs[outputs], *counts], *columns))):
        return SYMBOLIC
    known = [*counts, *chain(window_strides, *steps)]
    if not all(isinstance(n, int | np.integer) for n in known) or min(known) < 1:
        return MALFORMED
    axes = [_read_axis(*map(int, row)) for row in zip(*columns, strict=True)]
    if rhs[outputs] < 1 or any(min(a.fine, a.kernel, a.coarse) < 1 for a in axes):
        return EMPTY
    spread = [int(step) if a.fine > 1 else 1 for step, a in zip(lhs_dilation, axes, strict=True)]
    lhs_dilated = max(spread) > 1
    to_kernel = batch_group_count > 1 or _looks_like_gradient(batch, axes, lhs_dilated)
    channels, summed = (lhs[batch], lhs[features]) if to_kernel else (lhs[features], 1)
    if is_symbolic_dim(channels) or (feature_group_count > 1 and is_symbolic_dim(summed)):
        return SYMBOLIC
    if channels == 0 or summed == 0:
        return EMPTY
    if to_kernel:
        axes = [a.exchanged() for a in axes]
    if lhs_dilated and any(a.stride > 1 for a in axes):
        return BOTH_STRIDES
    if lhs_dilated:  # lhs is coarse, and the kernel reversed
        axes = [replace(a.reversed(), stride=step) for a, step in zip(axes, spread, strict=True)]
    result: Slot = "kernel" if to_kernel else "fine" if lhs_dilated else "coarse"
    groups = prod(map(int, counts))
    geometry = _make_geometry(result, axes, groups, lhs_dilated, dimension_numbers)
    return Mapped(result, geometry, lhs_dilated)


def _read_axis(
    extent: int, taps: int, stride: int, low: int, high: int, lhs_dilation: int, rhs_dilation: int
) -> Axis:
    """Make an axis on which lhs is the fine tensor; a step over a single element becomes 1."""
    room = lhs_dilation * (extent - 1) + low + high - rhs_dilation * (taps - 1)
    places = room // stride + 1
    stride = stride if places > 1 else 1
    return Axis(extent, taps, places, stride, rhs_dilation if taps > 1 else 1, low)


def _looks_like_gradient(batch_axis: int, axes: list[Axis], lhs_dilated: bool) -> bool:
    """Whether these are the numbers that JAX gives to a weights gradient without groups.

    JAX exchanges batch and channels, so that the batch is not axis 0; slides the gradient of the
    result over lhs, so that rhs has at least as many positions as the result; and turns a stride
    into rhs_dilation.
    """
    if batch_axis == 0 or prod(a.kernel for a in axes) < prod(a.coarse for a in axes):
        return False
    return not lhs_dilated or all(a.dilation == 1 for a in axes)


def _make_geometry(
    result: Slot, axes: list[Axis], groups: int, lhs_dilated: bool, numbers: Numbers
) -> Geometry:
    """Make the geometry, with data as the result has it, or a weights gradient's lhs."""
    _, (coarse, fine, *window), (batch, channel, *spatial) = numbers
    if result == "kernel":  # lax takes the batch for channels
        (channel, batch, *spatial), _, (fine, coarse, *window) = numbers
    if lhs_dilated:  # lhs is coarse
        coarse, fine = fine, coarse
    data = DataLayout(batch, channel, tuple(spatial))
    kernel = KernelLayout(coarse, fine, tuple(window))
    return Geometry(tuple(axes), groups, data, kernel)


def _exchange(spec: tuple[int, ...]) -> tuple[int, ...]:
    """Exchange the first two axes of a spec of lax's: batch and channels, or out and in."""
    return (spec[1], spec[0], *spec[2:])
