"""A table of all kinds but convolutions: inputs, attributes, types, and how each is computed.

Arithmetic on 16-bit types is done in float32, and rounded once to the type of the output.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array, lax

from jaxconv._base.finish import FUNCTIONS
from jaxconv._base.typing import DType
from jaxconv._rules.layouts import DATA_FORMATS
from jaxconv._rules.values import NO_DEFAULT, Attribute
from jaxconv.onednn._graphs.graph import DTYPES

FLOAT_TYPES = ("f32", "bf16", "f16")
QUANTIZED_TYPES = ("s8", "u8")


@dataclass(frozen=True)
class KindSpec:
    """How a node of one kind is computed, and what it accepts."""

    #: takes the arrays, in float32 if `of_floats`, and the attributes by name; where the types of
    #: inputs and outputs differ, the type of the output first
    function: Callable[..., Array]
    inputs: tuple[str, ...] = ("src",)
    attributes: Mapping[str, Attribute] = field(default_factory=dict)
    input_types: tuple[str, ...] = FLOAT_TYPES
    output_types: tuple[str, ...] = FLOAT_TYPES

    @property
    def of_floats(self) -> bool:
        """Whether floats become floats, and are computed in float32."""
        return self.input_types == self.output_types == FLOAT_TYPES

    def compute(self, dtype: DType, *arrays: Array, **attributes: Any) -> Array:
        """Compute the output, which has the type `dtype`."""
        if self.of_floats:
            inputs = (x.astype(jnp.float32) for x in arrays)
            return self.function(*inputs, **attributes).astype(dtype)
        if self.input_types != self.output_types:
            return self.function(dtype, *arrays, **attributes)
        if arrays[0].dtype != dtype:
            rule = f"the output must be of the type of src, {arrays[0].dtype}"
            raise TypeError(f"{rule}; got {dtype}")
        return self.function(*arrays, **attributes)


# Element by element


def _clamp(src: Array, min: float, max: float) -> Array:
    if min > max:
        raise ValueError(f"`min` must be at most `max`; got {min} and {max}")
    # At both ends the derivative is 0, as of relu6.
    return jnp.where(src <= min, min, jnp.where(src >= max, max, src))


def _gelu(src: Array, mode: str) -> Array:
    return jax.nn.gelu(src, approximate=mode == "gelu_tanh")


def _soft_plus(src: Array, beta: float) -> Array:
    if beta == 0:
        raise ValueError("`beta` must not be 0; got 0")
    return jax.nn.softplus(beta * src) / beta


def _hard_sigmoid(src: Array, alpha: float, beta: float) -> Array:
    return jnp.clip(alpha * src + beta, 0, 1)


#: an f32 attribute without a default
REQUIRED_F32 = Attribute("f32", NO_DEFAULT)


def _unary_spec(function: Callable[..., Array], **attributes: Attribute) -> KindSpec:
    """Describe a kind of one tensor, computed element by element."""
    return KindSpec(function, attributes=attributes)


# Two tensors


def _binary_spec(function: Callable[..., Array]) -> KindSpec:
    """Describe a kind of two tensors, which broadcast as `auto_broadcast` says."""

    def compute(a: Array, b: Array, auto_broadcast: str) -> Array:
        if a.shape != b.shape and auto_broadcast == "none":
            raise ValueError(
                f"src_0 and src_1 must have one shape, since `auto_broadcast` is none; got "
                f"{a.shape} and {b.shape}"
            )
        try:
            shape = jnp.broadcast_shapes(a.shape, b.shape)
        except ValueError:
            raise ValueError(
                f"the shapes of src_0 and src_1 must broadcast; got {a.shape} and {b.shape}"
            ) from None
        return function(*(jnp.broadcast_to(x, shape) for x in (a, b)))

    attributes = {"auto_broadcast": Attribute("string", "numpy", ("none", "numpy"))}
    return KindSpec(compute, ("src_0", "src_1"), attributes)


# Channels


DATA_FORMAT = Attribute("string", "NXC", DATA_FORMATS)


def _align_channels(name: str, vector: Array, src: Array, data_format: str) -> Array:
    """Reshape a vector, which must have one entry a channel, to broadcast along src's channels."""
    axis = 1 if data_format == "NCX" else src.ndim - 1
    if src.ndim < 2 or vector.shape != (src.shape[axis],):
        raise ValueError(
            f"`{name}` must have one entry for each channel of src, {src.shape} ({data_format}); "
            f"got shape {vector.shape}"
        )
    return vector.reshape([-1 if a == axis else 1 for a in range(src.ndim)])


