"""Engine: this library's explicit ops; `jaxconv:NAME` forces one form, or measured ones."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import jaxconv
from benchmarks.arrays import shapes_in
from benchmarks.engines import Unsupported
from benchmarks.layer import Layer

PACKAGE = jaxconv


def scope(form: str, function: Callable, arrays: list) -> AbstractContextManager:
    """A context in which the library spells the contractions of a function as told, or measured."""
    measured = form == "measured"
    return jaxconv.forced(jaxconv.measure(function, *arrays) if measured else form)


def contraction(layer: Layer, op: str, layout: str) -> Callable:
    """`op` as a function of its two operands."""
    transposed = layer.family == "deconv"
    attributes = _attributes(layer, layout)
    if transposed:
        attributes |= {"output_padding": layer.output_padding}
    elif any(-end >= stride for end, stride in zip(layer.pads_end, layer.strides, strict=True)):
        raise Unsupported("a convolution leaves less than a stride of src unread")
    name = "conv_transpose" if transposed else "convolution"
    function = getattr(jaxconv, name if op == "forward" else f"{name}_backward_{op}")
    *_, shape = shapes_in(layer, op, layout)
    shapes = () if op == "forward" or (transposed and op == "data") else (shape,)
    return lambda first, second: function(first, second, *shapes, **attributes)


def finished(layer: Layer, activation: str | None) -> Callable:
    """The forward pass and all that follows, as a function of src, weights, bias and residual."""
    convolve = jaxconv.convolution if layer.family == "conv" else jaxconv.conv_transpose
    attributes = _attributes(layer, "NXC")
    return lambda src, w, bias, residual: convolve(
        src, w, bias, residual=residual, activation=activation, **attributes
    )


def _attributes(layer: Layer, layout: str) -> dict:
    channels = "IO" if layer.family == "conv" else "OI"
    weights_format = f"X{channels}" if layout == "NXC" else f"{channels[::-1]}X"
    return layer.attributes | {"data_format": layout, "weights_format": weights_format}
