"""8-bit convolutions: exact sums in int32, and their quantisation.

The sums are of (x - x_zero) * (w - w_zero), and padding is 0. With s = sum over the window, that is
``s(x*w) - x_zero*s(w) - w_zero*s(x - x_zero)``, where x is padded with x_zero: two contractions of
int8. uint8 becomes int8, with its zero point, by taking 128 off both.
"""

import math
from collections.abc import Mapping
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxconv._base.dtypes import INT32
from jaxconv._base.geometry import Geometry
from jaxconv._base.messages import Refusal
from jaxconv._base.typing import ArrayLike
from jaxconv._contract.contractions import contract
from jaxconv._rules.op import OPS
from jaxconv._rules.resolve import is_too_large, resolve_sizes


def compute_integers(
    op: str,
    window: Mapping[str, Any],
    x: ArrayLike,
    w: ArrayLike,
    B: ArrayLike | None = None,
    **numbers: ArrayLike | None,
) -> Array:
    """Compute ConvInteger or, if the scales are among the numbers, QLinearConv."""
    resolved = resolve_sizes(OPS["convolution"], x.shape, w.shape, **window)
    extents = tuple(axis.fine + axis.pad_low + axis.pad_high for axis in resolved.geometry.axes)
    if is_too_large((*x.shape[:2], *extents)):  # the sums write the padding
        rule = "must leave the padded `x` at most 2**48 elements"
        raise ValueError(Refusal(op, "pads", rule, f"padded extents {extents}"))
    for name, value in numbers.items():
        channels = w.shape[0] if name.startswith("w_") else 1
        if value is not None and (value.ndim > 1 or value.size not in (1, channels)):
            or_each = f", or ({channels},) for the output channels" if channels > 1 else ""
            raise ValueError(
                f"{op}: `{name}` must have shape () or (1,){or_each}; got {value.shape}"
            )
    if B is not None and B.shape != w.shape[:1]:
        raise ValueError(f"{op}: `B` must have shape {w.shape[:1]}; got {B.shape}")
    numbers["w_zero_point"] = _drop_middle(w, numbers["w_zero_point"])
    result: Array
    if "y_scale" in numbers:
        result = _quantise(resolved.geometry, x, w, B, **numbers)
    else:
        result = _sum(resolved.geometry, x, w, **numbers)
    return result


def _drop_middle(w: ArrayLike, zero: ArrayLike | None) -> ArrayLike | None:
    """Return the zero point of the weights; None if it is known to be the middle of their type."""
    zero = np.zeros(1, w.dtype) if zero is None else zero
    known = not isinstance(zero, jax.core.Tracer)
    return None if known and np.all(np.asarray(zero) == _middle(w)) else zero


def _middle(x: ArrayLike) -> int:
    return 128 if x.dtype == jnp.uint8 else 0


@partial(jax.jit, static_argnums=0)
def _quantise(
    geometry: Geometry,
    x: Array,
    w: Array,
    B: Array | None,
    x_scale: Array,
    w_scale: Array,
    y_scale: Array,
    y_zero_point: Array,
    **zero_points: Array | None,
) -> Array:
    per_channel = (1, -1, *(1 for _ in geometry.axes))
    sums = _sum(geometry, x, w, **zero_points)
    if B is not None:
        sums = sums + B.reshape(per_channel)
    scale = x_scale.reshape(()) * w_scale.reshape(-1) / y_scale.reshape(())
    scaled = jnp.round(sums.astype(jnp.float32) * scale.reshape(per_channel))
    found = scaled + y_zero_point.reshape(()).astype(jnp.float32)
    # XLA does not promise how it converts numbers beyond the range of an integer type.
    ends = jnp.iinfo(y_zero_point.dtype)
    return jnp.clip(found, float(ends.min), float(ends.max)).astype(y_zero_point.dtype)


@partial(jax.jit, static_argnums=0)
def _sum(
    geometry: Geometry, x: Array, w: Array, x_zero_point: Array | None, w_zero_point: Array | None
) -> Array:
    """Sum the products of each window; without `w_zero_point` it is the middle of the type."""
    x_zero = jnp.zeros(()) if x_zero_point is None else x_zero_point.reshape(())
    x_zero = x_zero.astype(jnp.int32) - np.int32(_middle(x))
    middle, x, w = _middle(w), _to_int8(x), _to_int8(w)
    pads = [(axis.pad_low, axis.pad_high, 0) for axis in geometry.axes]
    x = lax.pad(x, x_zero.astype(jnp.int8), [(0, 0, 0)] * 2 + pads)
    padded = geometry.padded()

    def sum_with(w: Array) -> Array:
        return contract(
            "coarse", x, w, geometry=padded, precision=(lax.Precision.DEFAULT,) * 2, dtype=INT32
        )

    def per_channel(values: Array) -> Array:
        return values.reshape(1, -1, *(1 for _ in geometry.axes))

    sums = sum_with(w) - per_channel(x_zero * w.sum(range(1, w.ndim), dtype=jnp.int32))
    if w_zero_point is None:
        return sums
    w_zero = w_zero_point.reshape(-1).astype(jnp.int32) - np.int32(middle)
    # Weights of ones: the sum of the data in each window, for each group.
    of_group = sum_with(jnp.ones((geometry.groups, *w.shape[1:]), w.dtype))
    of_x = of_group - x_zero * np.int32(math.prod(w.shape[1:]))
    return sums - jnp.repeat(of_x, w.shape[0] // geometry.groups, 1) * per_channel(w_zero)


def _to_int8(x: Array) -> Array:
    """Take 128 off uint8: modulo 256, that flips the highest bit."""
    if x.dtype == jnp.int8:
        return x
    return lax.bitcast_convert_type(jnp.bitwise_xor(x, np.uint8(128)), jnp.int8)
