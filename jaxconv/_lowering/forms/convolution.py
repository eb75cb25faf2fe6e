"""One `lax.conv_general_dilated`, in dimension numbers that XLA:CPU is fast with everywhere.

Data is (N, X, C), and the kernel (X, I, O). XLA:CPU finds its fast convolutions by these dimension
numbers, and canonicalises other numbers only outside loops and branches.
"""

import math
from dataclasses import replace
from functools import partial

import jax.numpy as jnp
from jax import Array, lax

from jaxconv._base.geometry import UNIT, Geometry
from jaxconv._base.reshape import merge_groups, split_groups
from jaxconv._lowering.forms import reference, window
from jaxconv._lowering.forms.blocks import call_isolated
from jaxconv._lowering.problem import Call, Form


def to_coarse(fine: Array, kernel: Array, call: Call) -> Array:
    """Call the reference.

    1-D of one channel, or in float64, is computed in 2-D; float64 is padded as XLA is fast with.
    """
    geometry = call.geometry
    if geometry.rank == 1 and (fine.shape[-1] == 1 or fine.dtype.itemsize == 8):
        # XLA's only fast convolution of one channel, or in float64, has two spatial axes.
        plane = replace(geometry, axes=(UNIT, *geometry.axes)).canonical()
        fine, kernel = lax.expand_dims(fine, (1,)), lax.expand_dims(kernel, (0,))
        return lax.squeeze(to_coarse(fine, kernel, call.of(plane)), (1,))
    if fine.dtype.itemsize == 8:
        return _convolve_float64(fine, kernel, call)
    fine, geometry = _pad_if_smaller(fine, geometry, [a.kernel for a in geometry.axes])
    if fine.dtype.itemsize == 1:
        # Else XLA gives integers the caller's order of axes: up to 100 times as long.
        convolve = partial(reference.to_coarse, call=call.of(geometry).wide)
        return call_isolated(convolve, fine, kernel)
    return reference.to_coarse(fine, kernel, call.of(geometry).wide)


def _pad_if_smaller(fine: Array, geometry: Geometry, sliding: list[int]) -> tuple[Array, Geometry]:
    """Pad the fine tensor first if it has fewer pixels than what slides over it, of these extents.

    XLA would exchange a dense convolution's operands, and has only scalar code for what results:
    weights gradients of many taps took 20 to 120 times as long.
    """
    if geometry.groups > 1 or math.prod(sliding) <= math.prod(a.fine for a in geometry.axes):
        return fine, geometry
    # The barrier keeps XLA from moving the padding back into the convolution.
    fine = lax.optimization_barrier(window.pad_fine(fine, geometry))
    return fine, geometry.padded()


def _convolve_float64(fine: Array, kernel: Array, call: Call) -> Array:
    """Call XLA's convolution in float64, with the amount of padding that it is fast with.

    With more padding than keeps the extents, the call takes 12 times as long; without padding, 5 to
    17 times on JAX 0.10. In these cases the data is padded before, and the call pads one pixel more
    if the dilated kernel is longer than 2.
    """
    geometry, axes = call.geometry, call.geometry.axes
    deep = any(2 * max(a.pad_low, a.pad_high) > a.extent - 1 for a in axes)
    if not deep and any(a.pad_low > 0 or a.pad_high > 0 for a in axes):
        return reference.to_coarse(fine, kernel, call)
    # The barrier keeps XLA from moving the padding back into the convolution.
    fine = lax.optimization_barrier(window.pad_fine(fine, geometry))
    long = next((n for n, a in enumerate(axes) if a.extent > 2), None)
    padding = [(0, int(n == long)) for n in range(geometry.rank)]
    out = reference.to_coarse(fine, kernel, call.of(geometry.padded()), padding)
    return out if long is None else lax.slice_in_dim(out, 0, axes[long].coarse, axis=1 + long)


def to_kernel(fine: Array, coarse: Array, call: Call) -> Array:
    """Convolve with the channels as batch and the batch as channels.

    Groups stay feature groups, (i, X, (g, n)) by (X, n, (g, o)). With batch groups, which lax's
    own derivative has, XLA:CPU computes all groups against all.
    """
    geometry, data, groups = call.geometry, call.geometry.data, call.geometry.groups
    fine, geometry = _pad_if_smaller(fine, geometry, [a.coarse for a in geometry.axes])
    fine = split_groups(fine, groups)  # n, X, g, i
    fine = jnp.moveaxis(fine, (-1, 0), (0, -1))  # i, X, g, n
    fine = merge_groups(fine)
    out = reference.convolve(
        fine,
        jnp.moveaxis(coarse, data.batch, -2),
        [a.exchanged() for a in geometry.axes],
        lax.ConvDimensionNumbers(data.spec, geometry.kernel.spec, data.spec),
        call.wide.numerics,
        feature_group_count=groups,
    )
    return jnp.moveaxis(out, 0, -2)  # i, X, (g, o) to X, i, (g, o)


FORM = Form(
    "convolution",
    {"coarse": to_coarse, "kernel": to_kernel},
    isolated=False,  # XLA fuses nothing with a convolution
    eight_bits=True,
    contender=True,
)
