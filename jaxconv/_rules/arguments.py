"""Check the tensors an operation is given: arrays of accepted types, and of shapes that fit."""

from typing import Any, Protocol

import jax
import numpy as np
from jax import Array

from jaxconv._base.dtypes import ACCUMULATION, canonical
from jaxconv._base.messages import Refusal, either, shown
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
            got = f"an array of shape {value.shape} that was deleted"
            raise ValueError(Refusal(op, name, "must still have its data", got, "Was it donated?"))
        return value
    rule = "must be a JAX or NumPy array"
    if isinstance(value, np.ma.MaskedArray):
        remedy = "Its method `filled` makes one without a mask"
        raise TypeError(Refusal(op, name, rule, "a masked one", remedy))
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "__jax_array__"):
        try:
            held = value.__jax_array__()
        except Exception as error:
            got = f"{shown(value)}, whose __jax_array__ raises {type(error).__name__}"
            raise TypeError(Refusal(op, name, rule, got)) from error
        if isinstance(held, Array | np.ndarray):
            return array(op, name, held)
        value = held
    remedy = "jax.numpy.asarray makes one of numbers and lists"
    if hasattr(value, "detach"):
        remedy = "jaxconv.torch.load converts a dict of PyTorch's tensors"
    raise TypeError(Refusal(op, name, rule, shown(value), remedy))


def common_dtype(op: str, **arrays: Typed) -> DType:
    """Find the one accepted type that all arrays have, or raise an error."""
    types: dict[str, DType] = {name: canonical(a.dtype) for name, a in arrays.items()}
    dtype, *others = types.values()
    if dtype in ACCUMULATION and all(other == dtype for other in others):
        return dtype
    got = ", ".join(f"`{name}` {dtype}" for name, dtype in types.items())
    for name, dtype in types.items():
        if dtype not in ACCUMULATION:
            accepted = either(d.name for d in ACCUMULATION)
            raise TypeError(Refusal(op, name, f"must have type {accepted}", got))
    remedy = "Nothing is promoted: convert with .astype"
    raise TypeError(Refusal(op, "", "all arrays must have the same type", got, remedy))


def check_bias(op: str, bias: Typed, resolved: Resolved) -> None:
    """Check that a bias has one entry for each channel of dst."""
    channels = resolved.dst_shape[resolved.geometry.data.channel]
    if bias.shape != (channels,):
        rule = f"must have shape ({channels},), one entry for each dst channel"
        got = f"shape {bias.shape} for dst shape {resolved.dst_shape}"
        raise ValueError(Refusal(op, "bias", rule, got))


def check_residual(op: str, residual: Typed, accepted: tuple[DType, DType], shape: Shape) -> None:
    """Check that a residual has the shape of dst, and the type of the operands or of dst."""
    if residual.shape != shape:
        rule = f"must have the shape of dst, {shape}"
        raise ValueError(Refusal(op, "residual", rule, str(residual.shape)))
    if canonical(residual.dtype) not in accepted:
        rule = f"must have type {either(dict.fromkeys(dtype.name for dtype in accepted))}"
        raise TypeError(Refusal(op, "residual", rule, str(residual.dtype)))
