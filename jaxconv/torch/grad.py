"""The gradients of `torch.nn.grad`, and those of the transposed convolutions, which PyTorch lacks.

Each has the arguments of the layer whose gradient it is: of `conv1d` to `conv3d` in the order of
`torch.nn.grad`, of `conv_transpose1d` to `conv_transpose3d` in the order of these functions. Sizes
are full sizes, and tensors have a batch. `padding` may be "valid" or "same" for a convolution.

>>> import jax.numpy as jnp
>>> from jaxconv import torch as F
>>> image, out = jnp.ones((8, 3, 32, 32)), jnp.ones((8, 16, 16, 16))
>>> weight = jnp.ones((16, 3, 3, 3))
>>> F.grad.conv2d_input(image.shape, weight, out, stride=2, padding=1).shape
(8, 3, 32, 32)
>>> F.grad.conv2d_weight(image, weight.shape, out, stride=2, padding=1).shape
(16, 3, 3, 3)
>>> F.grad.conv_transpose2d_weight(out, (16, 3, 3, 3), image, 2, 1, output_padding=1).shape
(16, 3, 3, 3)
"""

# Written out one by one: documentation, editors and type checkers read signatures in the source.

from jax import Array

from jaxconv._base.typing import Int, Ints, ShapeLike
from jaxconv._rules.arguments import TensorLike
from jaxconv.torch._differentiate import differentiate_by_input, differentiate_by_weight

__all__ = [
    "conv1d_input",
    "conv1d_weight",
    "conv2d_input",
    "conv2d_weight",
    "conv3d_input",
    "conv3d_weight",
    "conv_transpose1d_input",
    "conv_transpose1d_weight",
    "conv_transpose2d_input",
    "conv_transpose2d_weight",
    "conv_transpose3d_input",
    "conv_transpose3d_weight",
]


def conv1d_input(
    input_size: ShapeLike,
    weight: TensorLike,
    grad_output: TensorLike,
    stride: Ints = 1,
    padding: Ints | str = 0,
    dilation: Ints = 1,
    groups: Int = 1,
) -> Array:
    """The gradient of `conv1d` by its input, of size `input_size`.

    `weight` is its other operand, `grad_output` the gradient of its output; `stride`, `padding`,
    `dilation` and `groups` are those of :func:`jaxconv.torch.conv1d`.
    """
    rules = stride, padding, dilation, groups
    return differentiate_by_input("conv1d_input", 1, input_size, weight, grad_output, *rules)


def conv1d_weight(
    input: TensorLike,
    weight_size: ShapeLike,
    grad_output: TensorLike,
    stride: Ints = 1,
    padding: Ints | str = 0,
    dilation: Ints = 1,
    groups: Int = 1,
) -> Array:
    """The gradient of `conv1d` by its weight, of size `weight_size`.

    `input` is its other operand, `grad_output` the gradient of its output; `stride`, `padding`,
    `dilation` and `groups` are those of :func:`jaxconv.torch.conv1d`.
    """
    rules = stride, padding, dilation, groups
    return differentiate_by_weight("conv1d_weight", 1, input, weight_size, grad_output, *rules)


def conv2d_input(
    input_size: ShapeLike,
    weight: TensorLike,
    grad_output: TensorLike,
    stride: Ints = 1,
    padding: Ints | str = 0,
    dilation: Ints = 1,
    groups: Int = 1,
) -> Array:
    """The gradient of `conv2d` by its input, of size `input_size`.

    `weight` is its other operand, `grad_output` the gradient of its output; `stride`, `padding`,
    `dilation` and `groups` are those of :func:`jaxconv.torch.conv2d`.
    """
    rules = stride, padding, dilation, groups
    return differentiate_by_input("conv2d_input", 2, input_size, weight, grad_output, *rules)


def conv2d_weight(
    input: TensorLike,
    weight_size: ShapeLike,
    grad_output: TensorLike,
    stride: Ints = 1,
    padding: Ints | str = 0,
    dilation: Ints = 1,
    groups: Int = 1,
) -> Array:
    """The gradient of `conv2d` by its weight, of size `weight_size`.

    `input` is its other operand, `grad_output` the gradient of its output; `stride`, `padding`,
    `dilation` and `groups` are those of :func:`jaxconv.torch.conv2d`.
    """
    rules = stride, padding, dilation, groups
    return differentiate_by_weight("conv2d_weight", 2, input, weight_size, grad_output, *rules)


def conv3d_input(
    input_size: ShapeLike,
    weight: TensorLike,
    grad_output: TensorLike,
    stride: Ints = 1,
    padding: Ints | str = 0,
    dilation: Ints = 1,
    groups: Int = 1,
) -> Array:
    """The gradient of `conv3d` by its input, of size `input_size`.

    `weight` is its other operand, `grad_output` the gradient of its output; `stride`, `padding`,
    `dilation` and `groups` are those of :func:`jaxconv.torch.conv3d`.
    """
    rules = stride, padding, dilation, groups
    return differentiate_by_input("conv3d_input", 3, input_size, weight, grad_output, *rules)


