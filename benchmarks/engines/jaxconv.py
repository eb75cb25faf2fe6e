"""Engine: this library's explicit ops; `jaxconv:NAME` forces one spelling, or measured ones."""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from jax import lax

import jaxconv
from benchmarks.arrays import data_shape, kernel_shape
from benchmarks.layer import Layer

PACKAGE = jaxconv


def scope(spelling: str) -> Callable:
    """What makes a context in which the library spells every contraction as told.

    It is told the function and its operands, as `jaxconv.measure` wants them.
    """
    needed = "measure" if spelling == "measured" else "forced"
    if not hasattr(jaxconv, needed):
        raise ImportError(f"this jaxconv cannot force a spelling ({spelling!r})")
    if spelling == "measured":
        return lambda function, arrays: jaxconv.forced(jaxconv.measure(function, *arrays))
    return lambda function, arrays: jaxconv.forced(spelling)


def contraction(layer: Layer, op: str, layout: str) -> Callable:
    """`op` as a function of its two operands."""
    return _conv(layer, op, layout) if layer.family == "conv" else _deconv(layer, op, layout)


def finished(layer: Layer, activation: str | None) -> Callable:
    """The forward pass and all that follows, as a function of src, weights, bias and residual."""
    convolve = jaxconv.convolution if layer.family == "conv" else jaxconv.conv_transpose
    common = _common(layer, "NXC")
    return lambda src, w, bias, residual: convolve(
        src, w, bias, residual=residual, activation=activation, **common
    )


def _conv(layer: Layer, op: str, layout: str) -> Callable:
    common = _common(layer, layout)
    # Off the src's end: a convolution leaves less than a stride unread there.
    ends = zip(layer.pads_end, layer.strides, strict=True)
    cuts = tuple(-pad if pad <= -stride else 0 for pad, stride in ends)

    def cropped(src):
        return _resize_end(src, tuple(-c for c in cuts), layout)

    if op == "forward":
        return lambda src, w: jaxconv.convolution(cropped(src), w, **common)
    if op == "weights":
        return lambda src, diff_dst: jaxconv.convolution_backward_weights(
            cropped(src), diff_dst, kernel_shape(layer, layout), **common
        )
    size = tuple(f - c for f, c in zip(layer.src_size, cuts, strict=True))
    shape = data_shape(layer.batch, size, layer.src_channels, layout)
    return lambda diff_dst, w: _resize_end(
        jaxconv.convolution_backward_data(diff_dst, w, shape, **common), cuts, layout
    )


def _deconv(layer: Layer, op: str, layout: str) -> Callable:
    common = _common(layer, layout) | {"output_padding": layer.output_padding}
    if op == "forward":
        return lambda src, w: jaxconv.conv_transpose(src, w, **common)
    if op == "data":
        return lambda diff_dst, w: jaxconv.conv_transpose_backward_data(diff_dst, w, **common)
    return lambda src, diff_dst: jaxconv.conv_transpose_backward_weights(
        src, diff_dst, kernel_shape(layer, layout), **common
    )


def _common(layer: Layer, layout: str) -> dict:
    channels = "IO" if layer.family == "conv" else "OI"
    weights_format = f"X{channels}" if layout == "NXC" else f"{channels[::-1]}X"
    return layer.attributes | {"data_format": layout, "weights_format": weights_format}


def _resize_end(x: jax.Array, amounts: tuple[int, ...], layout: str) -> jax.Array:
    """Zeros added at (or, negative, elements cut off) the end of each spatial axis."""
    if not any(amounts):
        return x
    spatial = [(0, a, 0) for a in amounts]
    whole = [(0, 0, 0)]
    config = [*whole, *spatial, *whole] if layout == "NXC" else [*whole, *whole, *spatial]
    return lax.pad(x, jnp.zeros((), x.dtype), config)
