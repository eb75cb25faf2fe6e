"""The convolutions of `torch.nn.functional`, with its signatures."""

from __future__ import annotations  # so that help() shows short names

from collections.abc import Callable
from operator import length_hint

from jax import Array, lax

from jaxconv import conv_transpose, convolution
from jaxconv._base.messages import Refusal, either, named, short, shown
from jaxconv._base.typing import Int, Ints, ShapeLike, Typed
from jaxconv._rules import attributes as parse
from jaxconv._rules.arguments import TensorLike, array, common_dtype
from jaxconv.torch._rules import NAMES, read_attributes, read_ints, write_padding


def conv1d(
    input: TensorLike,
    weight: TensorLike,
    bias: TensorLike | None = None,
    stride: Ints = 1,
    padding: Ints | str = 0,
    dilation: Ints = 1,
    groups: Int = 1,
    *,
    padding_mode: str = "zeros",
) -> Array:
    """As `torch.nn.functional.conv1d`, with the `padding_mode` of `torch.nn.Conv1d`.

    Args:
      input: data (N, C, X) or, without a batch, (C, X).
      weight: (out_channels, in_channels/groups, kernel).
      bias: (out_channels,).
      stride, dilation: the step of the window, and the distance between its taps.
      padding: pixels at both ends of each axis; "valid", none; or "same", as many as keep the size,
        an odd one at the end, for a stride of 1.
      groups: parts of the channels that are convolved apart.
      padding_mode: what the pixels of `padding` are: "zeros", "reflect", "replicate" or
        "circular".

    Raises:
      TypeError, ValueError: an argument is malformed, or the sizes do not fit each other.

    Example:
      >>> import jax.numpy as jnp, jaxconv
      >>> inputs, filters = jnp.ones((33, 16, 30)), jnp.ones((20, 16, 5))
      >>> jaxconv.torch.conv1d(inputs, filters).shape
      (33, 20, 26)
    """
    rules = stride, padding, dilation, groups
    return _compute(convolution, "conv1d", 1, input, weight, bias, rules, padding_mode)


def conv2d(
    input: TensorLike,
    weight: TensorLike,
    bias: TensorLike | None = None,
    stride: Ints = 1,
    padding: Ints | str = 0,
    dilation: Ints = 1,
    groups: Int = 1,
    *,
    padding_mode: str = "zeros",
) -> Array:
    """As `torch.nn.functional.conv2d`, with the `padding_mode` of `torch.nn.Conv2d`.

    Args:
      input: data (N, C, H, W) or, without a batch, (C, H, W).
      weight: (out_channels, in_channels/groups, *kernel).
      bias, stride, padding, dilation, groups, padding_mode: see :func:`conv1d`; an int is for
        both axes.

    Example:
      >>> import jax.numpy as jnp, jaxconv
      >>> filters, inputs = jnp.ones((8, 4, 3, 3)), jnp.ones((1, 4, 5, 5))
      >>> jaxconv.torch.conv2d(inputs, filters, padding=1).shape
      (1, 8, 5, 5)
    """
    rules = stride, padding, dilation, groups
    return _compute(convolution, "conv2d", 2, input, weight, bias, rules, padding_mode)


def conv3d(
    input: TensorLike,
    weight: TensorLike,
    bias: TensorLike | None = None,
    stride: Ints = 1,
    padding: Ints | str = 0,
    dilation: Ints = 1,
    groups: Int = 1,
    *,
    padding_mode: str = "zeros",
) -> Array:
    """As `torch.nn.functional.conv3d`, with the `padding_mode` of `torch.nn.Conv3d`.

    Args:
      input: data (N, C, D, H, W) or, without a batch, (C, D, H, W).
      weight: (out_channels, in_channels/groups, *kernel).
      bias, stride, padding, dilation, groups, padding_mode: see :func:`conv1d`; an int is for
        all three axes.

    Example:
      >>> import jax.numpy as jnp, jaxconv
      >>> filters, inputs = jnp.ones((8, 6, 3, 3, 3)), jnp.ones((2, 6, 9, 5, 7))
      >>> jaxconv.torch.conv3d(inputs, filters, stride=(2, 1, 1)).shape
      (2, 8, 4, 3, 5)
    """
    rules = stride, padding, dilation, groups
    return _compute(convolution, "conv3d", 3, input, weight, bias, rules, padding_mode)


