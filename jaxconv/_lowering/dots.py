"""One dot for each tap, in the layouts at hand: where no convolution will do.

On GPU that is where cuDNN has none. On CPU, groups that are split over devices: dots
partition on a sharded batch, where a grouped convolution gathers it (openxla/xla#47945).
Groups are a batch axis of the dot. Sums over taps are wide: a dot does not widen its operands for
that.
"""

from collections.abc import Iterator
from functools import reduce
from typing import Any

import jax.numpy as jnp
from jax import lax

from jaxconv._geometry import DataLayout, Geometry
from jaxconv._lowering import window
from jaxconv._lowering.plan import Form
from jaxconv._lowering.problem import Numerics
from jaxconv._reshape import replace_axes


def to_coarse(fine: Any, kernel: Any, *, geometry: Geometry, numerics: Numerics) -> Any:
    """The sum over taps of what the tap reads times its weights."""
    groups, data, layout = geometry.groups, geometry.data, geometry.kernel
    kernel = lax.transpose(kernel, (*layout.spatial, layout.fine, layout.coarse))
    kernel = replace_axes(kernel, geometry.rank + 1, 1, (groups, kernel.shape[-1] // groups))
    products = [
        lax.dot_general(
            _split(read, groups, data),
            kernel[tap],  # i, g, o
            (((data.channel + 1,), (0,)), ((data.channel,), (1,))),
            precision=numerics.precision,
            preferred_element_type=numerics.sums,
        )
        for tap, read in _reads(fine, geometry)
    ]
    out = jnp.moveaxis(reduce(lax.add, products), (0, -1), (data.channel, data.channel + 1))
    return replace_axes(out, data.channel, 2, (kernel.shape[-2] * kernel.shape[-1],))


def to_kernel(fine: Any, coarse: Any, *, geometry: Geometry, numerics: Numerics) -> Any:
    """For each tap, what it reads times the coarse tensor, over the batch and all positions."""
    groups, data, layout = geometry.groups, geometry.data, geometry.kernel
    coarse = _split(coarse, groups, data)
    summed = tuple(a + (a > data.channel) for a in (data.batch, *data.spatial))
    products = [
        lax.dot_general(
            _split(read, groups, data),
            coarse,
            ((summed, summed), ((data.channel,), (data.channel,))),
            precision=numerics.precision,
            preferred_element_type=numerics.sums,
        )
        for _, read in _reads(fine, geometry)
    ]
    out = jnp.stack(products)  # taps, g, i, o
    extents = (a.kernel for a in geometry.axes)
    out = jnp.swapaxes(out, 1, 2).reshape(*extents, out.shape[2], -1)
    order = {at: n for n, at in enumerate((*layout.spatial, layout.fine, layout.coarse))}
    return lax.transpose(out, [order[axis] for axis in range(out.ndim)])


def _reads(fine: Any, geometry: Geometry) -> Iterator[tuple[window.Tap, Any]]:
    """Each tap, and what it reads of the fine tensor."""
    # Shifted data, which are split over devices as they were, exchange halos only.
    strided = any(a.stride > 1 for a in geometry.axes)
    fine, read_by = (
        (window.padded(fine, geometry), window.read_by) if strided else (fine, window.shifted)
    )
    return ((tap, read_by(tap, fine, geometry)) for tap in window.taps(geometry))


def _split(x: Any, groups: int, data: DataLayout) -> Any:
    """The channels as two axes: groups, and the channels of one."""
    return replace_axes(x, data.channel, 1, (groups, x.shape[data.channel] // groups))


FORM = Form("dots", {"coarse": to_coarse, "kernel": to_kernel}, any_layout=True, isolated=())
