"""lax's convolution with lax's own lowering, also where `jaxconv.install` has put another.

What the library emits must not come back to it. A primitive of its own is told apart from
lax's by JAX's caches of lowerings, too; a context in Python around the emission is not.
"""

from collections.abc import Sequence
from functools import partial

from jax import Array, lax

from jaxconv._jax_names import Primitive, abstract_result, lowering_of, mlir
from jaxconv._typing import DType

#: Named as lax's, which is what jaxprs and profiles show.
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
    """As `jax.lax.conv_general_dilated`, of the library's types, inside a lowering."""
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


# Step by step, lax's own does: what is compiled for that gets by without this.
PRIMITIVE.def_impl(lax.conv_general_dilated_p.bind)
# lax's rule for all platforms is the one: the others differ in complex numbers alone.
PRIMITIVE.def_abstract_eval(partial(abstract_result, lax.conv_general_dilated_p))
mlir.register_lowering(PRIMITIVE, lowering_of(lax.conv_general_dilated_p, None))
