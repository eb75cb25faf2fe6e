"""The six operations in NumPy float64, from their defining sum; shares no code with jaxconv.

Every operation is one of three contractions of the same trilinear form,

    sum  fine[n, g, i, S*q + D*t - P] * kernel[g, o, i, t] * coarse[n, g, o, q]

over batch n, group g, channels i and o of a group, kernel taps t and coarse positions q, where
the fine tensor is zero outside its bounds. src is the fine tensor of a convolution, and the
coarse one of a transposed convolution. Integers are exact while sums stay below 2**53.
"""

from dataclasses import dataclass
from typing import NamedTuple

import ml_dtypes
import numpy as np


def convolution(
    src, weights, bias=None, *, weights_format="XIO", residual=None, activation=None, **attributes
):
    op = _Op("convolution", weights_format, **attributes)
    fine, kernel = op.split(src), op.kernel(weights)
    axes = op.axes(fine.shape[3:], kernel.shape[3:], None)
    return finish(op.join(to_coarse(fine, kernel, axes), bias), residual, activation)


def convolution_backward_data(
    diff_dst, weights, dst_shape=None, *, weights_format="XIO", **attributes
):
    op = _Op("convolution_backward_data", weights_format, **attributes)
    coarse, kernel = op.split(diff_dst), op.kernel(weights)
    axes = op.axes(op.spatial(dst_shape), kernel.shape[3:], coarse.shape[3:])
    return op.join(to_fine(coarse, kernel, axes))


def convolution_backward_weights(
    src, diff_dst, weights_shape, *, weights_format="XIO", **attributes
):
    op = _Op("convolution_backward_weights", weights_format, **attributes)
    fine, coarse = op.split(src), op.split(diff_dst)
    place = op.kernel(_numbered(weights_shape))
    axes = op.axes(fine.shape[3:], place.shape[3:], coarse.shape[3:])
    return _put(to_kernel(fine, coarse, axes), place, weights_shape)


def conv_transpose(
    src,
    weights,
    bias=None,
    *,
    weights_format="XOI",
    dst_shape=None,
    residual=None,
    activation=None,
    **attributes,
):
    op = _Op("conv_transpose", weights_format, **attributes)
    coarse = op.split(src)
    kernel = op.kernel(weights, o=coarse.shape[2])
    axes = op.axes(op.spatial(dst_shape), kernel.shape[3:], coarse.shape[3:])
    return finish(op.join(to_fine(coarse, kernel, axes), bias), residual, activation)


def conv_transpose_backward_data(diff_dst, weights, *, weights_format="XOI", **attributes):
    op = _Op("conv_transpose_backward_data", weights_format, **attributes)
    fine = op.split(diff_dst)
    kernel = op.kernel(weights, i=fine.shape[2])
    axes = op.axes(fine.shape[3:], kernel.shape[3:], None)
    return op.join(to_coarse(fine, kernel, axes))


def conv_transpose_backward_weights(
    src, diff_dst, weights_shape, *, weights_format="XOI", **attributes
):
    op = _Op("conv_transpose_backward_weights", weights_format, **attributes)
    coarse, fine = op.split(src), op.split(diff_dst)
    place = op.kernel(_numbered(weights_shape), o=coarse.shape[2])
    axes = op.axes(fine.shape[3:], place.shape[3:], coarse.shape[3:])
    return _put(to_kernel(fine, coarse, axes), place, weights_shape)


def finish(sums, residual, activation):
    """Add a residual, and apply an activation that is exact."""
    sums = sums if residual is None else sums + np.asarray(residual, np.float64)
    if activation is None:
        return sums
    return np.clip(sums, 0, {"relu": np.inf, "relu6": 6}[activation])


# The three contractions: (N, G, I, fine...), (G, O, I, kernel...), (N, G, O, coarse...).
def to_coarse(fine, kernel, axes):
    coarse = np.zeros((len(fine), *kernel.shape[:2], *(axis.coarse for axis in axes)))
    for tap in np.ndindex(kernel.shape[3:]):
        p, q = _meet(axes, tap)
        coarse[q] += np.einsum("ngi...,goi->ngo...", fine[p], kernel[(..., *tap)])
    return coarse


