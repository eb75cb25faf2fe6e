"""Quantize and Dequantize: 8-bit integers for numbers, by a scale and a zero point."""

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxconv._base.typing import DType
from jaxconv._rules.values import NO_DEFAULT, Attribute

QUANTIZATION_ATTRIBUTES = {
    "qtype": Attribute("string", "per_tensor", ("per_tensor", "per_channel")),
    "axis": Attribute("s64", 1),
    "scales": Attribute("f32[]", NO_DEFAULT),
    "zps": Attribute("s64[]", None),
}


def quantize(dtype: DType, src: Array, **attributes: Any) -> Array:
    """Compute ``round(src/scale + zp)``, ties to the even integer, clipped to the type's range."""
    scales, zero_points = _align_scales(src, **attributes)
    ends = jnp.iinfo(dtype)
    found = jnp.round(src.astype(jnp.float32) / scales + zero_points)
    # XLA does not promise how it converts numbers beyond the range of an integer type.
    found = jnp.clip(found, float(ends.min), float(ends.max))
    return lax.convert_element_type(found, dtype)


def dequantize(dtype: DType, src: Array, **attributes: Any) -> Array:
    """Compute ``(src - zp) * scale`` in float32."""
    scales, zero_points = _align_scales(src, **attributes)
    return lax.convert_element_type((src.astype(jnp.float32) - zero_points) * scales, dtype)


def _align_scales(
    src: Array, qtype: str, axis: int, scales: Sequence[float], zps: Sequence[int] | None
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Reshape scales and zero points, as float32, to broadcast to src."""
    zps = [0] * len(scales) if zps is None else zps
    if qtype == "per_tensor":
        extents, shape = 1, [1] * src.ndim
        meaning = "one entry, since `qtype` is per_tensor"
    else:
        if not -src.ndim <= axis < src.ndim:
            raise ValueError(
                f"`axis` must be from {-src.ndim} to {src.ndim - 1}, of src of shape "
                f"{src.shape}; got {axis}"
            )
        extents = src.shape[axis]
        shape = [extents if a == axis % src.ndim else 1 for a in range(src.ndim)]
        meaning = f"{extents} entries, one for each place on axis {axis} of src {src.shape}"
    for name, values in {"scales": scales, "zps": zps}.items():
        if len(values) != extents:
            raise ValueError(f"`{name}` must have {meaning}; got {len(values)}")
    if not all(scale > 0 for scale in scales):
        raise ValueError(f"`scales` must be above 0; got {list(scales)}")
    broadcast = [np.asarray(values, np.float32).reshape(shape) for values in (scales, zps)]
    return broadcast[0], broadcast[1]
