"""A call with the arguments of `jax.lax`: checked, and computed by a contraction or by lax."""

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax.sharding import NamedSharding

from jaxconv._base import dtypes, meshes
from jaxconv._base.typing import DType, Precision, Shape, Typed
from jaxconv._lax import from_lax
from jaxconv._lax.from_lax import Mapped, Numbers
from jaxconv._rules import arguments, attributes

OP = "conv_general_dilated"


def convolve(
    lhs: Any, rhs: Any, strides: Any, padding: Any, lhs_dilation: Any, rhs_dilation: Any,
    dimension_numbers: Any, feature_group_count: Any, batch_group_count: Any,
    precision: Any, preferred: Any, out_sharding: Any,
) -> Array:  # fmt: skip
    """Compute by a contraction if there is one, else by lax, which also raises all errors."""
    if isinstance(padding, Iterator):  # a zip, say, can be read only once
        padding = tuple(padding)
    numbers: Any = lax.conv_dimension_numbers(lhs.shape, rhs.shape, dimension_numbers)
    window = (strides, padding, lhs_dilation, rhs_dilation)
    groups, numerics = (feature_group_count, batch_group_count), (precision, preferred)
    call = None
    if _known(lhs, rhs, *numerics, out_sharding):
        call = _find(lhs, rhs, numbers, window, groups, numerics, out_sharding)
    if call is None:
        return lax.conv_general_dilated(
            lhs, rhs, *window, numbers, *groups, *numerics, out_sharding
        )
    out: Array = _compiled(call, arguments.array(OP, "lhs", lhs), rhs)
    return out


@dataclass(frozen=True)
class _Call:
    """All that is static about a call."""

    found: Mapped
    zeros: tuple[tuple[int, int, int], ...]  # written out in lhs before, as `lax.pad` takes them
    precision: Precision
    dtype: DType
    sharding: NamedSharding | None


def _run(call: _Call, lhs: Array, rhs: Array) -> Array:
    meshes.check_meshes(OP, call.sharding, {"lhs": lhs, "rhs": rhs})
    if call.zeros:
        lhs = lax.pad(lhs, np.zeros((), lhs.dtype), call.zeros)
    return from_lax.compute(
        call.found, lhs, rhs, precision=call.precision, dtype=call.dtype, sharding=call.sharding
    )


_run.__name__ = _run.__qualname__ = OP  # what jaxprs and profiles show
_compiled = jax.jit(_run, static_argnums=0)


def _known(lhs: Typed, rhs: Typed, precision: Any, preferred: Any, out_sharding: Any) -> bool:
    """Whether the library supports these types, this precision and this `out_sharding`."""
    try:
        operand = arguments.common_dtype("", lhs=lhs, rhs=rhs)
        dtypes.result_dtype("", operand, preferred)
        attributes.precision("", precision)
    except (TypeError, ValueError):
        return False
    types = jax.typeof(lhs), jax.typeof(rhs)
    if all(t.weak_type for t in types):  # lax's result is weak then; the library's never is
        return False
    return out_sharding is None or any(meshes.explicit(t) is not None for t in types)


def _find(
    lhs: Array,
    rhs: Array,
    numbers: Numbers,
    window: Any,
    groups: Any,
    numerics: Any,
    sharding: Any,
) -> _Call | None:
    """The contraction; None if there is none, or if an argument is malformed."""
    params = _params(lhs.shape, rhs.shape, numbers, groups, *window)
    if params is None:
        return None
    shape, zeros = lhs.shape, None
    found = from_lax.mapped(shape, rhs.shape, **params)
    if found == from_lax.TWICE:
        around = dict(zip(numbers.lhs_spec[2:], params["lhs_dilation"], strict=True))
        zeros = tuple((0, 0, around.get(axis, 1) - 1) for axis in range(len(shape)))
        extents = zip(shape, zeros, strict=True)
        shape = tuple(n + (n - 1) * between if between else n for n, (_, _, between) in extents)
        params["lhs_dilation"] = (1,) * len(around)
        found = from_lax.mapped(shape, rhs.shape, **params)
    if isinstance(found, str):
        return None
    precision, preferred = numerics
    if sharding is not None:
        result = _shape(found, shape, rhs.shape, params["batch_group_count"])
        sharding = meshes.canonical(OP, sharding, result)
    dtype = dtypes.result_dtype(OP, dtypes.canonical(lhs.dtype), preferred)
    return _Call(found, zeros or (), attributes.precision(OP, precision), dtype, sharding)


def _shape(found: Mapped, lhs: Shape, rhs: Shape, batch_groups: int) -> Shape:
    """The shape of the result."""
    lhs_spec, rhs_spec, (batch, features, *spatial) = found.numbers
    places = [getattr(axis, found.result) for axis in found.geometry.axes]
    extents = {batch: lhs[lhs_spec[0]] // batch_groups, features: rhs[rhs_spec[0]]}
    extents |= dict(zip(spatial, places, strict=True))
    return tuple(extents[axis] for axis in range(len(lhs)))


def _params(
    lhs: Shape, rhs: Shape, numbers: Numbers, groups: Any,
    strides: Any, padding: Any, lhs_dilation: Any, rhs_dilation: Any,
) -> dict[str, Any] | None:  # fmt: skip
    """The parameters of lax's primitive in ints; None if they are malformed."""
    if any(sorted(spec) != [*range(len(shape))] for spec in numbers for shape in (lhs, rhs)):
        return None
    (batch, features, *spatial), (outputs, inputs, *window), _ = numbers
    try:
        feature_groups, batch_groups = map(operator.index, groups)
        ones = [1] * len(spatial)
        bases, spacings = (ones if d is None else list(d) for d in (lhs_dilation, rhs_dilation))
        if isinstance(padding, str):
            if bases != ones:  # lax refuses
                return None
            extents = [lhs[axis] for axis in spatial]
            reaches = [d * (rhs[axis] - 1) + 1 for d, axis in zip(spacings, window, strict=True)]
            padding = lax.padtype_to_pads(extents, reaches, strides, padding)
        low, high = zip(*padding, strict=True)
        steps = [tuple(map(operator.index, column)) for column in (strides, bases, spacings)]
        pads = [tuple(map(operator.index, pair)) for pair in zip(low, high, strict=True)]
    except (TypeError, ValueError):
        return None
    lengths = {len(column) for column in (*steps, pads)}
    if lengths != {len(spatial)} or min(feature_groups, batch_groups, *map(min, steps)) < 1:
        return None
    if min(feature_groups, batch_groups) > 1 or rhs[outputs] % (feature_groups * batch_groups):
        return None
    if lhs[features] != rhs[inputs] * feature_groups or (
        batch_groups > 1 and lhs[batch] % batch_groups
    ):
        return None
    return {
        "window_strides": steps[0],
        "padding": tuple(pads),
        "lhs_dilation": steps[1],
        "rhs_dilation": steps[2],
        "dimension_numbers": numbers,
        "feature_group_count": feature_groups,
        "batch_group_count": batch_groups,
    }
