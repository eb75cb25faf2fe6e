"""A contraction by a few sizes: the witnesses of lines are written so."""

from collections.abc import Sequence

import numpy as np

from jaxconv._base.geometry import Axis, DataLayout, Geometry, KernelLayout, Slot
from jaxconv._base.typing import DType
from jaxconv._lowering.problem import Problem


def example(
    result: Slot,
    pixels: Sequence[int],
    channels: tuple[int, int],
    kernel: int = 3,
    *,
    groups: int = 1,
    batch: int = 8,
    stride: int = 1,
    dilation: int = 1,
    pad: int | None = None,
    dtype: str | DType = "float32",
    channels_first: bool = False,
    devices: int = 1,
    onednn: bool = True,
) -> Problem:
    """Describe a contraction by its fine pixels, and the fine and coarse channels of a group.

    Without `pad`, there is half of the kernel at each end.
    """
    extent = dilation * (kernel - 1) + 1
    pad = extent // 2 if pad is None else pad
    axes = tuple(
        Axis(fine, kernel, (fine + 2 * pad - extent) // stride + 1, stride, dilation, pad)
        for fine in pixels
    )
    geometry = Geometry(axes, groups, DataLayout(0, 1, ()), KernelLayout(0, 1, ()))
    return Problem(
        result,
        geometry.canonical(channels_first),
        batch,
        *channels,
        np.dtype(dtype),
        devices,
        onednn,
    )
