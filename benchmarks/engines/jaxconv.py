"""Engine: this library's explicit ops; `jaxconv:NAME` forces one spelling, or measured ones."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

import jaxconv
from benchmarks.arrays import shapes_in
from benchmarks.layer import Layer

PACKAGE = jaxconv


def scope(spelling: str) -> Callable:
    """What makes a context in which the library spells every contraction as told.

    It is told the function and its operands, as `jaxconv.measure` wants them.
    """
    if spelling == "measured":
        return lambda function, arrays: jaxconv.forced(jaxconv.measure(function, *arrays))
    return lambda function, arrays: jaxconv.forced(spelling)


def contraction(layer: Layer, op: str, layout: str) -> Callable:
    """`op` as a function of its two operands."""
    transposed = layer.family == "deconv"
    name = "conv_transpose" if transposed else "convolution"
    function = getattr(jaxconv, name if op == "forward" else f"{name}_backward_{op}")
    attributes = _attributes(layer, layout)
    if transposed:
        attributes |= {"output_padding": layer.output_padding}
    # Off the src's end: a convolution leaves less than a stride unread there.
    ends = zip(layer.pads_end, layer.strides, strict=True)
    cuts = [-pad if pad <= -stride and not transposed else 0 for pad, stride in ends]
    cuts = (0, *cuts, 0) if layout == "NXC" else (0, 0, *cuts)
    *_, shape = shapes_in(layer, op, layout)
    if op == "data":
        shape = tuple(n - cut for n, cut in zip(shape, cuts, strict=True))
    shapes = () if op == "forward" or (transposed and op == "data") else (shape,)

    def call(first, second):
        if op == "data":
            return _resize_end(function(first, second, *shapes, **attributes), cuts)
        first = _resize_end(first, tuple(-cut for cut in cuts))
        return function(first, second, *shapes, **attributes)

    return call


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


def _resize_end(x: jax.Array, amounts: tuple[int, ...]) -> jax.Array:
    """Zeros added at (or, negative, elements cut off) the end of each axis."""
    config = [(0, amount, 0) for amount in amounts]
    return lax.pad(x, jnp.zeros((), x.dtype), config) if any(amounts) else x
