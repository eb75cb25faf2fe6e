"""The reference: one `lax.conv_general_dilated` in the layouts at hand, on any backend.

Every other form must give the same results. Zeros, where nothing is summed, are here too.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import jax.numpy as jnp
from jax import Array, lax

from jaxconv._base import meshes
from jaxconv._base.geometry import Axis
from jaxconv._base.jax_names import Primitive, find_lowering_rule, infer_result_aval, mlir
from jaxconv._base.reshape import move_groups
from jaxconv._lowering.problem import Call, Form, Numerics

# lax's convolution with lax's own lowering, also where `jaxconv.install` replaced that lowering. A
# convolution that a form emits must not come back to the rule of `jaxconv.install`. So forms have a
# primitive of their own: JAX's caches of lowerings would not see a Python context.

#: Has the name of lax's primitive, which jaxprs and profiles show.
PRIMITIVE = Primitive("conv_general_dilated")

# Eager evaluation may use lax's primitive: compiling a program does not evaluate this one.
PRIMITIVE.def_impl(lax.conv_general_dilated_p.bind)
PRIMITIVE.def_abstract_eval(partial(infer_result_aval, lax.conv_general_dilated_p))
# lax's rule for all platforms serves: rules of single platforms differ in complex numbers alone.
mlir.register_lowering(PRIMITIVE, find_lowering_rule(lax.conv_general_dilated_p, None))


def convolve(
    lhs: Array,
    rhs: Array,
    axes: Sequence[Axis],
    numbers: lax.ConvDimensionNumbers,
    numerics: Numerics,
    padding: Sequence[tuple[int, int]] | None = None,
    lhs_dilation: Sequence[int] | None = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
) -> Array:
    """Convolve `lhs` with `rhs` along these axes, as lax does.

    An axis that is cropped, and padded at its end, is cropped before: in one convolution that does
    both, XLA:CPU reads beyond the data, and computes with other memory (openxla/xla#48713). So is
    one that is cropped and spread: where XLA splits it over devices, it ends the process.
    """
    padding = list(padding or [(a.pad_low, a.pad_high) for a in axes])
    lhs_dilation = lhs_dilation or [1] * len(axes)
    for n, ((low, high), dilation) in enumerate(zip(padding, lhs_dilation, strict=True)):
        if low < 0 and (high > 0 or dilation > 1):
            at = numbers.lhs_spec[2 + n]
            places = -(low // dilation)  # some are left: else nothing is summed (`ZEROS`)
            lhs = lax.slice_in_dim(lhs, places, None, axis=at)
            padding[n] = (low + places * dilation, high)
    out: Array = PRIMITIVE.bind(
        lhs,
        rhs,
        window_strides=tuple(a.stride for a in axes),
        padding=tuple(padding),
        lhs_dilation=tuple(lhs_dilation),
        rhs_dilation=tuple(a.dilation for a in axes),
        dimension_numbers=numbers,
        feature_group_count=feature_group_count,
        batch_group_count=batch_group_count,
        precision=numerics.precision,
        preferred_element_type=numerics.dtype,
        out_sharding=None,
    )
    return out


def to_coarse(
    fine: Array, kernel: Array, call: Call, padding: Sequence[tuple[int, int]] | None = None
) -> Array:
    """Convolve, with the geometry's padding unless `padding` is given."""
    geometry, data = call.geometry, call.geometry.data.spec
    numbers = lax.ConvDimensionNumbers(data, geometry.kernel.spec, data)
    return convolve(
        fine, kernel, geometry.axes, numbers, call.numerics, padding,
        feature_group_count=geometry.groups,
    )  # fmt: skip


def to_fine(coarse: Array, kernel: Array, call: Call) -> Array:
    """Convolve the coarse tensor, dilated by the stride, with the reversed kernel.

    The kernel's groups move from coarse to fine channels, since lax has the groups on the channels
    of the result.
    """
    geometry, data = call.geometry, call.geometry.data.spec
    layout = geometry.kernel
    kernel = move_groups(kernel, geometry.groups, layout.coarse, layout.fine)
    return convolve(
        coarse,
        # outermost, not under a transpose: so XLA:GPU recognises a data gradient
        lax.rev(kernel, layout.spatial),
        [replace(a, coarse=a.span).reversed() for a in geometry.axes],
        lax.ConvDimensionNumbers(data, (layout.fine, layout.coarse, *layout.spatial), data),
        call.numerics,
        lhs_dilation=[a.stride for a in geometry.axes],
        feature_group_count=geometry.groups,
    )


def to_kernel(fine: Array, coarse: Array, call: Call) -> Array:
    """Slide the coarse tensor, dilated by the stride, over the fine tensor by the dilation."""
    geometry, data, layout = call.geometry, call.geometry.data, call.geometry.kernel
    return convolve(
        fine,
        coarse,
        [a.exchanged() for a in geometry.axes],
        lax.ConvDimensionNumbers(
            (data.channel, data.batch, *data.spatial),
            (data.channel, data.batch, *data.spatial),
            (layout.fine, layout.coarse, *layout.spatial),
        ),
        call.numerics,
        batch_group_count=geometry.groups,
    )


FORM = Form(
    "reference",
    {"coarse": to_coarse, "fine": to_fine, "kernel": to_kernel},
    any_sizes=True,  # XLA splits some convolutions wrongly whose padding stands apart
    layouts="any",
    eight_bits=True,
    isolated=False,
)


# Nothing is summed: there are no images, or all taps read padding alone.


def zeros(first: Array, second: Array, call: Call) -> Array:
    """Make a result of zeros."""
    shape = call.geometry.shape(call.problem.result, first.shape, second.shape)
    return meshes.vary_alike(jnp.zeros(shape, call.numerics.dtype), first, second)[0]


ZEROS = Form(
    "zeros",
    {"coarse": zeros, "fine": zeros, "kernel": zeros},
    layouts="any",
    eight_bits=True,
    isolated=False,
)
