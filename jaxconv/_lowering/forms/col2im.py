"""col2im: one dot of each pixel with all taps makes windows, which are then added up.

im2col reversed. With few result channels, a pixel has few products, and is read once, not once for
each tap. XLA:CPU does the same by itself for strided data gradients of two spatial axes.
"""

import math
from functools import partial, reduce

import jax.numpy as jnp
from jax import Array, lax

from jaxconv._base.geometry import Geometry
from jaxconv._base.typing import Index
from jaxconv._lowering.form import Emit, Form
from jaxconv._lowering.forms import convolution, dot, taps, window
from jaxconv._lowering.forms.blocks import concatenate_blocks, slice_along
from jaxconv._lowering.problem import Numerics, Problem

#: Windows that are made at once, and windows of a block of images where there are more: the C
#: library maps buffers above 32 MiB anew at each call. And windows of one image.
MAX_WINDOWS_BYTES, MAX_BLOCK_BYTES, MAX_IMAGE_BYTES = 16 << 20, 4 << 20, 32 << 20


def _loop_over_images(form: Emit) -> Emit:
    """Make of a form a form that computes some images after the other if windows are many."""

    def each(data: Array, kernel: Array, *, geometry: Geometry, numerics: Numerics) -> Array:
        emit = partial(form, geometry=geometry, numerics=numerics)
        batch = data.shape[0]
        if not isinstance(batch, int):
            return emit(data, kernel)
        pixels, taps = math.prod(data.shape[1:-1]), math.prod(kernel.shape) // data.shape[-1]
        image = pixels * taps * numerics.sums.itemsize
        most = max(MAX_BLOCK_BYTES // image, 1) if batch * image > MAX_WINDOWS_BYTES else batch
        images = min(most, batch)

        def block(start: Index) -> Array:
            return emit(slice_along(data, start, images, 0), kernel)

        return concatenate_blocks(block, images, batch, 0, data, kernel, apart=True)

    return each


def to_coarse(fine: Array, kernel: Array, *, geometry: Geometry, numerics: Numerics) -> Array:
    """Sum the products of each tap with all pixels, shifted to the pixels of the result."""
    channels = kernel.shape[-1]
    weights = jnp.moveaxis(kernel, -2, 0).reshape(kernel.shape[-2], -1)
    windows = dot.contract_channels(fine, weights, numerics)  # N, X, (taps, o)
    terms = []
    for n, tap in enumerate(window.taps(geometry)):
        products = lax.slice_in_dim(windows, n * channels, (n + 1) * channels, axis=fine.ndim - 1)
        terms.append(window.shift_fine(tap, products, geometry))
    return reduce(lax.add, terms)


def _cannot(problem: Problem) -> bool:
    """Whether there are groups, huge windows, or sizes that neither function is made for."""
    if problem.result == "coarse":
        pixels, channels = math.prod(a.fine for a in problem.geometry.axes), problem.coarse_channels
        fits = not problem.strided and problem.taps <= taps.MAX_TAPS
    else:
        pixels, channels = problem.positions, problem.fine_channels
        fits = problem.strided and not problem.dilated and problem.rank == 2
        fits = fits and problem.taps <= pixels
    return not (problem.dense and fits) or 4 * pixels * problem.taps * channels > MAX_IMAGE_BYTES


FORM = Form(
    "col2im",
    {"coarse": _loop_over_images(to_coarse), "fine": _loop_over_images(convolution.to_fine)},
    cannot=_cannot,
    gathers=True,
    contender=True,
)
