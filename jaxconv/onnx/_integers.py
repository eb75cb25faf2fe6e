"""8-bit convolutions: exact sums in int32, and their quantisation.

Of x - x_zero and w - w_zero, where padding is zero. Two ways, both exact:

- Dots of int8, for which XLA has fast code: with s = sum over the window,
  ``s(x*w) - x_zero*s(w) - w_zero*s(x - x_zero)``. So padding is x_zero there. uint8 becomes int8,
  with its zero point, by taking 128 off both.
- Float32, by the library's own convolution, on CPU and where a group has so few products that no
  sum exceeds 2**24: grouped and depthwise layers, whose dots are tiny. (On other platforms a
  convolution in float32 may be Winograd's, which is not exact.)
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
    x_zero_point: ArrayLike | None = None,
    w_zero_point: ArrayLike | None = None,
) -> Array:
    """Compute ConvInteger."""
    resolved = resolve_sizes(OPS["convolution"], x.shape, w.shape, None, output_padding=0, **window)
    geometry, channels = resolved.geometry, w.shape[0]
    x_zero = _read_number(op, "x_zero_point", x_zero_point, x.dtype, 1).reshape(())
    w_zero = _read_number(op, "w_zero_point", w_zero_point, w.dtype, channels)
    (x, x_zero), (w, w_zero) = _to_int8(x, x_zero), _to_int8(w, w_zero)
    known = not isinstance(w_zero, jax.core.Tracer)
    operands = (x, w, x_zero) if known and not np.any(w_zero) else (x, w, x_zero, w_zero)
    return _sum(geometry, *operands)


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
    B: ArrayLike | None,  # noqa: N803
) -> Array:
    """Compute QLinearConv."""
    sums = sum_integers(op, window, x, w, x_zero_point, w_zero_point)
    per_channel = (-1,) + (1,) * (x.ndim - 2)
    if B is not None:
        if B.shape != w.shape[:1]:
            raise ValueError(f"{op}: `B` must have shape {w.shape[:1]}; got {B.shape}")
        sums = sums + jnp.asarray(B).reshape(1, *per_channel)
    x_scale, y_scale = (
        _read_number(op, name, value, value.dtype, 1).reshape(())
        for name, value in {"x_scale": x_scale, "y_scale": y_scale}.items()
    )
    zero = _read_number(op, "y_zero_point", y_zero_point, y_zero_point.dtype, 1).reshape(())
    scale = x_scale * _read_number(op, "w_scale", w_scale, w_scale.dtype, w.shape[0]) / y_scale
    ends = jnp.iinfo(zero.dtype)
    scaled = sums.astype(jnp.float32) * jnp.asarray(scale).reshape(1, *per_channel)
    found = jnp.round(scaled) + zero.astype(jnp.float32)
    # XLA does not promise how it converts numbers beyond the range of an integer type.
    return jnp.clip(found, float(ends.min), float(ends.max)).astype(zero.dtype)


def _read_number(
    op: str, name: str, value: ArrayLike | None, dtype: Any, channels: int
) -> ArrayLike:
    """Read a number, or one for each of several channels, as a vector; 0 if not given."""
    if value is None:
        return np.zeros(1, dtype)
    if value.ndim > 1 or value.size not in (1, channels):
        or_each = f", or ({channels},) for the output channels" if channels > 1 else ""
        raise ValueError(f"{op}: `{name}` must have shape () or (1,){or_each}; got {value.shape}")
    return value.reshape(-1)


def _to_int8(x: ArrayLike, zero: ArrayLike) -> tuple[ArrayLike, ArrayLike]:
    """Shift uint8 and its zero point by 128 to int8; the zero point as int32."""
    if x.dtype == jnp.int8:
        return x, zero.astype(jnp.int32)
    # Flipping the highest bit takes 128 off, modulo 256.
    shifted = lax.bitcast_convert_type(jnp.bitwise_xor(x, np.uint8(128)), jnp.int8)
    return shifted, zero.astype(jnp.int32) - np.int32(128)


@partial(jax.jit, static_argnums=0)
def _sum(geometry: Geometry, x: Array, w: Array, x_zero: Array, *w_zero: Array) -> Array:
    """Sum the products of a window; of int8 and zero points in int32."""
    products = math.prod(w.shape[1:])
    dots = partial(_sum_by_dots, geometry)
    if geometry.groups > 1 and products <= MAX_FLOAT_PRODUCTS:
        on_cpu = partial(_sum_by_floats, geometry)
    else:
        on_cpu = partial(call_apart, dots)
    sums: Array = lax.platform_dependent(x, w, x_zero, *w_zero, cpu=on_cpu, default=dots)
    return sums


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
    groups, channels = geometry.groups, w.shape[0]
    pads = [(axis.pad_low, axis.pad_high, 0) for axis in geometry.axes]
    x = lax.pad(x, x_zero.astype(jnp.int8), [(0, 0, 0)] * 2 + pads)
    x = jnp.moveaxis(x, 1, -1)
    geometry = geometry.canonical()
    windows = [read_tap(tap, x, geometry) for tap in taps(geometry)]
    columns = jnp.concatenate(
        [each.reshape(*each.shape[:-1], groups, -1) for each in windows], axis=-1
    )
    # (groups, taps and input channels, output channels)
    w = w.reshape(groups, channels // groups, w.shape[1], -1).transpose(0, 3, 2, 1)
    w = w.reshape(groups, columns.shape[-1], -1)
    dot = partial(jnp.einsum, "...gk,gko->...go", preferred_element_type=jnp.int32)
    sums = dot(columns, w) - _align(x_zero * w.sum(1, dtype=jnp.int32), x.ndim)
    for zero in w_zero:
        of_x = dot(columns, jnp.ones_like(w[..., :1])) - x_zero * np.int32(columns.shape[-1])
        zeros = jnp.broadcast_to(zero, channels).reshape(groups, -1)
        sums = sums - of_x * _align(zeros, x.ndim)
    return jnp.moveaxis(sums.reshape(*sums.shape[:-2], channels), -1, 1)


def _align(per_channel: Array, ndim: int) -> Array:
    """Put the axes of a result before groups and channels."""
    return lax.expand_dims(per_channel, range(ndim - 1))
