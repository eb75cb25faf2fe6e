"""Contractions on meshes: shardings of results, varying axes, and lowering under both.

Automatic sharding needs no such code: XLA splits the programs that the lowerings emit.
"""

from collections.abc import Callable, Iterable
from math import prod
from typing import Any

import jax
from jax import Array, lax
from jax.sharding import AbstractMesh, AxisType, Mesh, NamedSharding, PartitionSpec

from jaxconv._base.geometry import Geometry, Slot
from jaxconv._base.jax_names import varying_axes
from jaxconv._base.typing import Shape

AnyMesh = Mesh | AbstractMesh


def explicit(aval: Any) -> NamedSharding | None:
    """Read the sharding in a type, if the mesh has explicit axes."""
    sharding = aval.sharding
    return sharding if AxisType.Explicit in sharding.mesh.axis_types else None


def explicit_axes(mesh: AnyMesh) -> tuple[str, ...]:
    """List the explicit axes of a mesh."""
    kinds = zip(mesh.axis_names, mesh.axis_types, strict=True)
    return tuple(name for name, kind in kinds if kind == AxisType.Explicit)


def find_sharding(result: Slot, first: Any, second: Any, geometry: Geometry, shape: Shape) -> Any:
    """Find the sharding of a contraction's result type, unless the user names a sharding.

    Each axis follows the operand that has the axis; contracted axes are summed. An axis that
    its mesh axes do not divide, or that would use a mesh axis twice, is replicated.
    """
    sharding = explicit(first) or explicit(second)
    if sharding is None:
        return first.sharding  # says nothing, and all three tensors have the same rank
    data, kernel = geometry.data, geometry.kernel
    one, other = (tuple(a.sharding.spec) for a in (first, second))
    entries: dict[int, Any]
    if result == "kernel":
        entries = {kernel.coarse: other[data.channel]}
        if geometry.groups == 1:
            entries[kernel.fine] = one[data.channel]
    else:
        entries = {axis: one[axis] for axis in (data.batch, *data.spatial)}
        if result == "coarse":
            entries[data.channel] = other[kernel.coarse]
        elif geometry.groups == 1:
            entries[data.channel] = other[kernel.fine]
        else:  # whole groups stay where they are
            entry = one[data.channel] or other[kernel.coarse]
            if geometry.groups % parts(sharding.mesh, entry) == 0:
                entries[data.channel] = entry
    return NamedSharding(sharding.mesh, divisible_spec(sharding.mesh, shape, entries))


def divisible_spec(mesh: AnyMesh, shape: Shape, entries: dict[int, Any]) -> PartitionSpec:
    """Make a spec of the entries that divide their axes and use no mesh axis again."""
    used: set[Any] = set()
    spec: list[Any] = [None] * len(shape)
    for axis, entry in entries.items():
        count = parts(mesh, entry)
        if count > 1 and shape[axis] % count == 0 and used.isdisjoint(names(entry)):
            spec[axis] = entry
            used.update(names(entry))
    return PartitionSpec(*spec)


def parts(mesh: AnyMesh, entry: Any) -> int:
    """Count the parts into which an entry of a spec splits its axis."""
    return prod(mesh.shape[name] for name in names(entry))


def names(entry: Any) -> Iterable[Any]:
    """List the mesh axes of an entry of a spec."""
    if entry is None:
        return ()
    return entry if isinstance(entry, tuple) else (entry,)


def shard_alike(x: Array, other: Array, axis: int | None = None) -> Array:
    """Give a tensor the sharding of another, or a vector that of one axis, on explicit mesh axes.

    JAX combines shardings that differ, so a bias would change the sharding of the result.
    """
    sharding = explicit(jax.typeof(other))
    if sharding is None:
        return x
    spec = sharding.spec if axis is None else PartitionSpec(sharding.spec[axis])
    out: Array = jax.sharding.reshard(x, NamedSharding(sharding.mesh, spec))
    return out


def vary_alike(*operands: Array) -> tuple[Array, ...]:
    """Under shard_map, make all operands vary over the mesh axes that any of them varies over.

    The transpose of this step is the sum over devices that the gradient of a replicated
    operand needs.
    """
    varying = [varying_axes(x) for x in operands]
    union = frozenset().union(*varying)
    return tuple(
        lax.pcast(x, tuple(sorted(union - v, key=str)), to="varying") if union - v else x
        for x, v in zip(operands, varying, strict=True)
    )


def lower_in_auto_axes(result: Slot, lower: Callable[..., Array]) -> Callable[..., Array]:
    """Make a lowering run in automatic axes where the mesh has explicit axes.

    Inside, the compiler propagates shardings, so that a lowering may slice and reshape at will.
    """

    def lower_typed(
        first: Array,
        second: Array,
        *extras: Array,
        geometry: Geometry,
        sharding: NamedSharding | None = None,
        **params: Any,
    ) -> Array:
        def plain(first: Array, second: Array) -> Array:
            return lower(first, second, *extras, geometry=geometry, **params)

        types = jax.typeof(first), jax.typeof(second)
        if sharding is not None or any(map(explicit, types)):
            shape = geometry.shape(result, first.shape, second.shape)
            sharding = sharding or find_sharding(result, *types, geometry, shape)
            axes = explicit_axes(sharding.mesh)  # others may be mapped, by shard_map
            plain = jax.sharding.auto_axes(plain, axes=axes, out_sharding=sharding)
        return plain(first, second)

    return lower_typed
