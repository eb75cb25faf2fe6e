"""The gradients of a layer, checked against the size of its output."""

from jax import Array

from jaxconv import (
    conv_transpose_backward_data,
    conv_transpose_backward_weights,
    convolution_backward_data,
    convolution_backward_weights,
)
from jaxconv._base.typing import Shape, ShapeLike
from jaxconv._rules import attributes as parse
from jaxconv._rules.arguments import TensorLike
from jaxconv.torch._rules import Layer, read_layer, read_tensors


def differentiate_by_input(
    name: str,
    rank: int,
    input_size: ShapeLike,
    weight: TensorLike,
    grad_output: TensorLike,
    *rules: object,
) -> Array:
    """Compute the gradient by the input; `rules` are those of `read_layer`."""
    tensors = read_tensors(name, weight=weight, grad_output=grad_output)
    kernel, slope = tensors["weight"], tensors["grad_output"]
    size = parse.shape(name, "input_size", input_size, rank + 2, "(batch, channels, *spatial)")
    layer = read_layer(name, rank, size, kernel.shape, *rules)
    _check_output(name, slope.shape, layer)
    if not layer.transposed:
        return convolution_backward_data(slope, kernel, size, **layer.attributes)
    return conv_transpose_backward_data(slope, kernel, **layer.attributes)


def differentiate_by_weight(
    name: str,
    rank: int,
    input: TensorLike,
    weight_size: ShapeLike,
    grad_output: TensorLike,
    *rules: object,
) -> Array:
    """Compute the gradient by the weight; `rules` are those of `read_layer`."""
    tensors = read_tensors(name, input=input, grad_output=grad_output)
    data, slope = tensors["input"], tensors["grad_output"]
    size = parse.shape(name, "weight_size", weight_size, rank + 2, "that of the weight")
    layer = read_layer(name, rank, data.shape, size, *rules)
    _check_output(name, slope.shape, layer)
    op = conv_transpose_backward_weights if layer.transposed else convolution_backward_weights
    return op(data, slope, size, **layer.attributes)


def _check_output(name: str, found: Shape, layer: Layer) -> None:
    if found != layer.output:
        raise ValueError(
            f"{name}: `grad_output` must have the size of the layer's output, {layer.output}; got "
            f"{found}"
        )
