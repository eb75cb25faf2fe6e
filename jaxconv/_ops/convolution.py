"""Convolution and its two Backward operations: src is the fine tensor, dst the coarse one."""

from __future__ import annotations  # so that help() shows short names

import jax
from jax.sharding import NamedSharding, PartitionSpec

from jaxconv._base.typing import DTypeLike, Int, Ints, PrecisionLike, ShapeLike
from jaxconv._ops.operate import operate
from jaxconv._rules.arguments import TensorLike
from jaxconv._rules.op import OPS


def convolution(
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
    weights_format: str = "XIO",
    residual: TensorLike | None = None,
    activation: str | None = None,
    alpha: float | None = None,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: NamedSharding | PartitionSpec | None = None,
) -> jax.Array:
    """Convolution: slide the weights over src, per group and without a flip.

    ::

        dst[n, g*O + o, q] = bias[g*O + o]
            + sum_{i, t} src[n, g*I + i, strides*q + dilations*t - pads_begin] * weights[g, o, i, t]

    where src reads as zero outside its bounds, O and I are the channels of one group, and
    q, t run over all spatial axes. The dst extent of an axis is
    ``(src + pads_begin + pads_end - dilations*(kernel - 1) - 1) // strides + 1``.

    Args:
      src: data in `data_format`: (N, X..., IC) for NXC, (N, IC, X...) for NCX.
      weights: in `weights_format`; XIO is (X..., IC/groups, OC).
      bias: shape (OC,), added before the result is rounded.
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
      >>> src = jnp.ones((8, 32, 32, 3))
      >>> weights = jnp.ones((3, 3, 3, 16))
      >>> jaxconv.convolution(src, weights, strides=2, auto_pad="same_upper").shape
      (8, 16, 16, 16)
    """
    return operate(
        OPS["convolution"], src, weights, bias=bias, residual=residual, activation=activation,
        alpha=alpha, strides=strides, pads_begin=pads_begin, pads_end=pads_end, dilations=dilations,
        auto_pad=auto_pad, groups=groups, data_format=data_format, weights_format=weights_format,
        precision=precision, preferred_element_type=preferred_element_type,
        out_sharding=out_sharding,
    )  # fmt: skip


def convolution_backward_data(
    diff_dst: TensorLike,
    weights: TensorLike,
    dst_shape: ShapeLike | None = None,
    *,
    strides: Ints = 1,
    pads_begin: Ints = 0,
    pads_end: Ints = 0,
    dilations: Ints = 1,
    auto_pad: str | None = "none",
    groups: Int = 1,
    data_format: str = "NXC",
    weights_format: str = "XIO",
    output_padding: Ints = 0,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: NamedSharding | PartitionSpec | None = None,
) -> jax.Array:
    """The gradient of `convolution` with respect to src.

    ::

        diff_src[n, g*I + i, p] = sum_{o, q, t} diff_dst[n, g*O + o, q] * weights[g, o, i, t]
            over q, t with strides*q + dilations*t - pads_begin = p

    Several src extents lead to the same dst extent when strides > 1. `dst_shape` names the
    one meant; without it, the extent is that of `conv_transpose` with the same attributes.

    Args:
      diff_dst: the gradient of the dst of a convolution, in `data_format`.
      weights: the weights of that convolution; XIO is (X..., IC/groups, OC).
      dst_shape: the full shape of the result (of diff_src), in `data_format` order: a
        tuple, list, NumPy array or concrete JAX array of ints.
      output_padding: extra extent at the end of each axis, as in `conv_transpose`; 0
        means not given. With it, `dst_shape` need not lead back to diff_dst.
      strides, pads_begin, pads_end, dilations, auto_pad, groups, data_format,
        weights_format: those of the convolution; see :mod:`jaxconv`.
      precision, preferred_element_type, out_sharding: see :mod:`jaxconv`.

    Returns:
      diff_src in `data_format`.

    Raises:
      TypeError, ValueError: an argument is malformed, or the shapes do not fit each other.

    Example:
      >>> import jax.numpy as jnp, jaxconv
      >>> diff_dst = jnp.ones((8, 16, 16, 16))
      >>> weights = jnp.ones((3, 3, 3, 16))
      >>> jaxconv.convolution_backward_data(
      ...     diff_dst, weights, (8, 32, 32, 3), strides=2, auto_pad="same_upper"
      ... ).shape
      (8, 32, 32, 3)
    """
    return operate(
        OPS["convolution_backward_data"], diff_dst, weights, result_shape=dst_shape,
        strides=strides, pads_begin=pads_begin, pads_end=pads_end, dilations=dilations,
        auto_pad=auto_pad, groups=groups, data_format=data_format, weights_format=weights_format,
        output_padding=output_padding, precision=precision,
        preferred_element_type=preferred_element_type, out_sharding=out_sharding,
    )  # fmt: skip


def convolution_backward_weights(
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
    weights_format: str = "XIO",
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: NamedSharding | PartitionSpec | None = None,
) -> jax.Array:
    """The gradient of `convolution` with respect to the weights.

    ::

        diff_weights[g, o, i, t] = sum_{n, q} diff_dst[n, g*O + o, q]
            * src[n, g*I + i, strides*q + dilations*t - pads_begin]

    Args:
      src: the src of a convolution, in `data_format`.
      diff_dst: the gradient of its dst, in `data_format`.
      weights_shape: the full shape of the result, in `weights_format` order: a tuple,
        list, NumPy array or concrete JAX array of ints.
      strides, pads_begin, pads_end, dilations, auto_pad, groups, data_format,
        weights_format: those of the convolution; see :mod:`jaxconv`.
      precision, preferred_element_type, out_sharding: see :mod:`jaxconv`.

    Returns:
      diff_weights in `weights_format`. Under `jax.shard_map` it is the sum over the local
      batch; `jax.lax.psum` adds up the devices.

    Raises:
      TypeError, ValueError: an argument is malformed, or the shapes do not fit each other.

    Example:
      >>> import jax.numpy as jnp, jaxconv
      >>> src, diff_dst = jnp.ones((8, 32, 32, 3)), jnp.ones((8, 16, 16, 16))
      >>> jaxconv.convolution_backward_weights(
      ...     src, diff_dst, (3, 3, 3, 16), strides=2, auto_pad="same_upper"
      ... ).shape
      (3, 3, 3, 16)
    """
    return operate(
        OPS["convolution_backward_weights"], src, diff_dst, result_shape=weights_shape,
        strides=strides, pads_begin=pads_begin, pads_end=pads_end, dilations=dilations,
        auto_pad=auto_pad, groups=groups, data_format=data_format, weights_format=weights_format,
        precision=precision, preferred_element_type=preferred_element_type,
        out_sharding=out_sharding,
    )  # fmt: skip