def _bias_add(src: Array, bias: Array, data_format: str) -> Array:
    return src + _align_channels("bias", bias, src, data_format)


def _prelu(src: Array, slope: Array, data_format: str, per_channel_broadcast: bool) -> Array:
    if slope.ndim == 1 and per_channel_broadcast and slope.shape != (1,):
        slope = _align_channels("slope", slope, src, data_format)
    try:
        slopes = jnp.broadcast_to(slope, src.shape)
    except ValueError:
        rule = f"`slope` must broadcast to src, {src.shape}"
        raise ValueError(f"{rule}; got {slope.shape}") from None
    return jax.nn.leaky_relu(src, slopes)


def _batch_norm(src: Array, *vectors: Array, epsilon: float, data_format: str) -> Array:
    gamma, beta, mean, variance = (
        _align_channels(name, vector, src, data_format)
        for name, vector in zip(("gamma", "beta", "mean", "variance"), vectors, strict=True)
    )
    return (src - mean) * (gamma / jnp.sqrt(variance + epsilon)) + beta


# Kinds that only move elements


def _reshape(src: Array, shape: Sequence[int], special_zero: bool) -> Array:
    wanted = list(shape)
    if special_zero and 0 in wanted[src.ndim :]:
        raise ValueError(f"a 0 in `shape` copies an extent of src, {src.shape}; got {wanted}")
    if special_zero:
        wanted = [src.shape[i] if n == 0 else n for i, n in enumerate(wanted)]
    if wanted.count(-1) > 1 or min(shape, default=0) < -1:
        raise ValueError(f"`shape` must be extents, at most one of them -1; got {list(shape)}")
    known = math.prod(n for n in wanted if n != -1)
    if not known or src.size % known if -1 in wanted else src.size != known:
        raise ValueError(
            f"`shape` must hold the {src.size} elements of src, {src.shape}; got {list(shape)}"
        )
    return src.reshape(wanted)


def _transpose(src: Array, order: Sequence[int]) -> Array:
    axes = [axis % src.ndim if -src.ndim <= axis < src.ndim else axis for axis in order]
    if sorted(axes) != list(range(src.ndim)):
        raise ValueError(
            f"`order` must name each axis of src, {src.shape}, once; got {list(order)}"
        )
    return src.transpose(axes)


def _move_spec(function: Callable[..., Array], **attributes: Attribute) -> KindSpec:
    """Describe a kind that moves the elements of one tensor, of any type."""
    return KindSpec(function, ("src",), attributes, tuple(DTYPES), tuple(DTYPES))


# 8-bit integers for numbers, by a scale and a zero point


QUANTIZATION = {
    "qtype": Attribute("string", "per_tensor", ("per_tensor", "per_channel")),
    "axis": Attribute("s64", 1),
    "scales": Attribute("f32[]", NO_DEFAULT),
    "zps": Attribute("s64[]", None),
}


def _quantize(dtype: DType, src: Array, **attributes: Any) -> Array:
    """Compute ``round(src/scale + zp)``, ties to the even integer, clipped to the type's range."""
    scales, zero_points = _align_scales(src, **attributes)
    ends = jnp.iinfo(dtype)
    found = jnp.round(src.astype(jnp.float32) / scales + zero_points)
    # XLA does not promise how it converts numbers beyond the range of an integer type.
    found = jnp.clip(found, float(ends.min), float(ends.max))
    return lax.convert_element_type(found, dtype)


def _dequantize(dtype: DType, src: Array, **attributes: Any) -> Array:
    """Compute ``(src - zp) * scale`` in float32."""
    scales, zero_points = _align_scales(src, **attributes)
    return lax.convert_element_type((src.astype(jnp.float32) - zero_points) * scales, dtype)