def conv3d_weight(
    input: TensorLike,
    weight_size: ShapeLike,
    grad_output: TensorLike,
    stride: Ints = 1,
    padding: Ints | str = 0,
    dilation: Ints = 1,
    groups: Int = 1,
) -> Array:
    """The gradient of `conv3d` by its weight, of size `weight_size`.

    `input` is its other operand, `grad_output` the gradient of its output; `stride`, `padding`,
    `dilation` and `groups` are those of :func:`jaxconv.torch.conv3d`.
    """
    rules = stride, padding, dilation, groups
    return differentiate_by_weight("conv3d_weight", 3, input, weight_size, grad_output, *rules)


def conv_transpose1d_input(
    input_size: ShapeLike,
    weight: TensorLike,
    grad_output: TensorLike,
    stride: Ints = 1,
    padding: Ints = 0,
    output_padding: Ints = 0,
    groups: Int = 1,
    dilation: Ints = 1,
) -> Array:
    """The gradient of `conv_transpose1d` by its input, of size `input_size`.

    `weight` is its other operand, `grad_output` the gradient of its output; `stride`, `padding`,
    `output_padding`, `groups` and `dilation` are those of :func:`jaxconv.torch.conv_transpose1d`.
    """
    rules = stride, padding, dilation, groups, output_padding
    return differentiate_by_input(
        "conv_transpose1d_input", 1, input_size, weight, grad_output, *rules
    )


def conv_transpose1d_weight(
    input: TensorLike,
    weight_size: ShapeLike,
    grad_output: TensorLike,
    stride: Ints = 1,
    padding: Ints = 0,
    output_padding: Ints = 0,
    groups: Int = 1,
    dilation: Ints = 1,
) -> Array:
    """The gradient of `conv_transpose1d` by its weight, of size `weight_size`.

    `input` is its other operand, `grad_output` the gradient of its output; `stride`, `padding`,
    `output_padding`, `groups` and `dilation` are those of :func:`jaxconv.torch.conv_transpose1d`.
    """
    rules = stride, padding, dilation, groups, output_padding
    return differentiate_by_weight(
        "conv_transpose1d_weight", 1, input, weight_size, grad_output, *rules
    )


def conv_transpose2d_input(
    input_size: ShapeLike,
    weight: TensorLike,
    grad_output: TensorLike,
    stride: Ints = 1,
    padding: Ints = 0,
    output_padding: Ints = 0,
    groups: Int = 1,
    dilation: Ints = 1,
) -> Array:
    """The gradient of `conv_transpose2d` by its input, of size `input_size`.

    `weight` is its other operand, `grad_output` the gradient of its output; `stride`, `padding`,
    `output_padding`, `groups` and `dilation` are those of :func:`jaxconv.torch.conv_transpose2d`.
    """
    rules = stride, padding, dilation, groups, output_padding
    return differentiate_by_input(
        "conv_transpose2d_input", 2, input_size, weight, grad_output, *rules
    )


def conv_transpose2d_weight(
    input: TensorLike,
    weight_size: ShapeLike,
    grad_output: TensorLike,
    stride: Ints = 1,
    padding: Ints = 0,
    output_padding: Ints = 0,
    groups: Int = 1,
    dilation: Ints = 1,
) -> Array:
    """The gradient of `conv_transpose2d` by its weight, of size `weight_size`.

    `input` is its other operand, `grad_output` the gradient of its output; `stride`, `padding`,
    `output_padding`, `groups` and `dilation` are those of :func:`jaxconv.torch.conv_transpose2d`.
    """
    rules = stride, padding, dilation, groups, output_padding
    return differentiate_by_weight(
        "conv_transpose2d_weight", 2, input, weight_size, grad_output, *rules
    )


def conv_transpose3d_input(
    input_size: ShapeLike,
    weight: TensorLike,
    grad_output: TensorLike,
    stride: Ints = 1,
    padding: Ints = 0,
    output_padding: Ints = 0,
    groups: Int = 1,
    dilation: Ints = 1,
) -> Array:
    """The gradient of `conv_transpose3d` by its input, of size `input_size`.

    `weight` is its other operand, `grad_output` the gradient of its output; `stride`, `padding`,
    `output_padding`, `groups` and `dilation` are those of :func:`jaxconv.torch.conv_transpose3d`.
    """
    rules = stride, padding, dilation, groups, output_padding
    return differentiate_by_input(
        "conv_transpose3d_input", 3, input_size, weight, grad_output, *rules
    )


def conv_transpose3d_weight(
    input: TensorLike,
    weight_size: ShapeLike,
    grad_output: TensorLike,
    stride: Ints = 1,
    padding: Ints = 0,
    output_padding: Ints = 0,
    groups: Int = 1,
    dilation: Ints = 1,
) -> Array:
    """The gradient of `conv_transpose3d` by its weight, of size `weight_size`.

    `input` is its other operand, `grad_output` the gradient of its output; `stride`, `padding`,
    `output_padding`, `groups` and `dilation` are those of :func:`jaxconv.torch.conv_transpose3d`.
    """
    rules = stride, padding, dilation, groups, output_padding
    return differentiate_by_weight(
        "conv_transpose3d_weight", 3, input, weight_size, grad_output, *rules
    )
