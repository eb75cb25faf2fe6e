"""CPU: every contraction by the spelling that `choice` names, with wide sums.

XLA:CPU finds its fast convolutions by dimension numbers, and canonicalises those only
outside loops and branches. So the operands are transposed here, explicitly, and what
follows knows one layout, channels-last; a few spellings know channels first, too.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from jax import lax

from jaxconv._dtypes import ACCUMULATION, DType
from jaxconv._geometry import OPERANDS, Geometry, Slot
from jaxconv._lowering import (
    abreast,
    alike,
    blocks,
    columns,
    depth,
    direct,
    dots,
    each,
    images,
    matmul,
    phases,
    pieces,
    planes,
    products,
    reference,
    skewed,
    slabs,
    strips,
    swapped,
    taps,
    unit,
)
from jaxconv._lowering.apart import apart
from jaxconv._lowering.choice import by_hand, choose, possible
from jaxconv._lowering.measured import Measured
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
    devices: int,
    spelling: str | Measured | None,
    told: list[Rule] | None = None,
    **params: Any,
) -> Any:
    """Summed in a wide type and rounded once.

    The rules that choose are added to `told`, if anyone asks.
    """
    del early_rounding  # never needed: a wide result costs nothing here
    if dtype.itemsize == 8:  # sums in float64 want float64 operands
        first, second = (lax.convert_element_type(x, dtype) for x in (first, second))
    params["dtype"] = ACCUMULATION[dtype]
    told = [] if told is None else told
    if spelling == "reference":
        told.append(by_hand(spelling, "forced"))
        out = reference.SPELLINGS[result](first, second, geometry=geometry, **params)
        return lax.convert_element_type(out, dtype)
    first, second, geometry, put_back = unit.left_out(result, first, second, geometry)
    tiled = _tiled(geometry)
    forced = _forced(spelling, Problem.of(result, first, second, tiled, devices))
    out = _contract(
        result,
        first,
        second,
        geometry=tiled,
        devices=devices,
        forced=forced,
        told=told,
        rounded=dtype,
        **params,
    )
    return put_back(lax.convert_element_type(out, dtype))


def _forced(spelling: str | Measured | None, problem: Problem) -> Rule | None:
    """What is forced, by its name or by measurement."""
    if isinstance(spelling, Measured):
        return spelling.rule(problem)
    return by_hand(spelling, "forced") if spelling else None


def _contract(
    result: Slot,
    first: Any,
    second: Any,
    *,
    geometry: Geometry,
    devices: int,
    forced: Rule | None,
    phase: bool = False,
    rounded: DType | None = None,
    **params: Any,
) -> Any:
    """One contraction by the spelling forced or chosen, in the layouts that it knows.

    What is transposed is `rounded` before, since there is less of it then.
    """
    problem = replace(Problem.of(result, first, second, geometry, devices), phase=phase)
    rule = forced or choose(problem)
    if not possible(rule.spelling, problem):
        raise ValueError(f"forced: {rule.spelling!r} cannot spell this contraction: {problem}")
    known = rule.channels_first
    there = geometry.canonical(problem.channels_first if known is None else known)
    spelled: Callable[..., Any] = partial(
        _spelled, result, rule=rule, geometry=there, devices=devices, **params
    )
    if geometry != there:
        spelled = _transposed(spelled, result, geometry, there, rounded)
        if rule.spelling != "direct" and geometry.data != there.data:
            # XLA would copy data in one layout on the way into the spelling's own branch, and
            # once more within. A convolution alone has no branch: wav2vec2-k10-s5, channels
            # first, forward, 15 in one, and 7.5 (AMD).
            spelled = apart(spelled)
    return spelled(first, second)


def _spelled(
    result: Slot, first: Any, second: Any, *, rule: Rule, told: list[Rule], **params: Any
) -> Any:
    """As the rule says; what a rewrite hands on to chooses for itself."""
    by, forced = rule.spelling, None
    if result not in {**SPELLINGS, **REWRITES}[by]:
        # Forced to fine, which it knows as phases only, and each of those is to coarse.
        by, forced = "phases", rule
    told.append(replace(rule, spelling=by))
    if result in SPELLINGS.get(by, {}):
        del params["devices"]
        return SPELLINGS[by][result](first, second, **params)
    contract = partial(_contract, forced=forced, told=told)
    return REWRITES[by][result](first, second, contract=contract, **params)


def _transposed(
    contract: Callable[..., Any],
    result: Slot,
    here: Geometry,
    there: Geometry,
    rounded: DType | None,
) -> Callable[..., Any]:
    """There and back."""

    def transposed(*operands: Any) -> Any:
        moved = (
            reorder(x, here.layout(slot), there.layout(slot))
            for slot, x in zip(OPERANDS[result], operands, strict=True)
        )
        out = contract(*moved)
        out = out if rounded is None else lax.convert_element_type(out, rounded)
        return reorder(out, there.layout(result), here.layout(result))

    return transposed


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
    "strips": {"coarse": strips.to_coarse},
    "taps": {"coarse": taps.to_coarse, "kernel": taps.to_kernel},
}


def _phases(
    coarse: Any, kernel: Any, *, geometry: Geometry, contract: Callable[..., Any], **params: Any
) -> Any:
    """Apart if there are several, so that one loop writes and interleaves them."""
    spelling: Callable[..., Any] = phases.to_fine
    if any(a.stride > 1 for a in geometry.axes):
        spelling, contract = apart(spelling), partial(contract, phase=True)
    return spelling(coarse, kernel, geometry=geometry, contract=contract, **params)


#: As other contractions, which choose for themselves.
REWRITES: dict[str, dict[Slot, Callable[..., Any]]] = {
    "abreast": {"coarse": abreast.to_coarse},
    "alike": {"fine": apart(alike.to_fine)},
    "blocks": {"coarse": blocks.to_coarse},
    "depth": {"fine": depth.to_fine, "kernel": depth.to_kernel},
    "each": {"coarse": each.to_coarse, "kernel": each.to_kernel},
    "images": {"kernel": images.to_kernel},
    "phases": {"fine": _phases},
    "pieces": {"coarse": pieces.to_coarse, "kernel": pieces.to_kernel},
    "skewed": {"coarse": skewed.to_coarse},
    "slabs": {"coarse": slabs.to_coarse, "kernel": slabs.to_kernel},
    "swapped": {"coarse": swapped.to_coarse},
}
