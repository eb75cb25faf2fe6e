"""GPU: a contraction becomes one of cuDNN's convolutions, by the first line that holds.

The layouts stay as they are, since XLA chooses cuDNN's layouts by itself. cuDNN has at most three
spatial axes, and its data gradient neither groups nor dilations: with stride 1 such a gradient is a
forward convolution by the reversed kernel. With larger strides, the coarse tensor of the forward
convolution has zeros between its pixels, which XLA writes out, unless one convolution computes all
residues of the stride. Several convolutions would be more calls, and take no less memory. XLA:GPU's
compiler shows that the lines help (`python -m benchmarks.compiled`); nothing has been timed.

cuDNN's three convolutions (MIOpen's on ROCm), and XLA:GPU's patterns for these:

    backward data    one group; the kernel is a `rev` of all its spatial axes, and the `rev`
                     comes last; stride and dilation 1, the lhs dilated by the real stride
    backward filter  no feature groups; stride 1, the lhs not dilated; a rhs larger than the
                     result along some axis, dilated by the real stride
    forward          any other: no axis reversed alone

No pattern has more than three spatial axes. Where a pattern fails on a detail, the convolution runs
as a forward convolution, on operands that XLA first writes to memory: a dilated lhs with its zeros;
and, if the padding of a forward convolution is negative or not the same at both ends, the lhs with
its padding and a dilated kernel with its zeros.
"""

import math
from typing import NamedTuple

from jax import Array, lax

from jaxconv._base.geometry import OPERANDS, Axis
from jaxconv._base.reshape import pad
from jaxconv._lowering.forms import dots, phases, reference, split
from jaxconv._lowering.problem import Call, Form, Line, Problem, Table, Tables, wherever_it_can

#: Work that even padding may cause, in multiples of the needed work.
MAX_WORK_RATIO = 1.5


def to_coarse(fine: Array, kernel: Array, call: Call) -> Array:
    """Convolve forward, each axis padded by the same at both ends.

    A surplus of padding gives a surplus of results, which is cut off: the cut copies the coarse
    tensor, and may fuse with its consumer. With too large a surplus, or a smaller fine tensor, that
    one is padded here instead. A barrier follows: XLA would move a mere pad back into the
    convolution, and then write out a dilated kernel as well.
    """
    geometry = call.geometry
    spatial = geometry.data.spatial
    even = [_EvenPadding.of(a) for a in geometry.axes]
    pads = [(a.pad_low, max(a.pad_high, 0)) for a in geometry.axes]
    needed = math.prod(a.coarse for a in geometry.axes)
    wide = math.prod(
        e.before + a.coarse + e.after for e, a in zip(even, geometry.axes, strict=True)
    )
    padded = math.prod(a.fine + sum(pad) for a, pad in zip(geometry.axes, pads, strict=True))
    channels = fine.shape[geometry.data.channel], kernel.shape[geometry.kernel.coarse]
    cut_is_larger = wide > needed and wide * channels[1] > padded * channels[0]
    if wide > MAX_WORK_RATIO * needed or cut_is_larger:
        fine = lax.optimization_barrier(_pad(fine, spatial, pads))
        even = [_EvenPadding(0, 0, 0) for _ in pads]
    out = reference.to_coarse(fine, kernel, call, [(e.pad, e.pad) for e in even])
    return _pad(out, spatial, [(-e.before, -e.after) for e in even])


class _EvenPadding(NamedTuple):
    """The same padding at both ends, and the surplus results before and after."""

    pad: int
    before: int
    after: int

    @classmethod
    def of(cls, axis: Axis) -> "_EvenPadding":
        """Find the least padding: the low padding, plus strides to reach the high padding."""
        before = max(-(-(axis.pad_high - axis.pad_low) // axis.stride), 0)
        pad = axis.pad_low + before * axis.stride
        count = (axis.fine + 2 * pad - axis.extent) // axis.stride + 1
        return cls(pad, before, count - before - axis.coarse)


def _pad(x: Array, spatial: tuple[int, ...], pairs: list[tuple[int, int]]) -> Array:
    """Pad both ends of the spatial axes with zeros; negative numbers crop."""
    if not any(low or high for low, high in pairs):
        return x
    return pad(x, {at: (*pair, 0) for at, pair in zip(spatial, pairs, strict=True)})


CUDNN = Form(
    "cudnn",
    {"coarse": to_coarse, "fine": reference.to_fine, "kernel": reference.to_kernel},
    layouts="any",
    eight_bits=True,
    isolated=False,
)


def _no_backward_data(p: Problem) -> bool:
    return p.result == "fine" and (not p.dense or p.dilated or p.rank > 3)


def _gathers(p: Problem) -> bool:
    """Whether XLA splits groups of several summed channels: a convolution gathers the batch."""
    return not p.dense and p.summed > 1 and p.partitioned


def _by_tap(p: Problem) -> bool:
    """Whether cuDNN has no such convolution, or gathers the batch, and dots are not too many."""
    return p.result == "coarse" and (p.bits == 8 or _gathers(p)) and p.taps <= split.MAX_PARTS


def _not_one_convolution(p: Problem) -> bool:
    return _no_backward_data(p) and (p.rank > 3 or _gathers(p) or p.reaches_far)


def _one_kind(p: Problem) -> bool:
    """Whether one convolution computes all residues, without zeros in the coarse tensor."""
    return _no_backward_data(p) and len(phases.split_phases(p)) == 1


_LINES: Table = (
    Line(
        "stride 1",
        phases.FLIP,
        _no_backward_data,
        "no backward data form; it is a forward convolution by the reversed kernel",
    ),
    Line(
        "strided",
        phases.PHASES,
        _not_one_convolution,
        "no backward data form, and one forward convolution would not do",
    ),
    Line(
        "strided, alike",
        phases.PHASES,
        _one_kind,
        "no backward data form, and one forward convolution computes all residues of the stride",
    ),
    Line(
        "strided, one tap",
        dots.ONE,
        _not_one_convolution,
        "no backward data form, and strides too large for phases",
    ),
    Line(
        "odd strides",
        split.TAPS,
        _not_one_convolution,
        "no backward data form, and too many phases",
    ),
    Line("4-D", split.FIRST_AXIS, lambda p: p.rank > 3, "no form has more than three spatial axes"),
    Line(
        "dot by tap",
        dots.BY_TAP,
        _by_tap,
        "cuDNN lacks it for 8-bit integers, or would gather all devices' batch (openxla/xla#47945)",
    ),
    Line("all others", CUDNN, wherever_it_can, "one convolution of cuDNN's"),
)

TABLES: Tables = dict.fromkeys(OPERANDS, _LINES)
