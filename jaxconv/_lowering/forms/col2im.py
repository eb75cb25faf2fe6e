"""col2im: one dot of each pixel with all taps makes windows, which are then added up.

im2col reversed. With few result channels, a pixel has few products, and is read once, not once for
each tap. With few pixels, the kernel is most of the data, and the dot reads it where it lies.
"""

import math
from functools import reduce

import jax.numpy as jnp
from jax import Array, lax

from jaxconv._base.geometry import Axis
from jaxconv._base.reshape import pad, replace_axes
from jaxconv._base.typing import Index
from jaxconv._lowering.forms import dots, split, window
from jaxconv._lowering.forms.blocks import concatenate_blocks, slice_along
from jaxconv._lowering.problem import Call, Emit, Form, Numerics, Problem

#: Windows that are made at once, and windows of a block of images where there are more: the C
#: library maps buffers above 32 MiB anew at each call. And windows of one image.
MAX_WINDOWS_BYTES, MAX_BLOCK_BYTES, MAX_IMAGE_BYTES = 16 << 20, 4 << 20, 32 << 20


def _loop_over_images(form: Emit) -> Emit:
    """Make of a form a form that computes some images after the other if windows are many."""

    def each(data: Array, kernel: Array, call: Call) -> Array:
        batch = data.shape[0]
        if not isinstance(batch, int):
            return form(data, kernel, call)
        pixels, products = math.prod(data.shape[1:-1]), math.prod(kernel.shape) // data.shape[-1]
        image = pixels * products * call.numerics.sums.itemsize
        most = max(MAX_BLOCK_BYTES // image, 1) if batch * image > MAX_WINDOWS_BYTES else batch
        images = min(most, batch)

        def block(start: Index) -> Array:
            return form(slice_along(data, start, images, 0), kernel, call)

        return concatenate_blocks(block, images, batch, 0, data, kernel, isolated=True)

    return each


def _make_windows(
    data: Array, kernel: Array, summed: int, kept: tuple[int, ...], numerics: Numerics
) -> Array:
    """Contract (N, X, C) with the axis `summed` of a kernel to (N, X, the axes `kept`).

    The kernel is put in order before, or the windows after, whichever is less.
    """
    rank, channels = kernel.ndim - 2, kernel.shape[summed]
    if not isinstance(data.shape[0], int) or math.prod(data.shape[:-1]) > channels:
        kernel = lax.transpose(kernel, (summed, *kept))
        summed, kept = 0, tuple(range(1, 2 + rank))
    rest = [axis for axis in range(kernel.ndim) if axis != summed]
    if summed == 1 + rank:
        out = dots.contract_last(data, kernel.reshape(-1, channels), numerics)
    else:
        rows = jnp.moveaxis(kernel, summed, 0).reshape(channels, -1)
        out = dots.contract_channels(data, rows, numerics)
    out = out.reshape(*data.shape[:-1], *(kernel.shape[axis] for axis in rest))
    return lax.transpose(out, (*range(1 + rank), *(1 + rank + rest.index(axis) for axis in kept)))


def to_coarse(fine: Array, kernel: Array, call: Call) -> Array:
    """Sum the products of each tap with all pixels, shifted to the pixels of the result."""
    geometry, numerics = call.geometry, call.numerics
    layout, rank = geometry.kernel, geometry.rank
    kept = (*layout.spatial, layout.coarse)
    windows = _make_windows(fine, kernel, layout.fine, kept, numerics)
    windows = replace_axes(windows, 1 + rank, rank, (math.prod(a.kernel for a in geometry.axes),))
    terms = []
    for n, tap in enumerate(window.taps(geometry)):
        products = lax.index_in_dim(windows, n, 1 + rank, keepdims=False)
        terms.append(window.shift_fine(tap, products, geometry))
    return reduce(lax.add, terms)


def to_fine(coarse: Array, kernel: Array, call: Call) -> Array:
    """Add up windows, axis by axis: tap stride*m + r of coarse pixel a belongs to place a + m."""
    geometry, numerics = call.geometry, call.numerics
    layout, rank = geometry.kernel, geometry.rank
    kept = (*layout.spatial, layout.fine)
    out = _make_windows(coarse, kernel, layout.coarse, kept, numerics)
    for n, axis in enumerate(geometry.axes):
        out = _add_windows(jnp.moveaxis(out, 1 + rank, 2 + n), axis, 1 + n)
    return out


def _add_windows(x: Array, axis: Axis, at: int) -> Array:
    """Add up the windows of one axis: of coarse pixels in `at`, and of taps right behind."""
    stride = axis.stride
    shifts, step = -(-axis.kernel // stride), axis.dilation if stride == 1 else 1
    x = pad(x, {at + 1: (0, shifts * stride - axis.kernel, 0)})
    x = replace_axes(x, at + 1, 1, (shifts, stride))
    last = step * (shifts - 1)
    shifted = (lax.index_in_dim(x, m, at + 1, keepdims=False) for m in range(shifts))
    terms = [pad(y, {at: (step * m, last - step * m, 0)}) for m, y in enumerate(shifted)]
    out = replace_axes(reduce(lax.add, terms), at, 2, ((axis.coarse + last) * stride,))
    return pad(out, {at: (-axis.pad_low, axis.pad_low + axis.fine - out.shape[at], 0)})


def _cannot(problem: Problem) -> bool:
    """Whether there are groups, huge windows, or sizes that neither function is made for."""
    axes = problem.geometry.axes
    if problem.result == "coarse":
        pixels, channels = math.prod(a.fine for a in axes), problem.coarse_channels
        fits, padded = not problem.strided and problem.taps <= split.MAX_PARTS, problem.taps
    else:
        pixels, channels = problem.positions, problem.fine_channels
        shifts = [-(-a.kernel // a.stride) for a in axes]
        fits = all(1 in (a.dilation, a.stride) for a in axes) and sum(shifts) <= split.MAX_PARTS
        padded = math.prod(m * a.stride for m, a in zip(shifts, axes, strict=True))
    return not (problem.dense and fits) or 4 * pixels * padded * channels > MAX_IMAGE_BYTES


FORM = Form(
    "col2im",
    {"coarse": _loop_over_images(to_coarse), "fine": _loop_over_images(to_fine)},
    cannot=_cannot,
    layouts="any kernel",
    gathers=True,
    contender=True,
)
