"""Names for the types that annotations share."""

from collections.abc import Sequence
from typing import Any, Protocol, SupportsIndex

import numpy as np
from jax import Array, lax

DType = np.dtype[Any]


class HasDType(Protocol):
    """A name for a type, such as `jnp.float32` since JAX 0.12."""

    @property
    def dtype(self) -> DType:
        """The type that it names."""
        ...


#: What JAX takes as a type; `jax.typing.DTypeLike` is partly unknown to type checkers.
DTypeLike = str | type[Any] | DType | HasDType

#: An int, or a symbolic dimension of `jax.export`.
Extent = Any

Shape = tuple[Extent, ...]

#: What JAX takes as an array: no numbers and no lists, unlike `jax.typing.ArrayLike`.
ArrayLike = Array | np.ndarray[Any, Any]

#: What users give as an int, a shape, ints for each axis, a precision; and a parsed precision.
Int = SupportsIndex
ShapeLike = Sequence[Int] | np.ndarray[Any, Any] | Array
Ints = Int | ShapeLike
PrecisionLike = str | lax.PrecisionLike
Precision = tuple[lax.Precision, lax.Precision]

#: A place along an axis: in a loop it is traced.
Index = int | Array


class Typed(Protocol):
    """An array, or no more than its type: a `jax.ShapeDtypeStruct`, say."""

    @property
    def shape(self) -> Shape:
        """The extents."""
        ...

    @property
    def dtype(self) -> DType:
        """The type of the elements."""
        ...
