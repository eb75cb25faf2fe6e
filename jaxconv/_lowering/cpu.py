"""CPU: every contraction by the spelling that `choice` names, channels-last, with wide sums.

XLA:CPU finds its fast convolutions by dimension numbers, and canonicalises those only
outside loops and branches. So the operands are transposed here, explicitly, and what
follows knows one layout.
"""

from collections.abc import Callable
from functools import partial
from typing import Any

from jax import lax

from jaxconv._dtypes import ACCUMULATION, DType
from jaxconv._geometry import OPERANDS, Geometry, Slot
from jaxconv._lowering import columns, direct, dots, matmul, phases, reference, slabs, taps
from jaxconv._lowering.choice import choose, possible
from jaxconv._lowering.problem import Problem


def spell(
    result: Slot,
    first: Any,
    second: Any,
    *,
    geometry: Geometry,
    dtype: DType,
    early_rounding: bool,
    partitioned: bool,
    spelling: str | None,
    **params: Any,
) -> Any:
    """Transposed to channels-last, summed in a wide type, rounded once, transposed back."""
    del early_rounding  # never needed: a wide result costs nothing here
    if dtype.itemsize == 8:  # sums in float64 want float64 operands
        first, second = (lax.convert_element_type(x, dtype) for x in (first, second))
    params["dtype"] = ACCUMULATION[dtype]
    if spelling == "reference":
        out = reference.SPELLINGS[result](first, second, geometry=geometry, **params)
        return lax.convert_element_type(out, dtype)
    there = geometry.canonical()
    first, second = (
        _transpose(x, geometry.layout(slot), there.layout(slot))
        for slot, x in zip(OPERANDS[result], (first, second), strict=True)
    )
    out = _contract(
        result, first, second, geometry=there, partitioned=partitioned, forced=spelling, **params
    )
    out = lax.convert_element_type(out, dtype)
    return _transpose(out, there.layout(result), geometry.layout(result))


def _contract(
    result: Slot,
    first: Any,
    second: Any,
    *,
    geometry: Geometry,
    partitioned: bool,
    forced: str | None = None,
    **params: Any,
) -> Any:
    """One contraction, channels-last, by the spelling forced or chosen."""
    problem = _problem(result, first, second, geometry, partitioned)
    name = forced or choose(problem).spelling
    if not possible(name, problem):
        raise ValueError(f"forced: {name!r} cannot spell this contraction: {problem}")
    if result in SPELLINGS.get(name, {}):
        return SPELLINGS[name][result](first, second, geometry=geometry, **params)
    # The rewrites hand on to other contractions, which choose for themselves.
    rewrite = name in ("phases", "slabs")
    inner = partial(_contract, partitioned=partitioned, forced=None if rewrite else name)
    if result == "fine":
        return phases.to_fine(first, second, geometry=geometry, contract=inner, **params)
    spelling = slabs.to_coarse if result == "coarse" else slabs.to_kernel
    return spelling(first, second, geometry=geometry, contract=inner, **params)


def _problem(
    result: Slot, first: Any, second: Any, geometry: Geometry, partitioned: bool
) -> Problem:
    shapes = dict(zip(OPERANDS[result], (first.shape, second.shape), strict=True))
    shapes[result] = geometry.shape(result, first.shape, second.shape)
    batch = shapes["fine"][0]
    return Problem(
        result,
        geometry,
        batch if isinstance(batch, int) else None,
        shapes["fine"][-1] // geometry.groups,
        shapes["coarse"][-1] // geometry.groups,
        first.dtype,
        partitioned,
    )


def _transpose(x: Any, source: tuple[int, ...], target: tuple[int, ...]) -> Any:
    """Move each axis from its place in one layout to its place in another."""
    place = dict(zip(target, source, strict=True))
    return lax.transpose(x, [place[axis] for axis in range(x.ndim)])


SPELLINGS: dict[str, dict[Slot, Callable[..., Any]]] = {
    "direct": {
        "coarse": direct.to_coarse,
        "fine": direct.to_fine,
        "kernel": direct.to_kernel,
    },
    "matmul": {
        "coarse": matmul.to_coarse,
        "fine": matmul.to_fine,
        "kernel": matmul.to_kernel,
    },
    "columns": {"coarse": columns.to_coarse, "kernel": columns.to_kernel},
    "dots": {"coarse": dots.to_coarse, "kernel": dots.to_kernel},
    "taps": {"coarse": taps.to_coarse, "kernel": taps.to_kernel},
}
