"""Contractions by a few sizes, for questions about plans; and one about which each line decides."""

import numpy as np

from jaxconv import _lowering
from jaxconv._base.geometry import Axis, DataLayout, Geometry, KernelLayout
from jaxconv._lowering.problem import Problem


def axis(fine=28, kernel=3, stride=1, dilation=1, pad=None):
    """An axis; without `pad`, there is half of the kernel at each end."""
    extent = dilation * (kernel - 1) + 1
    pad = extent // 2 if pad is None else pad
    return Axis(fine, kernel, (fine + 2 * pad - extent) // stride + 1, stride, dilation, pad)


def problem(
    result, axes, groups=1, fine=16, coarse=32, batch=8, *, dtype="float32", first=False, **more
):
    """A contraction by its axes, and the fine and coarse channels of a group."""
    geometry = Geometry(tuple(axes), groups, DataLayout(0, 1, ()), KernelLayout(0, 1, ()))
    geometry = geometry.canonical(channels_first=first)
    return Problem(result, geometry, batch, fine, coarse, np.dtype(dtype), **more)


def example(result, pixels, channels, kernel=3, *, groups=1, batch=8, onednn=True, **more):
    """A contraction of equal axes but for their fine pixels, which may call oneDNN."""
    of_axes = {name: more.pop(name) for name in ("stride", "dilation", "pad") if name in more}
    axes = [axis(fine, kernel, **of_axes) for fine in pixels]
    return problem(result, axes, groups, *channels, batch, onednn=onednn, **more)


LINES = {
    f"{slot}: {line.name}": line
    for slot, table in _lowering.TABLES["cpu"].items()
    for line in table[:-1]  # nothing computes what a last line computes
}

#: For each line of the CPU's tables, a contraction about which the line decides, and which another
#: form would compute without it.
WITNESSES = {
    "coarse: much-data": example("coarse", (56, 56), (1, 1), groups=256, onednn=False),
    "coarse: one-dot": example("coarse", (28, 28), (16, 32), 1, onednn=False),
    "coarse: few-results": example("coarse", (28, 28), (64, 2)),
    "coarse: few-terms-channels-first": example("coarse", (28, 28), (1, 1), groups=32, first=True),
    "coarse: multiplier": example("coarse", (28, 28), (1, 2), groups=32),
    "coarse: onednn": example("coarse", (28, 28), (16, 32)),
    "coarse: grouped-sharded": example("coarse", (9, 9), (9, 9), groups=4, devices=4, onednn=False),
    "coarse: few-terms": example("coarse", (28, 28), (1, 1), groups=32, onednn=False),
    "coarse: many-taps": example("coarse", (56, 56), (1, 1), 31, groups=32, onednn=False),
    "coarse: wide-groups": example("coarse", (28, 28), (64, 64), groups=4, onednn=False),
    "coarse: dots-of-windows": example("coarse", (14, 14), (64, 64), onednn=False),
    "coarse: 3-D": example("coarse", (14, 14, 14), (32, 32), onednn=False),
    "fine: much-data": example("fine", (112, 112), (1, 1), groups=256, first=True),
    "fine: few-pixels": example("fine", (7, 7), (256, 256), batch=1),
    "fine: stride-1": example("fine", (28, 28), (16, 32)),
    "fine: few-results": example("fine", (64, 64), (3, 96), 7, stride=2),
    "fine: spread": example("fine", (56, 56), (1, 1), groups=64, stride=2, first=True),
    "fine: strided": example("fine", (56, 56), (16, 32), stride=2),
    "fine: tap-by-tap": example("fine", (160, 160), (4, 4), 9, stride=16, dilation=19),
    "kernel: one-tap-channels-first": example("kernel", (28, 28), (16, 32), 1, first=True),
    "kernel: depthwise-weights": example("kernel", (28, 28), (1, 1), 9, groups=512),
    "kernel: rows": example("kernel", (64, 64), (1, 1), groups=128, batch=4, first=True),
    "kernel: much-data": example("kernel", (56, 56), (1, 1), 7, groups=128),
    "kernel: few-sums": example("kernel", (28, 28), (16, 32), 1),
    "kernel: one-dot": example("kernel", (28, 28), (64, 512), 1),
    "kernel: onednn-weights": example("kernel", (28, 28), (16, 32)),
    "kernel: narrow-coarse": example("kernel", (28, 28), (64, 2)),
    "kernel: dots-sharded": example("kernel", (9, 9), (9, 9), groups=4, devices=4, onednn=False),
    "kernel: few-terms": example("kernel", (28, 28), (1, 1), groups=32),
    "kernel: many-taps": example("kernel", (28, 28), (2, 2), 11, groups=32, onednn=False),
    "kernel: wide-groups": example("kernel", (28, 28), (64, 64), groups=4, stride=2),
    "kernel: dots-of-windows": example("kernel", (28, 28), (3, 16), batch=1),
    "coarse: in-float32": example("coarse", (28, 28), (32, 64), dtype="float16"),
    "fine: in-float32": example("fine", (28, 28), (32, 64), dtype="float16"),
    "kernel: in-float32": example("kernel", (28, 28), (32, 64), dtype="float16"),
    "coarse: one-tap-channels-first": example("coarse", (28, 28), (64, 64), 1, first=True),
    "fine: one-tap-channels-first": example("fine", (28, 28), (64, 64), 1, first=True),
    "coarse: sharded": example("coarse", (28, 28), (16, 32), devices=4, onednn=False),
    "fine: sharded": example("fine", (56, 56), (16, 32), stride=2, devices=4, onednn=False),
    "kernel: sharded": example("kernel", (28, 28), (4, 8), 17, devices=4, onednn=False),
    "coarse: tap-by-tap": example("coarse", (2, 2, 2), (4, 4), 2, stride=50, dilation=50, pad=50),
    "kernel: tap-by-tap": example("kernel", (2, 2, 2), (4, 4), 2, stride=50, dilation=50, pad=50),
}  # fmt: skip
