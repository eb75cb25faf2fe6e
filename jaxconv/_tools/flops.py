"""Multiplications and additions of a convolution, without products with padding; its bytes."""

import math
from typing import Any

from jaxconv._base.environment import Lowered, Target
from jaxconv._base.geometry import Axis
from jaxconv._contract.contractions import SLOTS
from jaxconv._lax import max_pool
from jaxconv._lax.from_lax import SIZES, Mapped, find_contraction
from jaxconv._lowering import problem_of


def count_flops(lowered: Lowered) -> int | None:
    """Count two for each pair of elements that are multiplied; None for symbolic extents.

    Products with the zeros of lhs_dilation count only where there is a stride, too.
    """
    primitive, (first, second, *_), (result,), params = lowered.contraction or lowered.equation
    if primitive is max_pool.PRIMITIVE:
        return 0
    if geometry := params.get("geometry"):
        slot, dtype = SLOTS[primitive], params["dtype"]
        p = problem_of(slot, first, second, geometry, dtype, Target(None))
        channels = [p.batch, p.fine_channels, p.coarse_channels, geometry.groups]
        pairs = list(map(_count_pairs, geometry.axes))
    else:
        _, (_, inputs, *window), (batch, features, *out) = params["dimension_numbers"]
        channels = [result.shape[batch], result.shape[features], second.shape[inputs]]
        sizes = {name: params[name] for name in SIZES}
        mapped = lowered.mapped or find_contraction(first.shape, second.shape, **sizes)
        if isinstance(mapped, Mapped):
            pairs = list(map(_count_pairs, mapped.geometry.axes))
        else:
            of_axes = (params[name] for name in SIZES[:4])
            inside = [first.shape[axis] for axis in params["dimension_numbers"].lhs_spec[2:]]
            taps, places = [second.shape[t] for t in window], [result.shape[p] for p in out]
            pairs = list(map(_count_hits, taps, places, inside, *of_axes))
    factors = [*channels, *pairs]
    return 2 * math.prod(factors) if all(isinstance(n, int) for n in factors) else None


def count_bytes(lowered: Lowered) -> int | None:
    """Count the bytes of both operands and the result; None for symbolic extents."""
    tensors = (*lowered.equation.operands[:2], *lowered.equation.results)
    size = sum(math.prod(x.shape) * x.dtype.itemsize for x in tensors)
    return size if isinstance(size, int) else None


def _count_hits(
    taps: Any, places: Any, extent: Any, stride: int, pads: Any, spread: int, dilation: int
) -> Any:
    """Count the pairs of a tap and a place that read an element, between zeros too."""
    if not all(isinstance(n, int) for n in (taps, places, extent, pads[0])):
        return None
    common = math.gcd(stride, spread)
    step, pairs = spread // common, 0  # a tap meets no zeros between at each `step`-th place
    for tap in range(min(spread, taps)):
        start = pads[0] - dilation * tap
        if start % common == 0:
            place = start // common * pow(stride // common, -1, step) % step
            left = len(range(tap, taps, spread)), len(range(place, places, step))
            first = (start - stride * place) // spread
            pairs += _count_pairs(Axis(extent, *left, stride // common, dilation, first))
    return pairs


def _count_pairs(axis: Axis) -> int:
    """Count the pairs of a tap and a coarse pixel that read inside the fine axis."""
    return _count_up_to(axis, axis.fine - 1 + axis.pad_low) - _count_up_to(axis, axis.pad_low - 1)


def _count_up_to(axis: Axis, last: int) -> int:
    """Count the pairs of a tap and a coarse pixel with dilation*tap + stride*pixel <= last."""
    # The first taps have all pixels, the next taps some.
    full = min(max((last - axis.stride * (axis.coarse - 1)) // axis.dilation + 1, 0), axis.kernel)
    some = min(max(last // axis.dilation + 1, full), axis.kernel)
    least = last - axis.dilation * (some - 1)
    counted = _sum_floors(some - full, axis.dilation, least, axis.stride) + some - full
    return full * axis.coarse + counted


def _sum_floors(n: int, a: int, b: int, m: int) -> int:
    """Sum (a*i + b) // m for i below n, as in Euclid's algorithm: no loop over taps."""
    if n == 0:
        return 0
    whole = n * (n - 1) // 2 * (a // m) + n * (b // m)
    top = (a % m) * n + b % m
    return whole + _sum_floors(top // m, m, top % m, a % m)
