"""GPU: a contraction becomes one of cuDNN's convolutions, by the first rewrite that is needed.

The layouts stay as they are, since XLA chooses those of cuDNN by itself. What XLA's way to
cuDNN lacks: more than three spatial axes, one axis in 16 bits, a data gradient of groups or
of a dilated kernel, and a dilated weights gradient.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import jax.numpy as jnp
from jax import lax

from jaxconv._dtypes import ACCUMULATION
from jaxconv._geometry import OPERANDS, UNIT, DataLayout, Geometry, KernelLayout, Slot
from jaxconv._lowering import accelerator, alike, cudnn, dots, phases, slabs
from jaxconv._lowering.problem import MOST_TAPS, Problem, Rule
from jaxconv._reshape import reorder, replace_axes


def spell(result: Slot, first: Any, second: Any, *, spelling: Any, **params: Any) -> Any:
    """By the rules, unless the reference is forced; other spellings are for CPU."""
    if spelling != "reference":
        params["contract"] = contract
    return accelerator.spell(result, first, second, spelling=spelling, **params)


def contract(
    result: Slot, first: Any, second: Any, *, geometry: Geometry, devices: int, **params: Any
) -> Any:
    """One contraction by the first rule that holds, whose rewrite may come back here."""
    axes = (replace(a, dilation=1) if a.kernel == 1 else a for a in geometry.axes)
    geometry = replace(geometry, axes=tuple(axes))  # one tap is never dilated
    problem = Problem.of(result, first, second, geometry, devices)
    rule = next(rule for rule in RULES if rule.when(problem))
    again = partial(contract, devices=devices)
    return SPELLINGS[rule.spelling](result, first, second, geometry=geometry, again=again, **params)


# The spellings: all take `again`, which contracts by the rules, for those that rewrite.


def _zeros(
    result: Slot, first: Any, second: Any, *, geometry: Geometry, again: Any, **params: Any
) -> Any:
    return jnp.zeros(geometry.shape(result, first.shape, second.shape), params["dtype"])


def _with_unit_axis(
    result: Slot, first: Any, second: Any, *, geometry: Geometry, again: Any, **params: Any
) -> Any:
    """A second spatial axis of one element, before the only one."""
    at = {slot: geometry.layout(slot)[2] for slot in OPERANDS}
    first, second = (
        replace_axes(x, at[slot], 1, (1, x.shape[at[slot]]))
        for slot, x in zip(OPERANDS[result], (first, second), strict=True)
    )
    wider = Geometry(
        (UNIT, *geometry.axes),
        geometry.groups,
        DataLayout(*_widened(geometry.data)),
        KernelLayout(*_widened(geometry.kernel)),
    )
    return lax.squeeze(again(result, first, second, geometry=wider, **params), (at[result],))


def _widened(layout: DataLayout | KernelLayout) -> tuple[int, int, tuple[int, int]]:
    """Where the axes are with a unit axis before the spatial one."""
    one, other, (spatial,) = layout
    return one + (one > spatial), other + (other > spatial), (spatial, spatial + 1)


def _by_phases(result: Slot, first: Any, second: Any, *, again: Any, **params: Any) -> Any:
    """Forward convolutions, one for each residue class by the stride."""
    return phases.to_fine(first, second, contract=again, **params)


def _by_residues(result: Slot, first: Any, second: Any, *, again: Any, **params: Any) -> Any:
    """The same, with the phases that meet the same places as channels of one."""
    return alike.to_fine(first, second, contract=again, **params)


def _by_slabs(result: Slot, first: Any, second: Any, *, again: Any, **params: Any) -> Any:
    """One spatial axis fewer; a sum over its taps is kept wide."""
    if result == "coarse":
        rewrite = partial(slabs.to_coarse, contract=again)
        return _wide(_channels_last, rewrite, result, first, second, **params)
    return _channels_last(partial(slabs.to_kernel, contract=again), result, first, second, **params)


def _by_dots(result: Slot, first: Any, second: Any, *, again: Any, **params: Any) -> Any:
    """A dot for each tap, which sums in a wide type without widening its operands."""
    spelling = dots.to_coarse if result == "coarse" else dots.to_kernel
    return _wide(spelling, first, second, **params)


def _by_cudnn(result: Slot, first: Any, second: Any, *, again: Any, **params: Any) -> Any:
    forms = {"coarse": cudnn.to_coarse, "fine": cudnn.to_fine, "kernel": cudnn.to_kernel}
    return forms[result](first, second, **params)


def _wide(spelling: Callable[..., Any], *operands: Any, dtype: Any, **params: Any) -> Any:
    """A spelling with partial sums, which are rounded once, in the end."""
    out = spelling(*operands, dtype=ACCUMULATION[dtype], **params)
    return lax.convert_element_type(out, dtype)


def _channels_last(
    spelling: Callable[..., Any],
    result: Slot,
    first: Any,
    second: Any,
    *,
    geometry: Geometry,
    **params: Any,
) -> Any:
    """A spelling that knows one layout only, in any."""
    there = geometry.canonical()
    first, second = (
        reorder(x, geometry.layout(slot), there.layout(slot))
        for slot, x in zip(OPERANDS[result], (first, second), strict=True)
    )
    out = spelling(first, second, geometry=there, **params)
    return reorder(out, there.layout(result), geometry.layout(result))


# Which one when.


SPELLINGS: dict[str, Callable[..., Any]] = {
    "zeros": _zeros,
    "unit axis": _with_unit_axis,
    "alike": _by_residues,
    "phases": _by_phases,
    "slabs": _by_slabs,
    "dots": _by_dots,
    "cudnn": _by_cudnn,
}


def _dilated(p: Problem) -> bool:
    return any(a.dilation > 1 for a in p.geometry.axes)


def _no_backward_form(p: Problem) -> bool:
    return p.result == "fine" and (not p.dense or _dilated(p) or p.rank > 3)


RULES = (
    Rule(
        "zeros",
        lambda p: any(a.fine < 1 for a in cudnn.trimmed(p.geometry)[0].axes),
        "no window reads anything but padding",
    ),
    Rule(
        "unit axis",
        lambda p: p.rank == 1 and p.bits == 16,
        "16-bit tensors are laid out for tensor cores in 2-D only (and see jax-ml/jax#37922)",
    ),
    Rule(
        "alike",
        lambda p: _no_backward_form(p) and p.many_phases,
        "as below, but a piece of the program for each phase would be too many",
    ),
    Rule(
        "phases",
        _no_backward_form,
        "no backward data form; a forward one would write out the coarse tensor spread out",
    ),
    Rule(
        "slabs",
        lambda p: p.rank > 3,
        "no form has more than three spatial axes",
    ),
    Rule(
        "dots",
        lambda p: p.result == "kernel" and _dilated(p) and p.taps <= MOST_TAPS,
        "no backward filter form; a forward one would have the coarse tensor as its kernel",
    ),
    Rule(
        "dots",
        lambda p: (
            p.result == "coarse"
            and not p.dense
            and p.fine > 1
            and p.partitioned
            and p.taps <= MOST_TAPS
        ),
        "a grouped convolution gathers the batch of all devices (openxla/xla#47945)",
    ),
    Rule("cudnn", lambda p: True, "one convolution of cuDNN's"),
)
