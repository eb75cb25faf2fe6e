"""Check the tensors an operation is given, and what is asked of the result: type and sharding."""

from typing import Any, Protocol

import jax
import numpy as np
from jax import Array
from jax.sharding import AbstractMesh, AxisType, NamedSharding, PartitionSpec

from jaxconv._base import meshes
from jaxconv._base.dtypes import ACCUMULATION, canonical
from jaxconv._base.messages import Refusal, either, shown
from jaxconv._base.typing import ArrayLike, DType, Shape, Typed
from jaxconv._rules.resolve import Resolved


class HoldsArray(Protocol):
    """An object that holds an array: a module's parameter, say."""

    def __jax_array__(self) -> Array:
        """The array."""


#: The tensors that operations take.
TensorLike = ArrayLike | HoldsArray


def array(op: str, name: str, value: Any) -> ArrayLike:
    """Read `value` as an array that `jax.jit` takes, or raise an error."""
    if isinstance(value, Array):
        if not isinstance(value, jax.core.Tracer) and value.is_deleted():
            got = f"an array of shape {value.shape} that was deleted"
            raise ValueError(Refusal(op, name, "must still have its data", got, "Was it donated?"))
        return value
    rule = "must be a JAX or NumPy array"
    if isinstance(value, np.ma.MaskedArray):
        remedy = "Its method `filled` makes one without a mask"
        raise TypeError(Refusal(op, name, rule, "a masked one", remedy))
    if isinstance(value, np.ndarray):
        return value
    if hasattr(value, "__jax_array__"):
        try:
            held = value.__jax_array__()
        except Exception as error:
            got = f"{shown(value)}, whose __jax_array__ raises {type(error).__name__}"
            raise TypeError(Refusal(op, name, rule, got)) from error
        if isinstance(held, Array | np.ndarray):
            return array(op, name, held)
        value = held
    remedy = "jax.numpy.asarray makes one of numbers and lists"
    if hasattr(value, "detach"):
        remedy = "jaxconv.torch.load converts a dict of PyTorch's tensors"
    raise TypeError(Refusal(op, name, rule, shown(value), remedy))


def common_dtype(op: str, **arrays: Typed) -> DType:
    """Find the one accepted type that all arrays have, or raise an error."""
    types: dict[str, DType] = {name: canonical(a.dtype) for name, a in arrays.items()}
    dtype, *others = types.values()
    if dtype in ACCUMULATION and all(other == dtype for other in others):
        return dtype
    got = ", ".join(f"`{name}` {dtype}" for name, dtype in types.items())
    for name, dtype in types.items():
        if dtype not in ACCUMULATION:
            accepted = either(d.name for d in ACCUMULATION)
            raise TypeError(Refusal(op, name, f"must have type {accepted}", got))
    remedy = "Nothing is promoted: convert with .astype"
    raise TypeError(Refusal(op, "", "all arrays must have the same type", got, remedy))


def check_bias(op: str, bias: Typed, resolved: Resolved) -> None:
    """Check that a bias has one entry for each channel of dst."""
    channels = resolved.dst_shape[resolved.geometry.data.channel]
    if bias.shape != (channels,):
        rule = f"must have shape ({channels},), one entry for each dst channel"
        got = f"shape {bias.shape} for dst shape {resolved.dst_shape}"
        raise ValueError(Refusal(op, "bias", rule, got))


def check_residual(op: str, residual: Typed, accepted: tuple[DType, DType], shape: Shape) -> None:
    """Check that a residual has the shape of dst, and the type of the operands or of dst."""
    if residual.shape != shape:
        rule = f"must have the shape of dst, {shape}"
        raise ValueError(Refusal(op, "residual", rule, str(residual.shape)))
    if canonical(residual.dtype) not in accepted:
        rule = f"must have type {either(dict.fromkeys(dtype.name for dtype in accepted))}"
        raise TypeError(Refusal(op, "residual", rule, str(residual.dtype)))


