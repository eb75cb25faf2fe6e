"""Accepted types, and what each accumulates in: one table."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

DType = np.dtype[Any]

#: operand type -> the type that holds its sums. 16-bit products are exact in float32.
ACCUMULATION: dict[DType, DType] = {
    jnp.dtype(operand): jnp.dtype(sums)
    for operand, sums in (
        (jnp.bfloat16, jnp.float32),
        (jnp.float16, jnp.float32),
        (jnp.float32, jnp.float32),
        (jnp.float64, jnp.float64),
    )
}


def result_dtype(op: str, operand: DType, preferred: Any) -> DType:
    """The type of an op's result: the operands' own, or a wider one asked for."""
    if preferred is None:
        return operand
    try:
        asked = jax.dtypes.canonicalize_dtype(preferred)
    except TypeError:
        asked = None
    if asked == operand or (asked in ACCUMULATION and asked.itemsize > operand.itemsize):
        return asked
    wider = [d.name for d in ACCUMULATION if d == operand or d.itemsize > operand.itemsize]
    raise TypeError(
        f"{op}: `preferred_element_type` must be the operands' type or a wider one, "
        f"here {' or '.join(wider)}; got {getattr(asked, 'name', preferred)!r} "
        f"for operands of type {operand.name}"
    )
