"""A contraction and what follows it as one primitive, which oneDNN may compute in one call.

To JAX it is what it says, a contraction, additions and an activation: the derivative is made of
contractions again, and so is what vmap makes of it. On meshes with explicit axes, these are written
out from the start.
"""

from functools import partial
from typing import Any

import jax
from jax import Array, lax
from jax.sharding import NamedSharding

from jaxconv._base import meshes
from jaxconv._base.dtypes import ACCUMULATION
from jaxconv._base.environment import FORCED
from jaxconv._base.finish import NOTHING, Activation, Finish, activate, differentiate_by_result
from jaxconv._base.geometry import Geometry, Slot
from jaxconv._base.jax_names import (
    Primitive,
    ad,
    aval_of_undefined_primal,
    batching,
    jet,
    replace_aval,
)
from jaxconv._base.typing import DType, Precision
from jaxconv._contract.batching import batch_contraction
from jaxconv._contract.contractions import contract, register_lowerings

#: By the slot of the result; nothing follows a weights gradient.
FINISHED: dict[Slot, Primitive] = {
    "coarse": Primitive("contract_to_coarse_and_finish"),
    "fine": Primitive("contract_to_fine_and_finish"),
}


def contract_and_finish(
    result: Slot,
    first: Array,
    second: Array,
    bias: Array | None,
    residual: Array | None,
    activation: Activation | None,
    *,
    geometry: Geometry,
    precision: Precision,
    dtype: DType,
    sharding: NamedSharding | None,
) -> Array:
    """Contract two slots of the sum into the third, finish, and round once to `dtype`."""
    finish = Finish(bias is not None, residual is not None, activation)
    extras = [x for x in (bias, residual) if x is not None]
    params: Any = {"geometry": geometry, "precision": precision, "dtype": dtype, "finish": finish}
    typed = [meshes.explicit(jax.typeof(x)) for x in (first, second, *extras)]
    if sharding is not None or any(typed):
        return _write_out(result, first, second, *extras, sharding=sharding, **params)
    operands = meshes.vary_alike(first, second, *extras)
    out: Array = FINISHED[result].bind(*operands, forced=FORCED.value, **params)
    return out


def _write_out(
    result: Slot, first: Array, second: Array, *extras: Array, finish: Finish, **params: Any
) -> Array:
    """Contract, and then finish, as two steps."""
    sums = contract(result, first, second, **_params_of_sums(**params))
    return finish.apply(sums, extras, params["geometry"].data.channel, params["dtype"])


def _params_of_sums(*, dtype: DType, sharding: NamedSharding | None = None, **same: Any) -> Any:
    """The parameters of a contraction whose result is finished, and rounded to `dtype`, after."""
    wide = ACCUMULATION[dtype]
    return {**same, "dtype": wide, "early_rounding": dtype != wide, "sharding": sharding}


def _register(result: Slot) -> None:
    """Give the primitive that fills `result` all its rules."""
    primitive = FINISHED[result]

    def abstract(first: Any, second: Any, *extras: Any, **params: Any) -> Any:
        shape = params["geometry"].shape(result, first.shape, second.shape)
        return replace_aval(first, shape=shape, dtype=params["dtype"], weak_type=False)

    def differentiate(primals: Any, tangents: Any, **params: Any) -> tuple[Array, Array]:
        (first, second), (d_first, d_second, *d_extras) = primals[:2], tangents
        finish, dtype, wide = params["finish"], params["dtype"], ACCUMULATION[params["dtype"]]
        geometry, precision = params["geometry"], params["precision"]
        of_sums = _params_of_sums(geometry=geometry, precision=precision, dtype=dtype)
        terms = [
            contract(result, *pair, **of_sums)
            for pair in ((d_first, second), (first, d_second))
            if not any(type(x) is ad.Zero for x in pair)
        ]
        shape = geometry.shape(result, first.shape, second.shape)
        for x in (x for x in d_extras if type(x) is not ad.Zero):
            at = (geometry.data.channel,) if x.ndim == 1 else tuple(range(len(shape)))
            terms.append(lax.broadcast_in_dim(lax.convert_element_type(x, wide), shape, at))
        change: Any = sum(terms[1:], start=terms[0])
        activation = finish.activation
        if activation is not None and activation.needs_sums:
            added = Finish(finish.bias, finish.residual, None)
            if added == NOTHING:
                sums = contract(result, first, second, **of_sums | {"early_rounding": False})
            else:
                sums = primitive.bind(*primals, **params | {"finish": added, "dtype": wide})
            return jax.jvp(lambda x: activate(x, activation, dtype), (sums,), (change,))
        out = primitive.bind(*primals, **params)
        if activation is None:
            return out, lax.convert_element_type(change, dtype)
        return out, differentiate_by_result(activation, out, change)

    def transpose(cotangent: Any, *operands: Any, forced: Any, **params: Any) -> list[Any]:
        """Of a sum with nothing but additions after it, which is linear but for constants."""
        if params["finish"].activation is not None:
            raise NotImplementedError(f"{primitive} with an activation is not linear")
        sought = [ad.is_undefined_primal(x) for x in operands]
        given = [x for x in operands if not ad.is_undefined_primal(x)]

        def linear(*unknown: Any) -> Array:
            sources = iter(unknown), iter(given)
            return _write_out(result, *(next(sources[not s]) for s in sought), **params)

        avals = [aval_of_undefined_primal(x) for x in operands if ad.is_undefined_primal(x)]
        found = iter(jax.linear_transpose(linear, *avals)(cotangent))
        return [next(found) if s else None for s in sought]

    def batch(axis: Any, args: Any, dims: Any, *, forced: Any, **params: Any) -> Any:
        if all(dim is None for dim in dims):  # under jacfwd, say, which maps tangents alone
            return primitive.bind(*args, forced=FORCED.value, **params), None
        geometry, dtype, finish = (params.pop(n) for n in ("geometry", "dtype", "finish"))
        of_sums = _params_of_sums(dtype=dtype, **params)
        sums, dim = batch_contraction(contract, result, axis, args[:2], dims[:2], geometry, of_sums)

        def apply(sums: Array, *extras: Array) -> Array:
            out: Array = finish.apply(sums, extras, geometry.data.channel, dtype)
            return out

        return jax.vmap(apply, (dim, *dims[2:]))(sums, *args[2:]), 0

    def taylor(primals_in: Any, series_in: Any, *, forced: Any, **params: Any) -> Any:
        # A rule is given coefficients, and `jet.jet` takes derivatives unless told otherwise.
        steps = partial(_write_out, result, **params)
        return jet.jet(steps, primals_in, series_in, factorial_scaled=False)

    primitive.def_abstract_eval(abstract)
    ad.primitive_jvps[primitive] = differentiate
    ad.primitive_transposes[primitive] = transpose
    batching.fancy_primitive_batchers[primitive] = batch
    rules: Any = jet.jet_rules
    rules[primitive] = taylor
    register_lowerings(primitive, result)


for _slot in FINISHED:
    _register(_slot)
