"""Contractions to fine as contractions to coarse: no reversed, spread out or naive form left.

With stride 1, the sum over t of K[t] * coarse[p + pad - dilation*t] is a convolution of
the coarse tensor with the reversed kernel. With a larger one, each residue of p + pad by
the stride meets only the taps of its own residue class: one such convolution a phase,
and the phases are interleaved.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import jax.numpy as jnp
from jax import lax

from jaxconv._geometry import Axis, Geometry
from jaxconv._reshape import move_groups, replace_axes


@dataclass(frozen=True)
class Phase:
    """One residue class of one axis: the taps it meets, and its stride-1 geometry."""

    taps: slice
    axis: Axis


def to_fine(
    coarse: Any, kernel: Any, *, geometry: Geometry, contract: Callable[..., Any], **params: Any
) -> Any:
    """Spell with `contract`, to coarse, in the same layouts."""
    data, layout, kernel_shape = geometry.data, geometry.kernel, kernel.shape
    kernel = move_groups(kernel, geometry.groups, layout.coarse, layout.fine)
    kernel = jnp.swapaxes(kernel, layout.coarse, layout.fine)  # o is fine, (g, i) coarse

    def spell(axes: tuple[Axis, ...], kernel: Any) -> Any:
        return contract(
            "coarse",
            coarse,
            lax.rev(kernel, layout.spatial),
            geometry=replace(geometry, axes=tuple(_reversed(a) for a in axes)),
            **params,
        )

    if all(a.stride == 1 for a in geometry.axes):
        return spell(geometry.axes, kernel)

    def interleave(chosen: tuple[Phase, ...]) -> Any:
        """All phases of the axes that are not chosen yet."""
        if len(chosen) == geometry.rank:
            axes = tuple(p.axis for p in chosen)
            if any(a.kernel == 0 for a in axes):
                shape = replace(geometry, axes=axes).shape("fine", coarse.shape, kernel_shape)
                return jnp.zeros(shape, params["dtype"])
            taps = dict(zip(layout.spatial, (p.taps for p in chosen), strict=True))
            return spell(axes, kernel[tuple(taps.get(a, slice(None)) for a in range(kernel.ndim))])
        axis, at = geometry.axes[len(chosen)], data.spatial[len(chosen)]
        parts = [interleave((*chosen, phase(axis, r))) for r in range(axis.stride)]
        if len(parts) == 1:
            return parts[0]
        # Stacked right behind the axis, the phases are its minor part.
        whole = jnp.stack(parts, at + 1)
        whole = replace_axes(whole, at, 2, (whole.shape[at] * axis.stride,))
        return lax.slice_in_dim(whole, 0, axis.fine, axis=at)

    return interleave(())


def phase(axis: Axis, first: int) -> Phase:
    """The positions first, first + stride, ... of the fine axis, as many as cover it.

    They meet the taps t with dilation*t = first + pad_low modulo the stride.
    """
    stride, dilation = axis.stride, axis.dilation
    met = [t for t in range(axis.kernel) if (dilation * t - first - axis.pad_low) % stride == 0]
    count = -(-axis.fine // stride)
    if not met:
        return Phase(slice(0, 0), replace(axis, fine=count, kernel=0, stride=1))
    step = met[1] - met[0] if len(met) > 1 else 1
    return Phase(
        slice(met[0], met[-1] + 1, step),
        Axis(
            fine=count,
            kernel=len(met),
            coarse=axis.coarse,
            stride=1,
            dilation=dilation * step // stride if len(met) > 1 else 1,
            pad_low=(first + axis.pad_low - dilation * met[0]) // stride,
        ),
    )


def _reversed(axis: Axis) -> Axis:
    """The axis of the convolution that a stride-1 contraction to fine is."""
    return Axis(
        fine=axis.coarse,
        kernel=axis.kernel,
        coarse=axis.fine,
        stride=1,
        dilation=axis.dilation,
        pad_low=axis.extent - 1 - axis.pad_low,
    )