def to_fine(coarse, kernel, axes):
    channels = kernel.shape[0], kernel.shape[2]
    fine = np.zeros((len(coarse), *channels, *(axis.fine for axis in axes)))
    for tap in np.ndindex(kernel.shape[3:]):
        p, q = _meet(axes, tap)
        fine[p] += np.einsum("ngo...,goi->ngi...", coarse[q], kernel[(..., *tap)])
    return fine


def to_kernel(fine, coarse, axes):
    taps = tuple(axis.kernel for axis in axes)
    kernel = np.zeros((fine.shape[1], coarse.shape[2], fine.shape[2], *taps))
    x = "stuvwxyz"[: len(axes)]
    for tap in np.ndindex(taps):
        p, q = _meet(axes, tap)
        kernel[(..., *tap)] = np.einsum(f"ngi{x},ngo{x}->goi", fine[p], coarse[q])
    return kernel


def _meet(axes, tap):
    """The fine positions p = S*q + D*t - P within bounds, and their q, that one tap joins."""
    p, q = [], []
    for axis, t in zip(axes, tap, strict=True):
        every_q = np.arange(axis.coarse)
        every_p = axis.stride * every_q + axis.dilation * t - axis.pad_begin
        inside = (every_p >= 0) & (every_p < axis.fine)
        p.append(every_p[inside])
        q.append(every_q[inside])
    return (..., *np.ix_(*p)), (..., *np.ix_(*q))


class Axis(NamedTuple):
    """Sizes and the begin padding P of one spatial axis, all resolved."""

    fine: int
    kernel: int
    coarse: int
    stride: int
    dilation: int
    pad_begin: int
    pad_end: int  # as padded; the strides may leave `rest` of it and of the fine axis unused
    rest: int


