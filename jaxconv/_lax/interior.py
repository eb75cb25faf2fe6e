"""Convolutions of tensors between whose elements `lax.pad` has written zeros.

Some libraries write a transposed convolution as `lax.pad` with interior zeros and a convolution of
stride 1. Lowered as they are written, such a layer and its gradients multiply mostly zeros, and
compute results that nobody reads. Where a jaxpr shows this, `see_through` finds the same
convolution without the zeros:

    an operand is pad(x)                 A slice of the operand is x again. The padding and the
                                         dilation of the convolution stand for the zeros.
    slice(pad(result)) is all that       The wanted results are computed, by strides, and zeros are
    reads the result                     written between these.

XLA fuses the slice with the pad that stands before it, so the slice costs nothing.
"""

from collections.abc import Callable, Sequence
from math import prod
from typing import Any, NamedTuple

import numpy as np
from jax import Array, lax
from jax.export import is_symbolic_dim

from jaxconv._base.jax_names import (
    Equation,
    find_maker,
    find_only_user,
    read_equation,
    read_literal,
    replace_aval,
)
from jaxconv._base.typing import Shape
from jaxconv._lax.probe import cache_is_known

#: Steps that leave all elements in order, where they leave their number. vmap writes some of them
#: around a convolution. The sums are over axes of extent 1: the transpose of a broadcast.
IN_ORDER = (
    lax.reshape_p,
    lax.squeeze_p,
    lax.broadcast_in_dim_p,
    lax.reduce_sum_p,
    lax.convert_element_type_p,
)


