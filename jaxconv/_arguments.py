"""Check the tensors an operation is given: arrays, of one accepted type, and a bias that fits."""

from typing import Any

import jax
import numpy as np

from jaxconv._dtypes import ACCUMULATION, DType
from jaxconv._resolve import Resolved


def array(op: str, name: str, value: Any) -> Any:
    """`value` as something jax.jit takes as an array."""
    if isinstance(value, jax.Array | np.ndarray):
        return value
    if hasattr(value, "__jax_array__"):  # a module's parameter, say
        return value.__jax_array__()
    raise TypeError(
        f"{op}: `{name}` must be a JAX or NumPy array; got {value!r} ({type(value).__name__})"
    )


def common_dtype(op: str, **arrays: Any) -> DType:
    """The one accepted type that all the arrays have."""
    types: dict[str, Any] = {
        name: jax.dtypes.canonicalize_dtype(a.dtype, allow_extended_dtype=True)
        for name, a in arrays.items()
    }
    dtype: DType
    (first, dtype), *others = types.items()
    for name, found in others:
        if found != dtype:
            raise TypeError(
                f"{op}: `{first}` and `{name}` must have the same type; got {dtype} and {found}. "
                f"Nothing is promoted: convert one of them with .astype"
            )
    if dtype not in ACCUMULATION:
        raise TypeError(
            f"{op}: `{first}` must have type {', '.join(d.name for d in ACCUMULATION)}; got {dtype}"
        )
    return dtype


def check_bias(op: str, bias: Any, resolved: Resolved) -> None:
    """A bias has one entry for each channel of dst."""
    channels = resolved.dst_shape[resolved.geometry.data.channel]
    if bias.shape != (channels,):
        raise ValueError(
            f"{op}: `bias` must have shape ({channels},), one entry for each dst channel; "
            f"got shape {bias.shape} for dst shape {resolved.dst_shape}"
        )