def fit_axis(op, f, k, c, s, d, pads, mode, extra):
    """One axis of `op`: of the fine size f and the coarse size c, at most one is None."""
    forward = op.startswith("convolution")
    reach = d * (k - 1) + 1
    fitted = (
        f is not None
        and mode.startswith("same")
        and (op == "conv_transpose" or (op == "convolution_backward_data" and extra))
    )

    # Padding: explicit, none, or a total that SAME splits in two.
    if mode == "none":
        begin, end = pads
    elif mode == "valid":
        begin, end = 0, 0
    else:
        if fitted:
            total = s * (c - 1) + reach + extra - f
        elif forward and f is not None:
            total = (-(-f // s) - 1) * s + reach - f
        else:
            total = reach - s
        total = max(total, 0)
        smaller, larger = total // 2, total - total // 2
        begin, end = {"same_upper": (smaller, larger), "same_lower": (larger, smaller)}[mode]

    # Sizes: the one that is not known follows from the one that is.
    if f is None:
        f = s * (c - 1) + reach + extra - begin - end
    elif c is None:
        c = (f + begin + end - extra - reach) // s + 1

    # What the windows leave uncovered is output padding, or less than a stride of a convolution.
    # Padding that SAME fitted to a given size leaves what that size asks for.
    rest = f + begin + end - (s * (c - 1) + reach)
    fits = rest == extra if extra else rest >= 0 and (rest < s or not forward)
    fits = fits or fitted
    if f < 1 or c < 1 or not fits:
        raise ValueError(f"{op}: {f}, {k} and {c} do not fit, with {rest} left over")
    return Axis(f, k, c, s, d, begin, end, rest)


def resolve(op, fine, kernel, coarse, **attributes):
    """The axes of an operation with these spatial sizes; fine or coarse may be None."""
    return _Op(op, "OIX", **attributes).axes(fine, kernel, coarse)


@dataclass(frozen=True)
class _Op:
    """An operation's attributes, and what they say about shapes and layouts."""

    name: str
    weights_format: str
    strides: object = 1
    pads_begin: object = 0
    pads_end: object = 0
    dilations: object = 1
    auto_pad: str | None = "none"
    groups: int = 1
    data_format: str = "NXC"
    output_padding: object = 0

    @property
    def channels_last(self):
        return self.data_format.upper() == "NXC"

    def axes(self, fine, kernel, coarse):
        rank = len(kernel)
        mode = (self.auto_pad or "none").lower()
        mode = {"notset": "none", "explicit": "none"}.get(mode, mode)
        pads = zip(_each(self.pads_begin, rank), _each(self.pads_end, rank), strict=True)
        per_axis = zip(
            fine or [None] * rank, kernel, coarse or [None] * rank, _each(self.strides, rank),
            _each(self.dilations, rank), pads, [mode] * rank, _each(self.output_padding, rank),
            strict=True,
        )  # fmt: skip
        return [fit_axis(self.name, *axis) for axis in per_axis]

    def spatial(self, shape):
        """The spatial part of a full shape in `data_format` order."""
        if shape is None:
            return None
        sizes = tuple(int(size) for size in shape)
        return sizes[1:-1] if self.channels_last else sizes[2:]

    def split(self, data):
        """Data as (N, G, channels of a group, spatial...)."""
        data = np.asarray(data, np.float64)
        data = np.moveaxis(data, -1, 1) if self.channels_last else data
        n, channels, *sizes = data.shape
        return data.reshape(n, self.groups, channels // self.groups, *sizes)

    def join(self, data, bias=None):
        """The result in `data_format`, the inverse of `split`, with the bias added."""
        n, g, channels, *sizes = data.shape
        data = np.moveaxis(data.reshape(n, g * channels, *sizes), 1, -1)
        data = data if bias is None else data + np.asarray(bias, np.float64)
        return data if self.channels_last else np.moveaxis(data, -1, 1)

    def kernel(self, weights, o=None, i=None):
        """Weights as (G, O, I, taps...), where I is fine and O coarse.

        The letters name the channel axes after src and dst. In a convolution src is fine and
        the dst axis holds all groups. In a transposed one, src is coarse and either axis may
        hold all groups: o or i, the channels of one group that data has, tells which.
        """
        weights = np.asarray(weights, np.float64)
        letters = self.weights_format.upper().replace("X", "X" * (weights.ndim - 2))
        taps = [axis for axis, letter in enumerate(letters) if letter == "X"]
        by_dst_src = np.transpose(weights, (letters.index("O"), letters.index("I"), *taps))
        dst, src, *taps = by_dst_src.shape
        g = self.groups
        if self.name.startswith("convolution"):
            return by_dst_src.reshape(g, dst // g, src, *taps)
        src_holds_all = src == g * o if o else dst == i
        if src_holds_all:
            return by_dst_src.swapaxes(0, 1).reshape(g, src // g, dst, *taps)
        return by_dst_src.reshape(g, dst // g, src, *taps).swapaxes(1, 2)


def _each(value, rank):
    """A per-axis attribute as one int for each axis; an empty list is zeros."""
    return [value] * rank if np.ndim(value) == 0 else list(value) or [0] * rank


def _numbered(shape):
    """An array of that shape that numbers its elements, to see where a layout puts them."""
    shape = tuple(int(size) for size in shape)
    return np.arange(np.prod(shape)).reshape(shape)


def _put(values, place, shape):
    """The array of that shape whose element number place[j] is values[j]."""
    result = np.empty(tuple(int(size) for size in shape))
    result.flat[place.astype(int).ravel()] = values.ravel()
    return result


def round_to(x, dtype):
    """The float64 array x in `dtype`, rounded once, ties to even.

    Not left to a cast, because one from float64 to bfloat16 may go through float32 and round
    twice. A number in [2**e, 2**(e+1)) is rounded to a multiple of 2**(e - mantissa bits).
    """
    x = np.asarray(x, np.float64)
    info = ml_dtypes.finfo(dtype)
    exponent = np.maximum(np.frexp(x)[1] - 1, info.minexp)
    unit = exponent - info.nmant
    with np.errstate(over="ignore"):
        return np.ldexp(np.rint(np.ldexp(x, -unit)), unit).astype(dtype)
