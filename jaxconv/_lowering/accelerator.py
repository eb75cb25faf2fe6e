"""GPU and TPU: the reference forms, in the layouts at hand, with 16-bit results.

Both accumulate a 16-bit convolution in float32 by themselves. Asking for a float32
result instead makes XLA:GPU convert both operands first, so a result that the caller
rounds anyway (`early_rounding`: a bias is added in between) is left in 16 bits. This is
the one place where a sum is rounded twice.
"""

from typing import Any

from jax import lax

from jaxconv._dtypes import DType
from jaxconv._geometry import Slot
from jaxconv._lowering import reference


def spell(
    result: Slot,
    first: Any,
    second: Any,
    *,
    dtype: DType,
    early_rounding: bool,
    partitioned: bool,
    spelling: str | None,
    **params: Any,
) -> Any:
    """The reference, whatever is forced for CPU and however the program is split."""
    del partitioned, spelling
    if dtype.itemsize == 8:  # sums in float64 want float64 operands
        first, second = (lax.convert_element_type(x, dtype) for x in (first, second))
    native = first.dtype if early_rounding else dtype
    out = reference.SPELLINGS[result](first, second, dtype=native, **params)
    return lax.convert_element_type(out, dtype)
