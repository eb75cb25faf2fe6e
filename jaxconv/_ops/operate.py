"""The steps of all six operations: check, resolve, contract, finish, round once."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax
from jax import Array
from jax.sharding import NamedSharding

from jaxconv._base.finish import Activation
from jaxconv._base.geometry import Geometry, Slot
from jaxconv._base.reshape import move_groups
from jaxconv._base.typing import DType, Precision
from jaxconv._contract.contractions import contract
from jaxconv._contract.finished import contract_and_finish
from jaxconv._rules import arguments
from jaxconv._rules import attributes as parse
from jaxconv._rules.arguments import TensorLike
from jaxconv._rules.op import OPS, Op
from jaxconv._rules.resolve import resolve_sizes


@dataclass(frozen=True)
class StaticArguments:
    """The static arguments of a jitted operation, which compiles once for each of their values."""

    result_slot: Slot
    geometry: Geometry
    groups_on_fine: bool
    precision: Precision
    dtype: DType
    activation: Activation | None
    sharding: NamedSharding | None


def operate(
    op: Op,
    first: TensorLike,
    second: TensorLike,
    *,
    bias: TensorLike | None = None,
    residual: TensorLike | None = None,
    activation: object = None,
    alpha: object = None,
    result_shape: object = None,
    precision: object,
    preferred_element_type: object,
    out_sharding: object,
    **attributes: object,
) -> Array:
    """Check and resolve the arguments of `op`, then call its jitted function."""
    one, two = op.inputs
    first, second = arguments.array(op.name, one, first), arguments.array(op.name, two, second)
    tensors = {one: first, two: second}
    if bias is not None:
        bias = tensors["bias"] = arguments.array(op.name, "bias", bias)
    operand_dtype = arguments.common_dtype(op.name, **tensors)
    resolved = resolve_sizes(op, first.shape, second.shape, result_shape, **attributes)
    if bias is not None:
        arguments.check_bias(op.name, bias, resolved)
    dtype = arguments.result_dtype(op.name, operand_dtype, preferred_element_type)
    if residual is not None:
        residual = arguments.array(op.name, "residual", residual)
        arguments.check_residual(op.name, residual, (operand_dtype, dtype), resolved.dst_shape)
    result_slot, precisions = op.slot(op.result), parse.precision(op.name, precision)
    static = StaticArguments(
        result_slot,
        resolved.geometry,
        resolved.groups_on_fine,
        op.order_by_slot(precisions),
        dtype,
        parse.activation(op.name, activation, alpha),
        arguments.parse_out_sharding(op.name, out_sharding, resolved.shape(op.result)),
    )
    out: Array = _JITTED[op.name](static, *op.order_by_slot((first, second)), bias, residual)
    return out


def _compute(
    static: StaticArguments, first: Array, second: Array, bias: Array | None, residual: Array | None
) -> Array:
    """Contract two tensors, in the order of slots; finish, and round once.

    Unless the result is the kernel, the second tensor is the kernel.
    """
    geometry, layout = static.geometry, static.geometry.kernel
    if static.groups_on_fine and static.result_slot != "kernel":
        second = move_groups(second, geometry.groups, layout.fine, layout.coarse)
    # The gradient by weights with groups on the fine axis has its groups there, too.
    move_groups_back = static.groups_on_fine and static.result_slot == "kernel"
    params: Any = {
        "geometry": geometry,
        "precision": static.precision,
        "dtype": static.dtype,
        "sharding": None if move_groups_back else static.sharding,
    }
    if bias is None and residual is None and static.activation is None:
        out = contract(static.result_slot, first, second, **params)
    else:
        rest = bias, residual, static.activation
        out = contract_and_finish(static.result_slot, first, second, *rest, **params)
    if move_groups_back:
        out = move_groups(out, geometry.groups, layout.coarse, layout.fine)
        out = out if static.sharding is None else jax.sharding.reshard(out, static.sharding)
    return out


def _jit_operation(op: Op) -> Callable[..., Array]:
    """Jit a check of meshes and the computation, under the name that jaxprs and profiles show.

    Meshes are checked inside, once for each trace, so that calls do not pay for the check.
    """

    def checked(static: StaticArguments, *arrays: Array) -> Array:
        names = (*op.order_by_slot(op.inputs), "bias", "residual")
        arguments.check_meshes(op.name, static.sharding, dict(zip(names, arrays, strict=True)))
        return _compute(static, *arrays)

    checked.__name__ = checked.__qualname__ = op.name
    return jax.jit(checked, static_argnums=0)


#: name of an operation -> its jitted function
_JITTED = {name: _jit_operation(op) for name, op in OPS.items()}
