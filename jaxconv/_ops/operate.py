"""The steps of all six operations: check, resolve, contract, add the bias, round once."""

from collections.abc import Callable
from dataclasses import dataclass

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.sharding import NamedSharding

from jaxconv._base import dtypes, meshes
from jaxconv._base.geometry import Geometry, Slot
from jaxconv._base.reshape import move_groups
from jaxconv._base.typing import DType, Precision
from jaxconv._contract.contractions import contract
from jaxconv._rules import arguments
from jaxconv._rules import attributes as parse
from jaxconv._rules.arguments import TensorLike
from jaxconv._rules.op import OPS, Op
from jaxconv._rules.resolve import resolve_sizes


@dataclass(frozen=True)
class Call:
    """All that is static about a call: the key of its compiled function."""

    result: Slot
    geometry: Geometry
    groups_on_fine: bool
    precision: Precision
    dtype: DType
    sharding: NamedSharding | None


def operate(
    op: Op,
    first: TensorLike,
    second: TensorLike,
    *,
    bias: TensorLike | None = None,
    given_shape: object = None,
    precision: object,
    preferred_element_type: object,
    out_sharding: object,
    **attributes: object,
) -> Array:
    """Check the arguments of `op`, then run its one compiled function for such arguments."""
    one, two = op.inputs
    first, second = arguments.array(op.name, one, first), arguments.array(op.name, two, second)
    if bias is None:
        operand = arguments.common_dtype(op.name, **{one: first, two: second})
    else:
        bias = arguments.array(op.name, "bias", bias)
        operand = arguments.common_dtype(op.name, **{one: first, two: second}, bias=bias)
    resolved = resolve_sizes(op, first.shape, second.shape, given_shape, **attributes)
    if bias is not None:
        arguments.check_bias(op.name, bias, resolved)
    result, precisions = op.slot(op.result), parse.precision(op.name, precision)
    call = Call(
        result,
        resolved.geometry,
        resolved.groups_on_fine,
        op.order_by_slot(precisions),
        dtypes.result_dtype(op.name, operand, preferred_element_type),
        meshes.canonical(op.name, out_sharding, resolved.shape(op.result)),
    )
    out: Array = _COMPILED[op.name](call, *op.order_by_slot((first, second)), bias)
    return out


def _run(call: Call, first: Array, second: Array, bias: Array | None) -> Array:
    geometry, layout = call.geometry, call.geometry.kernel
    if call.groups_on_fine and call.result != "kernel":
        second = move_groups(second, geometry.groups, layout.fine, layout.coarse)
    published = call.groups_on_fine and call.result == "kernel"
    # A bias is added before the one rounding of the sum.
    sums = call.dtype if bias is None else dtypes.ACCUMULATION[call.dtype]
    out = contract(
        call.result,
        first,
        second,
        geometry=geometry,
        precision=call.precision,
        dtype=sums,
        early_rounding=call.dtype != sums,
        sharding=None if published else call.sharding,
    )
    if bias is not None:
        channel = geometry.data.channel
        bias = meshes.shard_alike(lax.convert_element_type(bias, sums), out, channel)
        bias = lax.expand_dims(bias, [axis for axis in range(out.ndim) if axis != channel])
        out = lax.convert_element_type(jnp.add(out, bias), call.dtype)
    if published:
        out = move_groups(out, geometry.groups, layout.coarse, layout.fine)
        out = out if call.sharding is None else jax.sharding.reshard(out, call.sharding)
    return out


def _compile(op: Op) -> Callable[..., Array]:
    """Compile `_run` under the operation's name, for jaxprs and profiles.

    Meshes are checked inside, once for each trace, so that calls do not pay for the check.
    """

    def run(call: Call, first: Array, second: Array, bias: Array | None) -> Array:
        names = (*op.order_by_slot(op.inputs), "bias")
        arrays = dict(zip(names, (first, second, bias), strict=True))
        meshes.check_meshes(op.name, call.sharding, arrays)
        return _run(call, first, second, bias)

    run.__name__ = run.__qualname__ = op.name
    return jax.jit(run, static_argnums=0)


_COMPILED = {name: _compile(op) for name, op in OPS.items()}