class Comb(NamedTuple):
    """The positions `first`, `first + step` and so on, `length` of them, along an axis."""

    first: int
    step: int
    length: int

    @property
    def last(self) -> int:
        """The last position."""
        return self.first + self.step * (self.length - 1)

    def pick(self, first: int, step: int, length: int) -> "Comb":
        """Pick the positions whose numbers are those of another comb."""
        return Comb(self.first + self.step * first, self.step * step, length)

    def clip(self, extent: int) -> "Comb":
        """Leave out the positions that an axis of this extent does not have."""
        start = max(0, -(self.first // self.step))
        stop = min(self.length, (extent - 1 - self.first) // self.step + 1)
        return self.pick(start, 1, stop - start)


#: The positions of some axes of a tensor, by axis.
Combs = dict[int, Comb]


class View(NamedTuple):
    """A convolution without zeros, and how the convolution as it is written follows from it."""

    equation: Equation
    #: where the operands of the equation, and then its result, stand in those that are written
    combs: list[Combs]
    #: the shape of the result that is written
    shape: Shape

    def around(self, compute: Callable[..., Array]) -> Callable[..., Array]:
        """Compute the convolution that is written, by what computes the equation."""
        *taken, spread = self.combs

        def call(*operands: Array) -> Array:
            out = compute(*map(_take, operands, taken))
            config = [(0, 0, 0)] * out.ndim
            for axis, comb in spread.items():
                config[axis] = comb.first, self.shape[axis] - 1 - comb.last, comb.step - 1
            return lax.pad(out, np.zeros((), out.dtype), config)

        return call


def _take(x: Array, combs: Combs) -> Array:
    """Take the elements at the positions."""
    starts, limits, strides = [0] * x.ndim, [*x.shape], [1] * x.ndim
    for axis, comb in combs.items():
        starts[axis], limits[axis], strides[axis] = comb.first, comb.last + 1, comb.step
    return lax.slice(x, starts, limits, strides)


def see_through(jaxpr: Any, step: Any) -> View | None:
    """Find a convolution without zeros by which a convolution of lax's can be computed, or None."""
    primitive, operands, results, params = read_equation(step)
    avals = [*operands, *results]
    specs = [spec[2:] for spec in params["dimension_numbers"]]
    extents = [[aval.shape[a] for a in spec] for aval, spec in zip(avals, specs, strict=True)]
    if any(is_symbolic_dim(n) for row in extents for n in row):
        return None
    combs = [
        _find_data(jaxpr, step, 0, specs[0]),
        _find_data(jaxpr, step, 1, specs[1]),
        _find_wanted(jaxpr, step, specs[2]),
    ]
    every = [comb for of in combs for comb in of.values()]
    if all(comb.step == 1 for comb in every) or any(comb.length < 1 for comb in every):
        return None
    if not cache_is_known():
        return None
    names = ("window_strides", "padding", "lhs_dilation", "rhs_dilation")
    rows = zip(*(of.values() for of in combs), *(params[name] for name in names), strict=True)
    changed = dict(zip(names, zip(*(_strip(*row) for row in rows), strict=True), strict=True))
    shapes = (
        tuple(of[a].length if a in of else n for a, n in enumerate(aval.shape))
        for aval, of in zip(avals, combs, strict=True)
    )
    *operands, out = (replace_aval(a, shape=n) for a, n in zip(avals, shapes, strict=True))
    return View(Equation(primitive, operands, [out], params | changed), combs, results[0].shape)


def _strip(
    lhs: Comb, rhs: Comb, out: Comb, stride: int, pad: tuple[int, int], by_lhs: int, by_rhs: int
) -> tuple[int, tuple[int, int], int, int]:
    """Find stride, padding and dilations of one axis that has no other positions than these."""
    low = pad[0] + by_lhs * lhs.first - by_rhs * rhs.first - stride * out.first
    stride, by_lhs, by_rhs = stride * out.step, by_lhs * lhs.step, by_rhs * rhs.step
    needed = stride * (out.length - 1) + by_rhs * (rhs.length - 1)
    return stride, (low, needed - by_lhs * (lhs.length - 1) - low), by_lhs, by_rhs


def _find_data(jaxpr: Any, step: Any, operand: int, axes: Sequence[int]) -> Combs:
    """Find where, along some axes, an operand holds other elements than the zeros of a pad."""
    shape = read_equation(step).operands[operand].shape
    combs = {axis: Comb(0, 1, shape[axis]) for axis in axes}
    places = {axis: axis for axis in axes}
    while places and (maker := find_maker(jaxpr, step, operand)) is not None:
        if maker.primitive is lax.pad_p:
            if read_literal(jaxpr, maker, 1) == 0:
                within = read_equation(maker).operands[0].shape
                for axis, place in places.items():
                    low, _, interior = maker.params["padding_config"][place]
                    comb = combs[axis].pick(low, interior + 1, within[place])
                    combs[axis] = comb.clip(shape[axis])
            break
        places = _follow(places, maker, back=True)
        step, operand = maker, 0
    return combs


def _find_wanted(jaxpr: Any, step: Any, axes: Sequence[int]) -> Combs:
    """Find the positions of a result, along some axes, that the program reads."""
    shape = read_equation(step).results[0].shape
    combs = {axis: Comb(0, 1, shape[axis]) for axis in axes}
    places = {axis: axis for axis in axes}
    while places and (user := find_only_user(jaxpr, step)) is not None:
        primitive, _, results, params = read_equation(user)
        picked: list[tuple[int, int]] = []
        if primitive is lax.slice_p:
            starts = params["start_indices"]
            picked = [*zip(starts, params["strides"] or [1] * len(starts), strict=True)]
        elif primitive is lax.pad_p and not any(inner for _, _, inner in params["padding_config"]):
            picked = [(-low, 1) for low, _, _ in params["padding_config"]]
        else:
            places = _follow(places, user, back=False)
        for axis, place in places.items() if picked else ():
            combs[axis] = combs[axis].pick(*picked[place], results[0].shape[place])
        step = user
    return {axis: comb.clip(shape[axis]) for axis, comb in combs.items()}


def _follow(places: dict[int, int], step: Any, *, back: bool) -> dict[int, int]:
    """Find the axes of a step's result that hold axes of the operand, or, back, the reverse."""
    primitive, operands, results, params = read_equation(step)
    if primitive is lax.transpose_p:
        order = params["permutation"]
        return {axis: order[p] if back else order.index(p) for axis, p in places.items()}
    moved = primitive is lax.reshape_p and params["dimensions"] is not None
    if primitive not in IN_ORDER or len(operands) > 1 or moved:
        return {}
    source, target = (results, operands) if back else (operands, results)
    source, target = source[0].shape, target[0].shape
    if prod(source) != prod(target):
        return {}
    return {
        axis: p
        for axis, place in places.items()
        for p, n in enumerate(target)
        if n == source[place] != 1 and prod(target[p + 1 :]) == prod(source[place + 1 :])
    }