def _align_scales(
    src: Array, qtype: str, axis: int, scales: Sequence[float], zps: Sequence[int] | None
) -> tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]:
    """Reshape scales and zero points, as float32, to broadcast to src."""
    zps = [0] * len(scales) if zps is None else zps
    if qtype == "per_tensor":
        extent, shape = 1, [1] * src.ndim
        meaning = "one entry, since `qtype` is per_tensor"
    else:
        if not -src.ndim <= axis < src.ndim:
            raise ValueError(
                f"`axis` must be from {-src.ndim} to {src.ndim - 1}, of src of shape "
                f"{src.shape}; got {axis}"
            )
        extent = src.shape[axis]
        shape = [extent if a == axis % src.ndim else 1 for a in range(src.ndim)]
        meaning = f"{extent} entries, one for each place on axis {axis} of src {src.shape}"
    for name, values in {"scales": scales, "zps": zps}.items():
        if len(values) != extent:
            raise ValueError(f"`{name}` must have {meaning}; got {len(values)}")
    if not all(scale > 0 for scale in scales):
        raise ValueError(f"`scales` must be above 0; got {list(scales)}")
    scale, zero_point = (np.asarray(values, np.float32).reshape(shape) for values in (scales, zps))
    return scale, zero_point


#: kind -> how it is computed
SPECS = {
    "Abs": _unary_spec(jnp.abs),
    "Clamp": _unary_spec(_clamp, min=REQUIRED_F32, max=REQUIRED_F32),
    "Elu": _unary_spec(jax.nn.elu, alpha=REQUIRED_F32),
    "Exp": _unary_spec(jnp.exp),
    "GELU": _unary_spec(_gelu, mode=Attribute("string", "gelu_erf", ("gelu_erf", "gelu_tanh"))),
    "HardSigmoid": _unary_spec(_hard_sigmoid, alpha=REQUIRED_F32, beta=REQUIRED_F32),
    "HardSwish": _unary_spec(jax.nn.hard_swish),
    "LeakyReLU": _unary_spec(FUNCTIONS["leaky_relu"].compute, alpha=REQUIRED_F32),
    "Log": _unary_spec(jnp.log),
    "Mish": _unary_spec(jax.nn.mish),
    "Pow": _unary_spec(lambda src, beta: jnp.power(src, beta), beta=REQUIRED_F32),
    "ReLU": _unary_spec(jax.nn.relu),
    "Reciprocal": _unary_spec(lambda src: 1 / src),
    "Round": _unary_spec(jnp.round),
    "Sigmoid": _unary_spec(jax.nn.sigmoid),
    "SoftPlus": _unary_spec(_soft_plus, beta=Attribute("f32", 1.0)),
    "Sqrt": _unary_spec(jnp.sqrt),
    "Square": _unary_spec(jnp.square),
    "Tanh": _unary_spec(jnp.tanh),
    "TypeCast": _unary_spec(lambda src: src),
    "Add": _binary_spec(jnp.add),
    "Subtract": _binary_spec(jnp.subtract),
    "Multiply": _binary_spec(jnp.multiply),
    "Divide": _binary_spec(jnp.divide),
    "Maximum": _binary_spec(jnp.maximum),
    "Minimum": _binary_spec(jnp.minimum),
    "SquaredDifference": _binary_spec(lambda a, b: jnp.square(a - b)),
    "BiasAdd": KindSpec(_bias_add, ("src", "bias"), {"data_format": DATA_FORMAT}),
    "PReLU": KindSpec(
        _prelu,
        ("src", "slope"),
        {"data_format": DATA_FORMAT, "per_channel_broadcast": Attribute("bool", True)},
    ),
    "BatchNormInference": KindSpec(
        _batch_norm,
        ("src", "gamma", "beta", "mean", "variance"),
        {"epsilon": REQUIRED_F32, "data_format": DATA_FORMAT},
    ),
    "StaticReshape": _move_spec(
        _reshape, shape=Attribute("s64[]", NO_DEFAULT), special_zero=Attribute("bool", NO_DEFAULT)
    ),
    "StaticTranspose": _move_spec(_transpose, order=Attribute("s64[]", NO_DEFAULT)),
    "Reorder": _move_spec(lambda src: src),
    "Quantize": KindSpec(_quantize, attributes=QUANTIZATION, output_types=QUANTIZED_TYPES),
    "Dequantize": KindSpec(_dequantize, attributes=QUANTIZATION, input_types=QUANTIZED_TYPES),
}
