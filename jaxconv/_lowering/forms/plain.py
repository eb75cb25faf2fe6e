"""lax's convolution with lax's own lowering, also where `jaxconv.install` replaced that lowering.

A convolution that a form emits must not come back to the rule of `jaxconv.install`. So forms have
a primitive of their own: JAX's caches of lowerings would not see a Python context.
"""

from collections.abc import Sequence
from functools import partial

from jax import Array, lax

from jaxconv._base.jax_names import Primitive, find_lowering_rule, infer_result_aval, mlir
from jaxconv._base.typing import DType

#: Has the name of lax's primitive, which jaxprs and profiles show.
PRIMITIVE = Primitive("conv_general_dilated")


def conv_general_dilated(
    lhs: Array,
    rhs: Array,
    *,
    window_strides: Sequence[int],
    padding: Sequence[tuple[int, int]],
    numbers: lax.ConvDimensionNumbers,
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: lax.PrecisionLike = None,
    preferred_element_type: DType | None = None,
) -> Array:
    """`jax.lax.conv_general_dilated` for lowerings, which give all arguments in lax's types."""
    ones = (1,) * len(padding)
    out: Array = PRIMITIVE.bind(
        lhs,
        rhs,
        window_strides=tuple(window_strides),
        padding=tuple(padding),
        lhs_dilation=ones if lhs_dilation is None else tuple(lhs_dilation),
        rhs_dilation=ones if rhs_dilation is None else tuple(rhs_dilation),
        dimension_numbers=numbers,
        feature_group_count=feature_group_count,
        batch_group_count=batch_group_count,
        precision=precision,
        preferred_element_type=preferred_element_type,
        out_sharding=None,
    )
    return out


# Eager evaluation may use lax's primitive: compiling a program does not evaluate this one.
PRIMITIVE.def_impl(lax.conv_general_dilated_p.bind)
# lax's rule for all platforms serves: rules of single platforms differ in complex numbers alone.
PRIMITIVE.def_abstract_eval(partial(infer_result_aval, lax.conv_general_dilated_p))
mlir.register_lowering(PRIMITIVE, find_lowering_rule(lax.conv_general_dilated_p, None))
