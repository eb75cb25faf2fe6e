"""Check the tensors an operation is given: arrays of accepted types, and of shapes that fit."""

from typing import Any, Protocol

import jax
import numpy as np
from jax import Array

from jaxconv._base.dtypes import ACCUMULATION, canonical
from jaxconv._base.messages import either, shown
from jaxconv._base.typing import ArrayLike, DType, Shape, Typed
from jaxconv._rules.resolve import Resolved


class HoldsArray(Protocol):
    """An object that holds an array: a module's parameter, say."""

    def __jax_array__(self) -> Array:
        """The array."""


#: The tensors that operations take.
TensorLike = ArrayLike | HoldsArray


def array(op: str, name: str, value: Any) -> ArrayLike:
    """Read `value` as an array that `jax.jit` takes, or raise an error."""
    if isinstance(value, Array):
        if not isinstance(value, jax.core.Tracer) and value.is_deleted():
            raise ValueError(
                f"{op}: `{name}` must still have its data; got an array of shape {value.shape} "
                f"that was deleted. Was it donated?"
            )
        return value
    if isinstance(value, np.ma.MaskedArray):
        raise TypeError(
            f"{op}: `{name}` must be a JAX or NumPy array; got a masked one. "
            f"Its method `filled` makes one without a mask"
        )
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "__jax_array__"):
        try:
            held = value.__jax_array__()
        except Exception as error:
            got = f"{shown(value)}, whose __jax_array__ raises {type(error).__name__}"
            raise TypeError(f"{op}: `{name}` must be a JAX or NumPy array; got {got}") from error
        if isinstance(held, Array | np.ndarray):
            return array(op, name, held)
        value = held
    raise TypeError(
        f"{op}: `{name}` must be a JAX or NumPy array; got {shown(value)}. "
        f"jax.numpy.asarray makes one of numbers and lists"
    )


def common_dtype(op: str, **arrays: Typed) -> DType:
    """Find the one accepted type that all arrays have, or raise an error."""
    types: dict[str, DType] = {name: canonical(a.dtype) for name, a in arrays.items()}
    dtype, *others = types.values()
    if dtype in ACCUMULATION and all(other == dtype for other in others):
        return dtype
    got = ", ".join(f"`{name}` {found}" for name, found in types.items())
    for name, found in types.items():
        if found not in ACCUMULATION:
            accepted = either(d.name for d in ACCUMULATION)
            raise TypeError(f"{op}: `{name}` must have type {accepted}; got {got}")
    raise TypeError(
        f"{op}: all arrays must have the same type; got {got}. "
        f"Nothing is promoted: convert with .astype"
    )


def check_bias(op: str, bias: Typed, resolved: Resolved) -> None:
    """Check that a bias has one entry for each channel of dst."""
    channels = resolved.dst_shape[resolved.geometry.data.channel]
    if bias.shape != (channels,):
        raise ValueError(
            f"{op}: `bias` must have shape ({channels},), one entry for each dst channel; "
            f"got shape {bias.shape} for dst shape {resolved.dst_shape}"
        )


def check_residual(op: str, residual: Typed, accepted: tuple[DType, DType], shape: Shape) -> None:
    """Check that a residual has the shape of dst, and the type of the operands or of dst."""
    if residual.shape != shape:
        raise ValueError(
            f"{op}: `residual` must have the shape of dst, {shape}; got {residual.shape}"
        )
    if canonical(residual.dtype) not in accepted:
        either_of = either(dict.fromkeys(dtype.name for dtype in accepted))
        raise TypeError(f"{op}: `residual` must have type {either_of}; got {residual.dtype}")
