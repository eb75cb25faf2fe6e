"""Axes of one place and one tap, left out: a signal written as an image of one row is a signal."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from jax import lax

from jaxconv._geometry import OPERANDS, UNIT, DataLayout, Geometry, KernelLayout, Slot


def left_out(
    result: Slot, first: Any, second: Any, geometry: Geometry
) -> tuple[Any, Any, Geometry, Callable[[Any], Any]]:
    """The operands and the geometry without such axes, and what puts them back into the result."""
    units = [n for n, a in enumerate(geometry.axes) if replace(a, stride=1, dilation=1) == UNIT]
    units = units[: geometry.rank - 1]  # one axis stays
    if not units:
        return first, second, geometry, lambda out: out
    at: dict[Slot, list[int]] = {
        slot: [geometry.layout(slot)[2 + n] for n in units] for slot in OPERANDS
    }
    first, second = (
        lax.squeeze(x, at[slot]) for slot, x in zip(OPERANDS[result], (first, second), strict=True)
    )
    fewer = replace(
        geometry,
        axes=tuple(a for n, a in enumerate(geometry.axes) if n not in units),
        data=DataLayout(*_without(geometry.data, at["fine"])),
        kernel=KernelLayout(*_without(geometry.kernel, at["kernel"])),
    )
    return first, second, fewer, lambda out: lax.expand_dims(out, at[result])


def _without(
    layout: DataLayout | KernelLayout, gone: list[int]
) -> tuple[int, int, tuple[int, ...]]:
    """Where the other axes are then."""
    one, other, *spatial = (
        axis - sum(g < axis for g in gone) for axis in layout.spec if axis not in gone
    )
    return one, other, tuple(spatial)
