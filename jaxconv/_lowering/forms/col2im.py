"""col2im: one dot of each pixel with all taps, then the windows that these products make, added up.

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

#: Most bytes of windows that are made at once, and most bytes of a block of images where there are
#: more: the C library maps buffers above 32 MiB anew at each call. And most bytes of one image.
WHOLE, BLOCK, IMAGE = 16 << 20, 4 << 20, 32 << 20


def _by_images(form: Emit) -> Emit:
    """Some images after the other, if all their windows are too many."""

    def each(data: Array, kernel: Array, *, geometry: Geometry, numerics: Numerics) -> Array:
        emit = partial(form, geometry=geometry, numerics=numerics)
        batch = data.shape[0]
        if not isinstance(batch, int):
            return emit(data, kernel)
        pixels, taps = math.prod(data.shape[1:-1]), math.prod(kernel.shape) // data.shape[-1]
        image = pixels * taps * numerics.sums.itemsize
        images = batch if batch * image <= WHOLE else min(max(BLOCK // image, 1), batch)

        def block(start: Index) -> Array:
            return emit(slice_along(data, start, images, 0), kernel)

        return concatenate_blocks(block, images, batch, 0, data, kernel)

    return each


def to_coarse(fine: Array, kernel: Array, *, geometry: Geometry, numerics: Numerics) -> Array:
    """For each tap, its products with all pixels, shifted to the pixels that read them."""
    channels = kernel.shape[-1]
    weights = jnp.moveaxis(kernel, -2, 0).reshape(kernel.shape[-2], -1)
    windows = dot.by_weights(fine, weights, numerics)  # N, X, (taps, o)
    terms = []
    for n, tap in enumerate(window.taps(geometry)):
        products = lax.slice_in_dim(windows, n * channels, (n + 1) * channels, axis=fine.ndim - 1)
        terms.append(window.shift_fine(tap, products, geometry))
    return reduce(lax.add, terms)


def _cannot(problem: Problem) -> bool:
    """Groups, huge windows, and what neither `to_coarse` nor XLA's own code is made for."""
    if problem.result == "coarse":
        pixels, channels = math.prod(a.fine for a in problem.geometry.axes), problem.coarse_channels
        fits = not problem.strided and problem.taps <= taps.MOST_TAPS
    else:
        pixels, channels = problem.positions, problem.fine_channels
        fits = problem.strided and not problem.dilated and problem.rank == 2
        fits = fits and problem.taps <= pixels
    return not (problem.dense and fits) or 4 * pixels * problem.taps * channels > IMAGE


FORM = Form(
    "col2im",
    {"coarse": _by_images(to_coarse), "fine": _by_images(convolution.to_fine)},
    cannot=_cannot,
    gathers=True,
    contender=True,
)
