"""`jax.lax`'s convolutions, computed by the contractions of this library.

>>> import numpy as np
>>> from jaxconv import lax as jaxconv_lax
>>> lhs, rhs = np.float32([[[1, 2, 4, 8]]]), np.float32([[[1, 10, 100]]])
>>> jaxconv_lax.conv_general_dilated(lhs, rhs, (2,), "SAME_LOWER").tolist()
[[[210.0, 842.0]]]
"""

from __future__ import annotations  # so that help() shows short names

from collections.abc import Iterable, Sequence

from jax import Array, lax
from jax.sharding import NamedSharding, PartitionSpec

from jaxconv._base.typing import ArrayLike, DTypeLike, PrecisionLike
from jaxconv._lax.lax_call import compute_as

__all__ = [
    "conv",
    "conv_general_dilated",
    "conv_general_dilated_local",
    "conv_general_dilated_patches",
    "conv_transpose",
    "conv_with_general_padding",
]


def conv_general_dilated(
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: Sequence[int],
    padding: str | Iterable[tuple[int, int]],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: lax.ConvGeneralDilatedDimensionNumbers = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: NamedSharding | PartitionSpec | None = None,
) -> Array:
    """As `jax.lax.conv_general_dilated`: a convolution over a dilated lhs.

    ::

        out[n, g*O + o, q] = sum_{i, t} rhs[g*O + o, i, t]
            * dilated[n, g*I + i, window_strides*q + rhs_dilation*t - pad_low]

    where `dilated` is lhs at the multiples of lhs_dilation, and zero elsewhere. With no
    lhs_dilation this is `jaxconv.convolution`, with no window_strides but a lhs_dilation
    `jaxconv.conv_transpose`; with both, the zeros are written out. Batch groups make it a
    weights gradient.

    `jax.lax` computes the other calls: other types and weak types, dot algorithms as `precision`,
    no spatial axis, empty operands or results (except for the batch), symbolic extents (except for
    the batch) and an `out_sharding` of operands on no explicit mesh. Errors about malformed
    arguments are raised by `jax.lax`, too.

    Two things differ from lax. With explicit mesh axes, a contracted axis that is split is summed
    over the devices, where lax raises an error. In derivatives, a cotangent that
    `preferred_element_type` made wider is rounded to the type of the operands first.

    Args:
      lhs, rhs: data and weights, laid out as `dimension_numbers` says.
      window_strides, lhs_dilation, rhs_dilation: one int for each spatial axis.
      padding: "SAME", "SAME_LOWER", "VALID" or, for each spatial axis, the zeros before
        and after the dilated lhs; negative numbers crop.
      dimension_numbers: three strings as ("NHWC", "HWIO", "NHWC"), a
        `jax.lax.ConvDimensionNumbers`, or None for channels first.
      feature_group_count, batch_group_count: at most one of them above 1.
      precision, preferred_element_type, out_sharding: see `jax.lax.conv_general_dilated`.

    Raises:
      AttributeError, TypeError, ValueError, RuntimeError: those of `jax.lax`.

    Example:
      >>> import jax.numpy as jnp, jaxconv
      >>> lhs, rhs = jnp.ones((8, 32, 32, 6)), jnp.ones((3, 3, 3, 16))
      >>> layouts = ("NHWC", "HWIO", "NHWC")
      >>> jaxconv.lax.conv_general_dilated(
      ...     lhs, rhs, (2, 2), "SAME", dimension_numbers=layouts, feature_group_count=2
      ... ).shape
      (8, 16, 16, 16)
    """
    return compute_as(
        lax.conv_general_dilated,
        lhs=lhs, rhs=rhs, window_strides=window_strides, padding=padding,
        lhs_dilation=lhs_dilation, rhs_dilation=rhs_dilation,
        dimension_numbers=dimension_numbers, feature_group_count=feature_group_count,
        batch_group_count=batch_group_count, precision=precision,
        preferred_element_type=preferred_element_type, out_sharding=out_sharding,
    )  # fmt: skip


