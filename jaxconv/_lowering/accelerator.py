"""TPU, and whatever else has no rules of its own: the reference, with 16-bit results.

An accelerator accumulates a 16-bit convolution in float32 by itself. Asking for a float32
result instead makes XLA:GPU convert both operands first, so a result that the caller
rounds anyway (`early_rounding`: a bias is added in between) is left in 16 bits. This is
the one place where a sum is rounded twice.
"""

from collections.abc import Callable
from typing import Any

from jax import lax

from jaxconv._dtypes import DType
from jaxconv._geometry import Slot
from jaxconv._lowering import reference


def one_convolution(result: Slot, first: Any, second: Any, *, devices: int, **params: Any) -> Any:
    """In the layouts at hand: XLA:TPU needs no rewrites, large axes kept whole serve it best."""
    return reference.SPELLINGS[result](first, second, **params)


def spell(
    result: Slot,
    first: Any,
    second: Any,
    *,
    dtype: DType,
    early_rounding: bool,
    spelling: Any,
    contract: Callable[..., Any] = one_convolution,
    **params: Any,
) -> Any:
    """By `contract`, whatever is forced for CPU."""
    del spelling
    if dtype.itemsize == 8:  # sums in float64 want float64 operands
        first, second = (lax.convert_element_type(x, dtype) for x in (first, second))
    native = first.dtype if early_rounding else dtype
    out = contract(result, first, second, dtype=native, **params)
    return lax.convert_element_type(out, dtype)
