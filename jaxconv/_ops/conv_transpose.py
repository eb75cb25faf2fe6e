"""Transposed convolution and its two Backward operations: src is coarse, dst is fine."""

from __future__ import annotations  # so that help() shows short names

import jax
from jax.sharding import NamedSharding, PartitionSpec

from jaxconv._base.typing import DTypeLike, Int, Ints, PrecisionLike, ShapeLike
from jaxconv._ops.operate import operate
from jaxconv._rules.arguments import TensorLike
from jaxconv._rules.op import OPS


def conv_transpose(
    src: TensorLike,
    weights: TensorLike,
    bias: TensorLike | None = None,
    *,
    strides: Ints = 1,
    pads_begin: Ints = 0,
    pads_end: Ints = 0,
    dilations: Ints = 1,
    auto_pad: str | None = "none",
    groups: Int = 1,
    data_format: str = "NXC",
    weights_format: str = "XOI",
    output_padding: Ints = 0,
    dst_shape: ShapeLike | None = None,
    residual: TensorLike | None = None,
    activation: str | None = None,
    alpha: float | None = None,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: NamedSharding | PartitionSpec | None = None,
) -> jax.Array:
    """Transposed convolution: each src element adds its multiple of the weights to dst.

    ::

        dst[n, g*O + o, p] = bias[g*O + o] + sum_{i, q, t} src[n, g*I + i, q] * weights[g, i, o, t]
            over q, t with strides*q + dilations*t - pads_begin = p

    It is the gradient of a convolution with respect to its src, as a forward operation:
    what PyTorch calls conv_transpose and ONNX ConvTranspose. The dst extent of an axis is
    ``strides*(src - 1) + dilations*(kernel - 1) + 1 + output_padding - pads_begin - pads_end``.

    Args:
      src: data in `data_format`: (N, X..., IC) for NXC, (N, IC, X...) for NCX.
      weights: in `weights_format`; XOI is (X..., OC/groups, IC), or the same with the
        input channels divided, (X..., OC, IC/groups): the extents tell which it is.
      bias: shape (OC,), added before the result is rounded.
      output_padding: extra extent at the end of each axis, any non-negative int.
      dst_shape: the full shape of the result in `data_format` order, instead of
        `output_padding`: a tuple, list, NumPy array or concrete JAX array of ints.
        PyTorch calls it output_size, ONNX output_shape. With an `auto_pad` of same_*, it
        decides the pads. Give the Backward operations the pads that :func:`jaxconv.resolve`
        finds, and ``auto_pad="none"``.
      strides, pads_begin, pads_end, dilations, auto_pad, groups, data_format,
        weights_format: see :mod:`jaxconv`.
      residual: of the shape of dst, added after the bias; of the type of src or of dst.
      activation, alpha: applied to the sum; see :mod:`jaxconv`.
      precision, preferred_element_type, out_sharding: see :mod:`jaxconv`.

    Returns:
      dst in `data_format`, in the type of src unless `preferred_element_type` is wider.

    Raises:
      TypeError, ValueError: an argument is malformed, or the shapes do not fit each other.

    Example:
      >>> import jax.numpy as jnp, jaxconv
      >>> src = jnp.ones((8, 16, 16, 32))
      >>> weights = jnp.ones((3, 3, 8, 32))
      >>> jaxconv.conv_transpose(
      ...     src, weights, strides=2, pads_begin=1, pads_end=1, output_padding=1
      ... ).shape
      (8, 32, 32, 8)
    """
    return operate(
        OPS["conv_transpose"], src, weights, bias=bias, residual=residual, activation=activation,
        alpha=alpha, result_shape=dst_shape, strides=strides, pads_begin=pads_begin,
        pads_end=pads_end, dilations=dilations, auto_pad=auto_pad, groups=groups,
        data_format=data_format, weights_format=weights_format, output_padding=output_padding,
        precision=precision, preferred_element_type=preferred_element_type,
        out_sharding=out_sharding,
    )  # fmt: skip