def conv_transpose1d(
    input: TensorLike,
    weight: TensorLike,
    bias: TensorLike | None = None,
    stride: Ints = 1,
    padding: Ints = 0,
    output_padding: Ints = 0,
    groups: Int = 1,
    dilation: Ints = 1,
) -> Array:
    """As `torch.nn.functional.conv_transpose1d`.

    Args:
      input: data (N, C, X) or, without a batch, (C, X).
      weight: (in_channels, out_channels/groups, kernel).
      bias: (out_channels,).
      stride, dilation: the distance in the output between pixels of the input, and between taps.
      padding: pixels cropped from both ends of each axis of the output.
      output_padding: pixels more at the end of each axis, fewer than stride or dilation.
        :func:`find_output_padding` finds what leads to a size.
      groups: parts of the channels that are convolved apart.

    Raises:
      TypeError, ValueError: an argument is malformed, or the sizes do not fit each other.

    Example:
      >>> import jax.numpy as jnp, jaxconv
      >>> inputs, weights = jnp.ones((20, 16, 50)), jnp.ones((16, 33, 5))
      >>> jaxconv.torch.conv_transpose1d(inputs, weights).shape
      (20, 33, 54)
    """
    rules = stride, padding, dilation, groups, output_padding
    return _compute(conv_transpose, "conv_transpose1d", 1, input, weight, bias, rules)


def conv_transpose2d(
    input: TensorLike,
    weight: TensorLike,
    bias: TensorLike | None = None,
    stride: Ints = 1,
    padding: Ints = 0,
    output_padding: Ints = 0,
    groups: Int = 1,
    dilation: Ints = 1,
) -> Array:
    """As `torch.nn.functional.conv_transpose2d`.

    Args:
      input: data (N, C, H, W) or, without a batch, (C, H, W).
      weight: (in_channels, out_channels/groups, *kernel).
      bias, stride, padding, output_padding, groups, dilation: see :func:`conv_transpose1d`; an
        int is for both axes.

    Example:
      >>> import jax.numpy as jnp, jaxconv
      >>> inputs, weights = jnp.ones((1, 4, 5, 5)), jnp.ones((4, 8, 3, 3))
      >>> jaxconv.torch.conv_transpose2d(inputs, weights, padding=1).shape
      (1, 8, 5, 5)
    """
    rules = stride, padding, dilation, groups, output_padding
    return _compute(conv_transpose, "conv_transpose2d", 2, input, weight, bias, rules)


def conv_transpose3d(
    input: TensorLike,
    weight: TensorLike,
    bias: TensorLike | None = None,
    stride: Ints = 1,
    padding: Ints = 0,
    output_padding: Ints = 0,
    groups: Int = 1,
    dilation: Ints = 1,
) -> Array:
    """As `torch.nn.functional.conv_transpose3d`.

    Args:
      input: data (N, C, D, H, W) or, without a batch, (C, D, H, W).
      weight: (in_channels, out_channels/groups, *kernel).
      bias, stride, padding, output_padding, groups, dilation: see :func:`conv_transpose1d`; an
        int is for all three axes.

    Example:
      >>> import jax.numpy as jnp, jaxconv
      >>> inputs, weights = jnp.ones((2, 6, 5, 4, 3)), jnp.ones((6, 8, 3, 3, 3))
      >>> jaxconv.torch.conv_transpose3d(inputs, weights, stride=2, output_padding=1).shape
      (2, 8, 12, 10, 8)
    """
    rules = stride, padding, dilation, groups, output_padding
    return _compute(conv_transpose, "conv_transpose3d", 3, input, weight, bias, rules)


