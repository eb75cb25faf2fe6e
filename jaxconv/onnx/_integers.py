"""8-bit convolutions: exact sums in int32, and their quantisation.

Of x - x_zero and w - w_zero, where padding is zero. Two ways, both exact:

- Dots of int8, for which XLA has fast code: with s = sum over the window,
  ``s(x*w) - x_zero*s(w) - w_zero*s(x - x_zero)``. So padding is x_zero there. uint8 becomes int8,
  with its zero point, by taking 128 off both. The windows of all images are written to memory.
- Float32, by the library's own convolution, on CPU and where a sum has so few products that it
  cannot exceed 2**24: depthwise and grouped layers, whose dots are tiny, and stems. (On other
  platforms a convolution in float32 may be Winograd's, which is not exact.)
"""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxconv._base.geometry import Geometry
from jaxconv._base.typing import ArrayLike
from jaxconv._contract.contractions import contract
from jaxconv._lowering.forms.window import read_tap, taps
from jaxconv._lowering.isolate import call_apart
from jaxconv._rules.op import OPS
from jaxconv._rules.resolve import resolve_sizes

#: Products of two numbers of 9 bits whose sum float32 holds exactly.
MAX_FLOAT_PRODUCTS = 2**24 // 255**2


def sum_integers(
    op: str,
    window: Mapping[str, Any],
    x: ArrayLike,
    w: ArrayLike,
    x_zero_point: ArrayLike | None,
    w_zero_point: ArrayLike | None,
) -> Array:
    """Compute ConvInteger."""
    resolved = resolve_sizes(OPS["convolution"], x.shape, w.shape, None, output_padding=0, **window)
    _check_numbers(op, 1, x_zero_point=x_zero_point)
    _check_numbers(op, w.shape[0], w_zero_point=w_zero_point)
    sums: Array = _sum(resolved.geometry, x, w, x_zero_point, _drop_middle(w, w_zero_point))
    return sums


def quantise(
    op: str,
    window: Mapping[str, Any],
    x: ArrayLike,
    x_scale: ArrayLike,
    x_zero_point: ArrayLike,
    w: ArrayLike,
    w_scale: ArrayLike,
    w_zero_point: ArrayLike,
    y_scale: ArrayLike,
    y_zero_point: ArrayLike,
    B: ArrayLike | None,
) -> Array:
    """Compute QLinearConv."""
    resolved = resolve_sizes(OPS["convolution"], x.shape, w.shape, None, output_padding=0, **window)
    _check_numbers(op, 1, x_scale=x_scale, x_zero_point=x_zero_point)
    _check_numbers(op, 1, y_scale=y_scale, y_zero_point=y_zero_point)
    _check_numbers(op, w.shape[0], w_scale=w_scale, w_zero_point=w_zero_point)
    if B is not None and B.shape != w.shape[:1]:
        raise ValueError(f"{op}: `B` must have shape {w.shape[:1]}; got {B.shape}")
    middle_or_not = _drop_middle(w, w_zero_point)
    found: Array = _quantise(
        resolved.geometry, x, x_scale, x_zero_point, w, w_scale, middle_or_not,
        y_scale, y_zero_point, B,
    )  # fmt: skip
    return found


def _check_numbers(op: str, channels: int, **values: ArrayLike | None) -> None:
    """Check that values are numbers, or vectors with a number for each of several channels."""
    for name, value in values.items():
        if value is not None and (value.ndim > 1 or value.size not in (1, channels)):
            or_each = f", or ({channels},) for the output channels" if channels > 1 else ""
            raise ValueError(
                f"{op}: `{name}` must have shape () or (1,){or_each}; got {value.shape}"
            )


def _drop_middle(w: ArrayLike, zero: ArrayLike | None) -> ArrayLike | None:
    """Drop a zero point of the weights that is known to be the middle of their type."""
    zero = np.zeros(1, w.dtype) if zero is None else zero
    known = not isinstance(zero, jax.core.Tracer)
    return None if known and np.all(np.asarray(zero) == _middle(w)) else zero


def _middle(x: ArrayLike) -> int:
    return 128 if x.dtype == jnp.uint8 else 0


@partial(jax.jit, static_argnums=0)
def _quantise(
    geometry: Geometry,
    x: Array,
    x_scale: Array,
    x_zero: Array,
    w: Array,
    w_scale: Array,
    w_zero: Array | None,
    y_scale: Array,
    y_zero_point: Array,
    bias: Array | None,
) -> Array:
    per_channel = (1, -1, *(1 for _ in geometry.axes))
    sums = _sum(geometry, x, w, x_zero, w_zero)
    if bias is not None:
        sums = sums + bias.reshape(per_channel)
    scale = x_scale.reshape(()) * w_scale.reshape(-1) / y_scale.reshape(())
    scaled = jnp.round(sums.astype(jnp.float32) * scale.reshape(per_channel))
    found = scaled + y_zero_point.reshape(()).astype(jnp.float32)
    # XLA does not promise how it converts numbers beyond the range of an integer type.
    ends = jnp.iinfo(y_zero_point.dtype)
    return jnp.clip(found, float(ends.min), float(ends.max)).astype(y_zero_point.dtype)


