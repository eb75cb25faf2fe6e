"""CPU: which spelling when. All of them are channels-last and sum in float32 or wider.

XLA:CPU finds its fast convolutions by dimension numbers, and canonicalises those only
outside loops and branches. So the operands are transposed here, explicitly, and what
follows knows one layout.
"""

from collections.abc import Callable
from typing import Any

from jax import lax

from jaxconv._dtypes import ACCUMULATION, DType
from jaxconv._geometry import OPERANDS, Geometry, Slot
from jaxconv._lowering import canonical


def _rule(result: Slot, spelling: Callable[..., Any]) -> Callable[..., Any]:
    def rule(
        first: Any,
        second: Any,
        *,
        geometry: Geometry,
        dtype: DType,
        early_rounding: bool,
        **params: Any,
    ) -> Any:
        """Transposed to channels-last, summed in a wide type, rounded once, transposed back."""
        del early_rounding
        if dtype.itemsize == 8:  # sums in float64 want float64 operands
            first, second = (lax.convert_element_type(x, dtype) for x in (first, second))
        there = geometry.canonical()
        first, second = (
            _transpose(x, geometry.layout(slot), there.layout(slot))
            for slot, x in zip(OPERANDS[result], (first, second), strict=True)
        )
        out = spelling(first, second, geometry=there, dtype=ACCUMULATION[dtype], **params)
        out = lax.convert_element_type(out, dtype)
        return _transpose(out, there.layout(result), geometry.layout(result))

    return rule


def _transpose(x: Any, source: tuple[int, ...], target: tuple[int, ...]) -> Any:
    """Move each axis from its place in one layout to its place in another."""
    place = dict(zip(target, source, strict=True))
    return lax.transpose(x, [place[axis] for axis in range(x.ndim)])


SPELLINGS: dict[Slot, Callable[..., Any]] = {
    "coarse": _rule("coarse", canonical.to_coarse),
    "fine": _rule("fine", canonical.to_fine),
    "kernel": _rule("kernel", canonical.to_kernel),
}