def find_output_padding(
    input: Typed,
    weight: Typed,
    output_size: ShapeLike,
    stride: Ints = 1,
    padding: Ints = 0,
    dilation: Ints = 1,
) -> tuple[int, ...]:
    """Find the `output_padding` by which a transposed convolution gives a size.

    It is what `torch.nn.ConvTranspose2d` does with the `output_size` of its calls, in any number of
    spatial axes.

    Args:
      input, weight: those of the transposed convolution, of which only shapes are read.
      output_size: an int for each spatial axis, or the full size, whose batch and channels are
        ignored.
      stride, padding, dilation: those of the transposed convolution.

    Raises:
      TypeError: `output_size` is not made of ints.
      ValueError: `output_size` is not within reach: it may exceed the smallest size by less than
        the stride.

    Example:
      >>> import jax.numpy as jnp, jaxconv
      >>> small, weight = jnp.ones((1, 16, 6, 6)), jnp.ones((16, 16, 3, 3))
      >>> jaxconv.torch.find_output_padding(small, weight, (12, 11), stride=2, padding=1)
      (1, 0)
    """
    name = "find_output_padding"
    for argument, value in (("input", input), ("weight", weight)):
        if not hasattr(value, "shape"):
            raise TypeError(Refusal(name, argument, "must be an array", shown(value)))
    rank, axes = max(len(weight.shape) - 2, 1), len(input.shape)
    _check_axes(name, rank, input, weight)
    length = axes if length_hint(output_size) == axes else rank
    meaning = f"or {axes} ints, the last {rank} of them the spatial axes"
    sizes = parse.shape(name, "output_size", output_size, length, meaning)[-rank:]
    steps = read_ints(name, "stride", stride, rank, 1)
    pads = read_ints(name, "padding", padding, rank, 0)
    dilations = read_ints(name, "dilation", dilation, rank, 1)
    extents, kernel = tuple(input.shape[-rank:]), weight.shape[2:]
    if not all(isinstance(n, int) for n in (*extents, *kernel)):
        got = f"shapes {input.shape} and {weight.shape}"
        raise ValueError(Refusal(name, "input", "and `weight` must have constant extents", got))
    if not all(isinstance(n, int) for n in sizes):
        rule = "must be constant on the spatial axes"
        raise ValueError(Refusal(name, "output_size", rule, short(sizes)))
    least = tuple(
        s * (n - 1) - 2 * p + d * (k - 1) + 1
        for n, k, s, p, d in zip(extents, kernel, steps, pads, dilations, strict=True)
    )
    found = tuple(size - low for size, low in zip(sizes, least, strict=True))
    if any(not 0 <= more < step for more, step in zip(found, steps, strict=True)):
        most = tuple(low + step - 1 for low, step in zip(least, steps, strict=True))
        rule = f"must be from {least} to {most} for an input of {extents}"
        remedy = "jaxconv.conv_transpose takes any larger dst_shape"
        raise ValueError(Refusal(name, "output_size", rule, str(sizes), remedy))
    return found


def _compute(
    op: Callable[..., Array],
    name: str,
    rank: int,
    input: TensorLike,
    weight: TensorLike,
    bias: TensorLike | None,
    rules: tuple[object, ...],
    padding_mode: str = "zeros",
) -> Array:
    """Compute a layer by `op`; `rules` are those of `read_attributes`."""
    data, kernel = array(name, "input", input), array(name, "weight", weight)
    _check_axes(name, rank, data, kernel)
    common_dtype(name, input=data, weight=kernel)
    unbatched = data.ndim == rank + 1
    if unbatched:
        data = lax.expand_dims(data, (0,))
    with named(name, NAMES):
        attributes = read_attributes(name, data.shape, kernel.shape, rules)
        data, attributes = write_padding(name, data, kernel.shape, attributes, padding_mode)
        out = op(data, kernel, bias, **attributes)
    return lax.squeeze(out, (0,)) if unbatched else out


def _check_axes(name: str, rank: int, data: Typed, kernel: Typed) -> None:
    for argument, x, axes in (
        ("input", data, (rank + 2, rank + 1)),
        ("weight", kernel, (rank + 2,)),
    ):
        if len(x.shape) not in axes:
            rule = f"must have {either(map(str, axes))} axes"
            raise ValueError(Refusal(name, argument, rule, f"shape {x.shape}"))