def conv(
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: Sequence[int],
    padding: str,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """As `jax.lax.conv`: channels first, without dilations and groups.

    Args:
      lhs, rhs: data (N, C, X...) and weights (O, I, X...).
      window_strides, padding, precision, preferred_element_type: see
        :func:`conv_general_dilated`.

    Example:
      >>> import jax.numpy as jnp, jaxconv
      >>> jaxconv.lax.conv(jnp.ones((8, 6, 32)), jnp.ones((4, 6, 3)), (2,), "VALID").shape
      (8, 4, 15)
    """
    return compute_as(
        lax.conv,
        lhs=lhs, rhs=rhs, window_strides=window_strides, padding=padding, precision=precision,
        preferred_element_type=preferred_element_type,
    )  # fmt: skip


def conv_with_general_padding(
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None,
    rhs_dilation: Sequence[int] | None,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """As `jax.lax.conv_with_general_padding`: channels first, without groups.

    Args:
      lhs, rhs: data (N, C, X...) and weights (O, I, X...).
      window_strides, padding, lhs_dilation, rhs_dilation, precision, preferred_element_type: see
        :func:`conv_general_dilated`.

    Example:
      >>> import jax.numpy as jnp, jaxconv
      >>> lhs, rhs = jnp.ones((8, 6, 32)), jnp.ones((4, 6, 3))
      >>> jaxconv.lax.conv_with_general_padding(lhs, rhs, (1,), [(0, 4)], (2,), (2,)).shape
      (8, 4, 63)
    """
    return compute_as(
        lax.conv_with_general_padding,
        lhs=lhs, rhs=rhs, window_strides=window_strides, padding=padding,
        lhs_dilation=lhs_dilation, rhs_dilation=rhs_dilation, precision=precision,
        preferred_element_type=preferred_element_type,
    )  # fmt: skip


def conv_transpose(
    lhs: ArrayLike,
    rhs: ArrayLike,
    strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: lax.ConvGeneralDilatedDimensionNumbers = None,
    transpose_kernel: bool = False,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    use_consistent_padding: bool = False,
) -> Array:
    """As `jax.lax.conv_transpose`; `jaxconv.conv_transpose` has groups and output padding, too.

    Args:
      lhs, rhs: data and weights, laid out as `dimension_numbers` says; channels last by default.
      strides: the dilation of lhs.
      padding: "SAME", "VALID", or a pair for each spatial axis: the zeros around the dilated lhs
        or, with `use_consistent_padding`, the pads of the convolution that this transposes.
      rhs_dilation, dimension_numbers: see :func:`conv_general_dilated`.
      transpose_kernel: whether rhs is the kernel of the convolution that this transposes: its
        taps are reversed, and its O axis meets lhs.
      precision, preferred_element_type: see :func:`conv_general_dilated`.
      use_consistent_padding: see `padding`.

    Raises:
      AssertionError, TypeError, ValueError, RuntimeError: those of `jax.lax`.

    Example:
      >>> import jax.numpy as jnp, jaxconv
      >>> lhs, rhs = jnp.ones((8, 16, 16, 6)), jnp.ones((3, 3, 6, 4))
      >>> jaxconv.lax.conv_transpose(lhs, rhs, (2, 2), "SAME").shape
      (8, 32, 32, 4)
    """
    return compute_as(
        lax.conv_transpose,
        lhs=lhs, rhs=rhs, strides=strides, padding=padding, rhs_dilation=rhs_dilation,
        dimension_numbers=dimension_numbers, transpose_kernel=transpose_kernel,
        precision=precision, preferred_element_type=preferred_element_type,
        use_consistent_padding=use_consistent_padding,
    )  # fmt: skip


def conv_general_dilated_patches(
    lhs: ArrayLike,
    filter_shape: Sequence[int],
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: lax.ConvGeneralDilatedDimensionNumbers = None,
    precision: lax.Precision | None = None,
    preferred_element_type: DTypeLike | None = None,
) -> Array:
    """As `jax.lax.conv_general_dilated_patches`: the windows of lhs as channels of the result.

    The result has lhs's channels times the taps, in the order that weights have them.

    Args:
      lhs: data, laid out as `dimension_numbers` says.
      filter_shape: the taps of each spatial axis.
      window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers, precision,
        preferred_element_type: see :func:`conv_general_dilated`; `precision` is that of lhs.

    Example:
      >>> import jax.numpy as jnp, jaxconv
      >>> lhs = jnp.ones((8, 6, 32, 32))
      >>> jaxconv.lax.conv_general_dilated_patches(lhs, (3, 3), (2, 2), "VALID").shape
      (8, 54, 15, 15)
    """
    return compute_as(
        lax.conv_general_dilated_patches,
        lhs=lhs, filter_shape=filter_shape, window_strides=window_strides, padding=padding,
        lhs_dilation=lhs_dilation, rhs_dilation=rhs_dilation,
        dimension_numbers=dimension_numbers, precision=precision,
        preferred_element_type=preferred_element_type,
    )  # fmt: skip


def conv_general_dilated_local(
    lhs: ArrayLike,
    rhs: ArrayLike,
    window_strides: Sequence[int],
    padding: str | Sequence[tuple[int, int]],
    filter_shape: Sequence[int],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: lax.ConvGeneralDilatedDimensionNumbers = None,
    precision: PrecisionLike = None,
) -> Array:
    """As `jax.lax.conv_general_dilated_local`: other weights at each place of the result.

    Args:
      lhs: data, laid out as `dimension_numbers` says.
      rhs: weights, with the extents of the result on their spatial axes, and on their I axis
        what :func:`conv_general_dilated_patches` makes of lhs.
      filter_shape: the taps of each spatial axis.
      window_strides, padding, lhs_dilation, rhs_dilation, dimension_numbers, precision: see
        :func:`conv_general_dilated`.

    Example:
      >>> import jax.numpy as jnp, jaxconv
      >>> lhs, rhs = jnp.ones((8, 6, 32)), jnp.ones((4, 18, 15))
      >>> jaxconv.lax.conv_general_dilated_local(lhs, rhs, (2,), "VALID", (3,)).shape
      (8, 4, 15)
    """
    return compute_as(
        lax.conv_general_dilated_local,
        lhs=lhs, rhs=rhs, window_strides=window_strides, padding=padding,
        filter_shape=filter_shape, lhs_dilation=lhs_dilation, rhs_dilation=rhs_dilation,
        dimension_numbers=dimension_numbers, precision=precision,
    )  # fmt: skip
