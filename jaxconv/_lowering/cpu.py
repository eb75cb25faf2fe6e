"""CPU: every contraction by the spelling that `choice` names, channels-last, with wide sums.

XLA:CPU finds its fast convolutions by dimension numbers, and canonicalises those only
outside loops and branches. So the operands are transposed here, explicitly, and what
follows knows one layout; but `planes` keeps channels first.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from jax import lax

from jaxconv._dtypes import ACCUMULATION, DType
from jaxconv._geometry import OPERANDS, Geometry, Slot
from jaxconv._lowering import (
    columns,
    direct,
    dots,
    each,
    matmul,
    phases,
    planes,
    products,
    reference,
    slabs,
    taps,
)
from jaxconv._lowering.apart import apart
from jaxconv._lowering.choice import choose, possible
from jaxconv._lowering.problem import Problem, Rule
from jaxconv._reshape import reorder


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
    told: list[Rule] | None = None,
    **params: Any,
) -> Any:
    """Transposed to channels-last, summed in a wide type, rounded once, transposed back.

    The rules that choose are added to `told`, if anyone asks.
    """
    del early_rounding  # never needed: a wide result costs nothing here
    if dtype.itemsize == 8:  # sums in float64 want float64 operands
        first, second = (lax.convert_element_type(x, dtype) for x in (first, second))
    params["dtype"] = ACCUMULATION[dtype]
    if spelling == "reference":
        if told is not None:
            told.append(Rule(spelling, lambda p: True, "forced"))
        out = reference.SPELLINGS[result](first, second, geometry=geometry, **params)
        return lax.convert_element_type(out, dtype)
    problem = Problem.of(result, first, second, geometry, partitioned)
    planes = choose(problem, spelling).spelling == "planes"
    there = _tiled(geometry.canonical(channels_first=planes))

    def there_and_back(*operands: Any) -> Any:
        operands = tuple(
            reorder(x, geometry.layout(slot), there.layout(slot))
            for slot, x in zip(OPERANDS[result], operands, strict=True)
        )
        out = _contract(
            result,
            *operands,
            geometry=there,
            partitioned=partitioned,
            forced=spelling,
            told=told,
            **params,
        )
        out = lax.convert_element_type(out, dtype)
        return reorder(out, there.layout(result), geometry.layout(result))

    # XLA copies data on the way into a branch in one layout and, in the branch, to another.
    transposed = there.data != geometry.data
    return (apart(there_and_back) if transposed else there_and_back)(first, second)


def _contract(
    result: Slot,
    first: Any,
    second: Any,
    *,
    geometry: Geometry,
    partitioned: bool,
    forced: str | None,
    told: list[Rule] | None,
    **params: Any,
) -> Any:
    """One contraction, channels-last, by the spelling forced or chosen."""
    problem = Problem.of(result, first, second, geometry, partitioned)
    rule = choose(problem, forced)
    name = rule.spelling
    if not possible(name, problem):
        raise ValueError(f"forced: {name!r} cannot spell this contraction: {problem}")
    if result == "fine" and result not in SPELLINGS.get(name, {}):
        rule = replace(rule, spelling="phases")
    if told is not None:
        told.append(rule)
    if result in SPELLINGS.get(rule.spelling, {}):
        return SPELLINGS[name][result](first, second, geometry=geometry, **params)
    if name == rule.spelling:  # a rewrite; what it hands on to chooses for itself
        forced = None
    inner = partial(_contract, partitioned=partitioned, forced=forced, told=told)
    rewrite = REWRITES[rule.spelling][result]
    return rewrite(first, second, geometry=geometry, contract=inner, **params)


def _tiled(geometry: Geometry) -> Geometry:
    """Windows that have one place only along an axis may as well move by their own length."""
    axes = [
        replace(a, stride=a.kernel) if a.coarse == 1 and a.dilation == 1 else a
        for a in geometry.axes
    ]
    tiled = all(a.kernel == a.stride and a.dilation == 1 for a in axes)
    return replace(geometry, axes=tuple(axes)) if tiled else geometry


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
    "planes": {
        "coarse": planes.to_coarse,
        "fine": planes.to_fine,
        "kernel": planes.to_kernel,
    },
    "products": {"coarse": products.to_coarse},
    "taps": {"coarse": taps.to_coarse, "kernel": taps.to_kernel},
}


def _phases(coarse: Any, kernel: Any, *, geometry: Geometry, **params: Any) -> Any:
    """Apart if there are several, so that one loop writes and interleaves them."""
    several = any(a.stride > 1 for a in geometry.axes)
    spelling = apart(phases.to_fine) if several else phases.to_fine
    return spelling(coarse, kernel, geometry=geometry, **params)


#: As other contractions, which choose for themselves.
REWRITES: dict[str, dict[Slot, Callable[..., Any]]] = {
    "each": {"coarse": each.to_coarse, "kernel": each.to_kernel},
    "phases": {"fine": _phases},
    "slabs": {"coarse": slabs.to_coarse, "kernel": slabs.to_kernel},
}