def result_dtype(op: str, operand: DType, preferred: object) -> DType:
    """Find the type of a result: the operands' type, or a wider type that the user prefers."""
    if preferred is None:
        return operand
    fitting = [d for d in ACCUMULATION if d == operand or d.itemsize > operand.itemsize]
    try:
        asked: DType = canonical(preferred)
        if asked in fitting:
            return asked
        got = str(asked)
    except Exception:  # JAX raises many kinds of errors for other values
        got = shown(preferred)
    rule = f"must be the operands' type or a wider one, here {either(d.name for d in fitting)}"
    got = f"{got} for operands of type {operand}"
    raise TypeError(Refusal(op, "preferred_element_type", rule, got))


def parse_out_sharding(op: str, sharding: object, shape: Shape) -> NamedSharding | None:
    """Parse a user's `out_sharding` of a result, on the mesh in context, with explicit axes."""
    if sharding is None:
        return None
    if not isinstance(sharding, NamedSharding | PartitionSpec):
        rule = "must be None, a jax.sharding.PartitionSpec or NamedSharding"
        raise TypeError(Refusal(op, "out_sharding", rule, shown(sharding)))
    context = jax.sharding.get_abstract_mesh()
    if isinstance(sharding, NamedSharding):
        mesh, spec = sharding.mesh.abstract_mesh, sharding.spec
    else:
        mesh, spec = context, sharding
    if AxisType.Explicit not in mesh.axis_types:
        rule = "must be on a mesh with explicit axes, set by jax.set_mesh"
        remedy = "For automatic axes use jax.lax.with_sharding_constraint on the result"
        got = f"{sharding} and the mesh {mesh}"
        raise ValueError(Refusal(op, "out_sharding", rule, got, remedy))
    if not context.empty and mesh != context:
        rule = f"must be on the mesh in context, {context}"
        remedy = "A PartitionSpec takes the mesh from there"
        raise ValueError(Refusal(op, "out_sharding", rule, str(mesh), remedy))
    broken = _find_broken_rule(mesh, spec, shape)
    if broken:
        got = f"{spec} for a result of shape {shape}"
        raise ValueError(Refusal(op, "out_sharding", f"must {broken}", got))
    return NamedSharding(mesh, spec)


def _find_broken_rule(mesh: AbstractMesh, spec: PartitionSpec, shape: Shape) -> str | None:
    """Find the rule by which `spec` does not fit the mesh and the shape, if any."""
    used = [name for entry in spec for name in meshes.names(entry)]
    known = meshes.explicit_axes(mesh)
    if len(spec) > len(shape):
        return f"have one entry for each of {len(shape)} axes at most"
    if not set(used) <= set(known):
        return f"name explicit mesh axes, of {known}"
    if len(set(used)) < len(used):
        return "name each mesh axis once"
    for extent, entry in zip(shape, spec, strict=False):
        if isinstance(extent, int) and extent % meshes.parts(mesh, entry):
            return f"divide the axes evenly, unlike {extent} by {meshes.parts(mesh, entry)}"
    return None


def check_meshes(
    op: str, out_sharding: NamedSharding | None, arrays: dict[str, Array | None]
) -> None:
    """Check that all arrays with explicit axes, and `out_sharding`, are on one mesh."""
    found = {name: meshes.explicit(jax.typeof(x)) for name, x in arrays.items() if x is not None}
    typed = {name: sharding for name, sharding in found.items() if sharding is not None}
    found_on = {sharding.mesh for sharding in typed.values()}
    remedy = "Move what differs with jax.device_put or jax.sharding.reshard"
    if len(found_on) > 1:
        got = ", ".join(f"`{name}` on {sharding.mesh}" for name, sharding in typed.items())
        raise ValueError(Refusal(op, "", "all arrays must be on one mesh", got, remedy))
    # JAX reshards from mesh to mesh where both meshes have the names of the axes.
    used = {
        name
        for sharding in typed.values()
        for entry in sharding.spec
        for name in meshes.names(entry)
    }
    if out_sharding is not None and not used <= set(out_sharding.mesh.axis_names):
        rule = f"must be on the mesh of the arrays, {found_on.pop()}"
        raise ValueError(Refusal(op, "out_sharding", rule, str(out_sharding.mesh), remedy))
