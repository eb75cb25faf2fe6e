"""One sum as three primitives, each the derivative of the other two.

T(fine, K, coarse) is linear in each of its three tensors. Dropping one slot leaves a
bilinear contraction of the other two, whose result fills that slot:

    result    operands         as an operation
    coarse    fine, kernel     convolution, conv_transpose_backward_data
    fine      coarse, kernel   convolution_backward_data, conv_transpose
    kernel    fine, coarse     both backward_weights

The transpose of a contraction with respect to one operand swaps that operand and the
result, which is again a row of this table. So derivatives of any order, in either mode,
are these three primitives and nothing else, on every backend. (`finished.py` has two that finish a
sum, too: their derivatives are made of these.)
"""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import jax
from jax import Array, lax
from jax.sharding import NamedSharding

from jaxconv._base import environment, meshes
from jaxconv._base.environment import FORCED, Lowered, Target
from jaxconv._base.geometry import OPERANDS, Geometry, Slot
from jaxconv._base.jax_names import (
    Equation,
    Primitive,
    ad,
    aval_of_undefined_primal,
    batching,
    jet,
    lower_or_leave_nothing,
    mlir,
    operand_and_result_avals,
    replace_aval,
)
from jaxconv._base.typing import DType, Precision
from jaxconv._contract.batching import batch_contraction

if TYPE_CHECKING:
    from jaxconv._lowering import Plan

PRIMITIVES: dict[Slot, Primitive] = {slot: Primitive(f"contract_to_{slot}") for slot in OPERANDS}

#: The slot that each primitive fills, those of `finished.py` included.
SLOTS: dict[Primitive, Slot] = {}

#: The platforms with a table, the keys of `_lowering.TABLES`; None is every other platform.
PLATFORMS = (None, "cpu", "gpu", "tpu")


def contract(
    result: Slot,
    first: Array,
    second: Array,
    *,
    geometry: Geometry,
    precision: Precision,
    dtype: DType,
    early_rounding: bool = False,
    sharding: NamedSharding | None = None,
) -> Array:
    """Contract two slots of the sum into the third.

    Args:
      result: the slot to fill.
      first, second: the tensors of the other two slots, in the order of `OPERANDS`.
      geometry: the sizes that all three share.
      precision: as lax takes it.
      dtype: type of the result; sums are at least float32.
      early_rounding: the caller rounds the result to the operands' type anyway, so a
        backend may do so first (see `_lowering.lower`).
      sharding: of the result, on explicit mesh axes.
    """
    first, second = meshes.vary_alike(first, second)
    out: Array = PRIMITIVES[result].bind(
        first,
        second,
        geometry=geometry,
        precision=precision,
        dtype=dtype,
        early_rounding=early_rounding,
        forced=FORCED.value,
        sharding=sharding,
    )
    return out


def _register(result: Slot) -> None:
    """Give the primitive that fills `result` all its rules."""
    primitive, slots = PRIMITIVES[result], OPERANDS[result]

    def abstract(first: Any, second: Any, *, geometry: Geometry, **params: Any) -> Any:
        shape = geometry.shape(result, first.shape, second.shape)
        sharding = params["sharding"] or meshes.find_sharding(
            result, first, second, geometry, shape
        )
        dtype = params["dtype"]
        return replace_aval(first, shape=shape, dtype=dtype, weak_type=False, sharding=sharding)

    # The rules of derivatives and batches leave out `forced`: `contract` reads it where they run.

    def transpose(wrt: Slot) -> Any:
        def rule(
            cotangent: Array, first: Array, second: Array, *, forced: Any, **params: Any
        ) -> Array:
            tensors: dict[Slot, Array] = dict(zip(slots, (first, second), strict=True))
            aval = aval_of_undefined_primal(tensors[wrt])
            # The one rounding of a cotangent that is wider than the operands.
            tensors[result] = lax.convert_element_type(cotangent, aval.dtype)
            params |= {
                "dtype": aval.dtype,
                "early_rounding": False,
                "sharding": meshes.explicit(aval),
            }
            return contract(wrt, *(tensors[slot] for slot in OPERANDS[wrt]), **params)

        return rule

    def batch(
        axis: Any, args: Any, dims: Any, *, geometry: Geometry, forced: Any, **params: Any
    ) -> Any:
        return batch_contraction(contract, result, axis, args, dims, geometry, params)

    def taylor(primals_in: Any, series_in: Any, **params: Any) -> Any:
        """Compute the coefficients of a product of two power series."""
        first, second = ([x, *terms] for x, terms in zip(primals_in, series_in, strict=True))
        out = [
            sum(primitive.bind(first[j], second[k - j], **params) for j in range(k + 1))
            for k in range(len(first))
        ]
        return out[0], out[1:]

    primitive.def_abstract_eval(abstract)
    ad.defbilinear(primitive, transpose(slots[0]), transpose(slots[1]))
    batching.fancy_primitive_batchers[primitive] = batch
    jet.jet_rules[primitive] = taylor

    register_lowerings(primitive, result)


def register_lowerings(primitive: Primitive, result: Slot) -> None:
    """Lower a primitive that fills `result` by the table of each platform, and evaluate it so."""

    def lowering_for(target: Target, tell: Callable[["Plan"], None] | None = None) -> Any:
        from jaxconv import _lowering  # half of the package, which only compiling needs

        lower = partial(_lowering.lower, result, target=target, tell=tell)
        return meshes.lower_in_auto_axes(result, lower)

    def evaluate(*operands: Any, **params: Any) -> Any:
        """Evaluate eagerly: under `jax.disable_jit`, or where `jax.debug_nans` traces a nan."""
        return lowering_for(Target(jax.default_backend()))(*operands, **params)

    def lowering(platform: str | None) -> Any:
        def rule(ctx: Any, *operands: Any, **params: Any) -> Any:
            target = Target.of(platform, ctx)

            def tell(plan: "Plan") -> None:
                equation = Equation(primitive, *operand_and_result_avals(ctx), params)
                steps = tuple(plan.steps())
                environment.tell(Lowered(equation, equation, steps, target))

            function = lowering_for(target, tell if environment.prepare(ctx) else None)
            return lower_or_leave_nothing(partial(function, **params), ctx, *operands)

        return rule

    primitive.def_impl(evaluate)
    SLOTS[primitive] = result
    for platform in PLATFORMS:
        mlir.register_lowering(primitive, lowering(platform), platform=platform)


for _slot in OPERANDS:
    _register(_slot)