def conv_transpose_backward_data(
    diff_dst: TensorLike,
    weights: TensorLike,
    *,
    strides: Ints = 1,
    pads_begin: Ints = 0,
    pads_end: Ints = 0,
    dilations: Ints = 1,
    auto_pad: str | None = "none",
    groups: Int = 1,
    data_format: str = "NXC",
    weights_format: str = "XOI",
    output_padding: Ints = 0,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: NamedSharding | PartitionSpec | None = None,
) -> jax.Array:
    """The gradient of `conv_transpose` with respect to src.

    ::

        diff_src[n, g*I + i, q] = sum_{o, t} weights[g, i, o, t]
            * diff_dst[n, g*O + o, strides*q + dilations*t - pads_begin]

    Args:
      diff_dst: the gradient of the dst of a transposed convolution, in `data_format`.
      weights: the weights of that operation; XOI is (X..., OC/groups, IC).
      output_padding: that of the operation. 0 means not given: then it is what the
        strides leave over.
      strides, pads_begin, pads_end, dilations, auto_pad, groups, data_format,
        weights_format: those of the operation; see :mod:`jaxconv`. If its dst_shape decided
        same_* pads, give those that :func:`jaxconv.resolve` finds.
      precision, preferred_element_type, out_sharding: see :mod:`jaxconv`.

    Returns:
      diff_src in `data_format`.

    Raises:
      TypeError, ValueError: an argument is malformed, or the shapes do not fit each other.

    Example:
      >>> import jax.numpy as jnp, jaxconv
      >>> diff_dst = jnp.ones((8, 32, 32, 8))
      >>> weights = jnp.ones((3, 3, 8, 32))
      >>> jaxconv.conv_transpose_backward_data(
      ...     diff_dst, weights, strides=2, pads_begin=1, pads_end=1, output_padding=1
      ... ).shape
      (8, 16, 16, 32)
    """
    return operate(
        OPS["conv_transpose_backward_data"], diff_dst, weights, strides=strides,
        pads_begin=pads_begin, pads_end=pads_end, dilations=dilations, auto_pad=auto_pad,
        groups=groups, data_format=data_format, weights_format=weights_format,
        output_padding=output_padding, precision=precision,
        preferred_element_type=preferred_element_type, out_sharding=out_sharding,
    )  # fmt: skip


def conv_transpose_backward_weights(
    src: TensorLike,
    diff_dst: TensorLike,
    weights_shape: ShapeLike,
    *,
    strides: Ints = 1,
    pads_begin: Ints = 0,
    pads_end: Ints = 0,
    dilations: Ints = 1,
    auto_pad: str | None = "none",
    groups: Int = 1,
    data_format: str = "NXC",
    weights_format: str = "XOI",
    output_padding: Ints = 0,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: NamedSharding | PartitionSpec | None = None,
) -> jax.Array:
    """The gradient of `conv_transpose` with respect to the weights.

    ::

        diff_weights[g, i, o, t] = sum_{n, q} src[n, g*I + i, q]
            * diff_dst[n, g*O + o, strides*q + dilations*t - pads_begin]

    Args:
      src: the src of a transposed convolution, in `data_format`.
      diff_dst: the gradient of its dst, in `data_format`.
      weights_shape: the full shape of the result, in `weights_format` order: a tuple,
        list, NumPy array or concrete JAX array of ints. With groups, it also says which
        channels the result's layout divides.
      output_padding: that of the operation; 0 means not given.
      strides, pads_begin, pads_end, dilations, auto_pad, groups, data_format,
        weights_format: those of the operation; see :mod:`jaxconv`. If its dst_shape decided
        same_* pads, give those that :func:`jaxconv.resolve` finds.
      precision, preferred_element_type, out_sharding: see :mod:`jaxconv`.

    Returns:
      diff_weights in `weights_format`. Under `jax.shard_map` it is the sum over the local
      batch; `jax.lax.psum` adds up the devices.

    Raises:
      TypeError, ValueError: an argument is malformed, or the shapes do not fit each other.

    Example:
      >>> import jax.numpy as jnp, jaxconv
      >>> src, diff_dst = jnp.ones((8, 16, 16, 32)), jnp.ones((8, 32, 32, 8))
      >>> jaxconv.conv_transpose_backward_weights(
      ...     src, diff_dst, (3, 3, 8, 32), strides=2, pads_begin=1, pads_end=1
      ... ).shape
      (3, 3, 8, 32)
    """
    return operate(
        OPS["conv_transpose_backward_weights"], src, diff_dst, result_shape=weights_shape,
        strides=strides, pads_begin=pads_begin, pads_end=pads_end, dilations=dilations,
        auto_pad=auto_pad, groups=groups, data_format=data_format, weights_format=weights_format,
        output_padding=output_padding, precision=precision,
        preferred_element_type=preferred_element_type, out_sharding=out_sharding,
    )  # fmt: skip
