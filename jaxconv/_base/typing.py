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
        """The type of this name."""
        ...


#: The names of types that JAX takes; `jax.typing.DTypeLike` is partly unknown to type checkers.
DTypeLike = str | type[Any] | DType | HasDType

#: An int, or a symbolic dimension of `jax.export`.
Extent = Any

Shape = tuple[Extent, ...]

#: The arrays that JAX takes: no numbers and no lists, unlike `jax.typing.ArrayLike`.
ArrayLike = Array | np.ndarray[Any, Any]

#: An int, a shape, ints for each axis, a precision, as users give these; and a parsed precision.
Int = SupportsIndex
ShapeLike = Sequence[Int] | np.ndarray[Any, Any] | Array
Ints = Int | ShapeLike
PrecisionLike = str | lax.PrecisionLike
Precision = tuple[lax.Precision, lax.Precision]

#: A place along an axis, which is traced in a loop.
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
