"""vmap of a contraction: the mapped axis folds into the batch, the channels or the groups.

The result is always mapped. The mapped slots say where the axis goes:

    fine, coarse           into the batch
    fine, kernel           into the fine channels, inside each group
    coarse, kernel         into the coarse channels, inside each group
    fine, kernel, coarse   into the groups, as their major part
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from jaxconv._base import meshes
from jaxconv._base.geometry import OPERANDS, Geometry, Slot
from jaxconv._base.jax_names import explicit_mesh_axes_of_vmap, vmap_axis_is_sharded
from jaxconv._base.reshape import replace_axes
from jaxconv._base.typing import Extent

MAJOR = 1


class Site(NamedTuple):
    """The place of the mapped axis in one tensor: in `axis`, behind its `outer` major parts."""

    axis: int
    outer: Extent


def batch_contraction(
    contract: Callable[..., Array],
    result: Slot,
    axis_data: Any,
    args: tuple[Array, Array],
    dims: tuple[int | None, int | None],
    geometry: Geometry,
    params: dict[str, Any],
) -> tuple[Array, int | None]:
    """Batch the contraction that fills `result`, as JAX's batching rules do."""
    operands = dict(zip(OPERANDS[result], args, strict=True))
    mapped = {s: d for s, d in zip(OPERANDS[result], dims, strict=True) if d is not None}
    if not mapped:
        return contract(result, *args, geometry=geometry, **params), None
    size = next(operands[slot].shape[dim] for slot, dim in mapped.items())
    if isinstance(size, int) and size == 0:  # groups and channels may not be empty
        shapes = (
            tuple(n for axis, n in enumerate(a.shape) if axis != dim)
            for a, dim in zip(args, dims, strict=True)
        )
        return jnp.zeros((0, *geometry.shape(result, *shapes)), params["dtype"]), 0

    if "kernel" in {*mapped, result} and geometry.groups > 1 and vmap_axis_is_sharded(axis_data):
        # Inside the groups, the axis would be gathered; as the groups' major part, it stays split.
        for slot in operands.keys() - mapped:
            operands[slot] = _repeat(operands[slot], size, explicit_mesh_axes_of_vmap(axis_data))
            mapped[slot] = 0
    folded = {*mapped, result}
    sites = _find_sites(folded, geometry, _find_batch_outer(operands, mapped, geometry, axis_data))
    for slot, dim in mapped.items():
        operands[slot] = _fold(operands[slot], dim, sites[slot])
    if len(folded) == 3:
        geometry = geometry.with_groups(geometry.groups * size)
    first, second = (operands[slot] for slot in OPERANDS[result])
    out = contract(result, first, second, geometry=geometry, **(params | {"sharding": None}))
    out, dim = _unfold(out, size, sites[result]), sites[result].axis
    if params["sharding"] is not None:
        mesh, spec = params["sharding"].mesh, list(params["sharding"].spec)
        spec += [None] * (out.ndim - 1 - len(spec))
        spec.insert(dim, explicit_mesh_axes_of_vmap(axis_data))
        out = jax.sharding.reshard(out, NamedSharding(mesh, PartitionSpec(*spec)))
    return out, dim


def _find_sites(folded: set[Slot], geometry: Geometry, batch_outer: Extent) -> dict[Slot, Site]:
    """Find the place of the mapped axis in each tensor, by the table above."""
    data, kernel, groups = geometry.data, geometry.kernel, geometry.groups
    if len(folded) == 3:
        channel = Site(data.channel, MAJOR)
        return {"fine": channel, "coarse": channel, "kernel": Site(kernel.coarse, MAJOR)}
    if "kernel" not in folded:
        whole = Site(data.batch, batch_outer)
        return {"fine": whole, "coarse": whole}
    channel = Site(data.channel, groups)
    if "fine" in folded:
        return {"fine": channel, "kernel": Site(kernel.fine, MAJOR)}
    return {"coarse": channel, "kernel": Site(kernel.coarse, groups)}


def _find_batch_outer(
    operands: dict[Slot, Array], mapped: dict[Slot, int], geometry: Geometry, axis_data: Any
) -> Extent:
    """Find whether the mapped axis goes outside the batch (MAJOR) or inside (the batch's extent).

    Outside is free: no data moves. But of two merged axes, an axis that is sharded over devices
    must be the major axis, or merging gathers the data. Explicit axes and `spmd_axis_name` say
    which axis is sharded. Automatic sharding is not visible here: with several devices, the batch
    is assumed to be sharded.
    """
    slot = next((s for s in mapped if s != "kernel"), None)
    if slot is None or vmap_axis_is_sharded(axis_data):
        return MAJOR
    x, dim = operands[slot], mapped[slot]
    at = geometry.data.batch + (dim <= geometry.data.batch)
    typed = meshes.explicit(jax.typeof(x))
    if typed is not None:
        sharded = typed.spec[at] is not None
    else:
        mesh = jax.sharding.get_abstract_mesh()
        sharded = jax.device_count() > 1 if mesh.empty else AxisType.Auto in mesh.axis_types
    return x.shape[at] if sharded and x.shape[at] != 0 else MAJOR


def _repeat(x: Array, size: Extent, mesh_axis: Any) -> Array:
    """Repeat `x` along a new first axis, which is split over devices."""
    typed = meshes.explicit(jax.typeof(x))
    if typed is None:
        return lax.broadcast(x, (size,))
    spec = PartitionSpec(mesh_axis, *typed.spec)
    return lax.broadcast(x, (size,), out_sharding=NamedSharding(typed.mesh, spec))


def _fold(x: Array, dim: int, site: Site) -> Array:
    """Merge the mapped axis `dim` into its site."""
    axis, outer = site
    x = jnp.moveaxis(x, dim, axis)
    size, extent = x.shape[axis : axis + 2]
    if outer == MAJOR:
        return replace_axes(x, axis, 2, (size * extent,))
    x = replace_axes(x, axis + 1, 1, (outer, extent // outer))
    return replace_axes(jnp.moveaxis(x, axis, axis + 1), axis, 3, (size * extent,))


def _unfold(x: Array, size: Extent, site: Site) -> Array:
    """Take the mapped axis out of its site, and put it right before the site."""
    axis, outer = site
    extent = x.shape[axis] // size
    if outer == MAJOR:
        return replace_axes(x, axis, 1, (size, extent))
    x = replace_axes(x, axis, 1, (outer, size, extent // outer))
    return replace_axes(jnp.moveaxis(x, axis + 1, axis), axis + 1, 2, (extent,))