@partial(jax.jit, static_argnums=0)
def _sum(
    geometry: Geometry, x: Array, w: Array, x_zero: Array | None, w_zero: Array | None
) -> Array:
    """Sum the products of each window; without `w_zero` it is the middle of the type."""
    x_zero = jnp.zeros((), jnp.int32) if x_zero is None else x_zero.reshape(()).astype(jnp.int32)
    operands = [_to_int8(x), _to_int8(w), x_zero - np.int32(_middle(x))]
    if w_zero is not None:
        operands.append(w_zero.reshape(-1).astype(jnp.int32) - np.int32(_middle(w)))
    dots = partial(_sum_by_dots, geometry)
    is_one_dot = geometry.groups == 1 and math.prod(w.shape[2:]) == 1
    if math.prod(w.shape[1:]) <= MAX_FLOAT_PRODUCTS and not is_one_dot:
        on_cpu = partial(_sum_by_floats, geometry)
    else:
        on_cpu = partial(call_apart, dots)
    sums: Array = lax.platform_dependent(*operands, cpu=on_cpu, default=dots)
    return sums


def _to_int8(x: Array) -> Array:
    """Take 128 off uint8: modulo 256, that flips the highest bit."""
    if x.dtype == jnp.int8:
        return x
    return lax.bitcast_convert_type(jnp.bitwise_xor(x, np.uint8(128)), jnp.int8)


def _sum_by_floats(geometry: Geometry, x: Array, w: Array, *zeros: Array) -> Array:
    floats = [each.astype(jnp.float32) for each in (x, w, *zeros)]
    x, w, x_zero, *w_zero = floats
    for zero in w_zero:
        w = w - zero.reshape(-1, *(1,) * (w.ndim - 1))
    sums = contract(
        "coarse", x - x_zero, w, geometry=geometry, precision=(lax.Precision.HIGHEST,) * 2,
        dtype=jnp.dtype(jnp.float32),
    )  # fmt: skip
    return sums.astype(jnp.int32)


def _sum_by_dots(geometry: Geometry, x: Array, w: Array, x_zero: Array, *w_zero: Array) -> Array:
    groups, images, channels = geometry.groups, x.shape[0], w.shape[0]
    extents = [axis.coarse for axis in geometry.axes]
    pads = [(axis.pad_low, axis.pad_high, 0) for axis in geometry.axes]
    x = lax.pad(x, x_zero.astype(jnp.int8), [(0, 0, 0)] * 2 + pads)
    # (groups, output channels, taps and input channels)
    w = w.reshape(groups, channels // groups, w.shape[1], -1).swapaxes(2, 3)
    w = w.reshape(groups, channels // groups, -1)
    dot = partial(jnp.einsum, preferred_element_type=jnp.int32)
    if one_tap := all(axis.kernel == 1 for axis in geometry.axes):
        # A dot for each image, whose channels stay first: neither x nor the sums are transposed.
        columns = read_tap((0,) * geometry.rank, x, geometry)
        columns = columns.reshape(images, groups, w.shape[2], math.prod(extents))
        each: tuple[Any, ...] = (None, ..., None)

        def sum_with(w: Array) -> Array:
            return dot("ngok,ngkp->ngop", jnp.broadcast_to(w, (images, *w.shape)), columns)
    else:
        x, geometry = jnp.moveaxis(x, 1, -1), geometry.canonical()
        shape = images, math.prod(extents), groups, x.shape[-1] // groups
        windows = [read_tap(tap, x, geometry).reshape(shape) for tap in taps(geometry)]
        columns, each = jnp.concatenate(windows, axis=-1), (None, None, ...)

        def sum_with(w: Array) -> Array:
            return dot("npgk,gok->npgo", columns, w)

    sums = sum_with(w) - (x_zero * w.sum(2, dtype=jnp.int32))[each]
    for zero in w_zero:
        of_x = sum_with(jnp.ones_like(w[:, :1])) - x_zero * np.int32(w.shape[2])
        sums = sums - of_x * jnp.broadcast_to(zero, channels).reshape(groups, -1)[each]
    if one_tap:
        return sums.reshape(images, channels, *extents)
    return jnp.moveaxis(sums.reshape(images, *extents, channels), -1, 1)
