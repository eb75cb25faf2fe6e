"""GPU: a contraction becomes one of cuDNN's convolutions, by the first line that holds.

The layouts stay as they are, since XLA chooses cuDNN's layouts by itself. cuDNN has at most three
spatial axes, and its data gradient neither groups nor dilations: with stride 1 such a gradient is a
forward convolution by the reversed kernel. With larger strides, the coarse tensor of the forward
convolution has zeros between its pixels, which XLA writes out, unless one convolution computes all
residues of the stride. Several convolutions would be more calls, and take no less memory. XLA:GPU's
compiler shows that the lines help (`python -m benchmarks.compiled`); nothing has been timed.
"""

from jaxconv._base.geometry import OPERANDS
from jaxconv._lowering.forms import cudnn, dots, phases, split
from jaxconv._lowering.problem import Line, Problem, Table, Tables


def _no_backward_data(p: Problem) -> bool:
    return p.result == "fine" and (not p.dense or p.dilated or p.rank > 3)


def _gathers(p: Problem) -> bool:
    """Whether XLA splits groups of several summed channels: a convolution gathers the batch."""
    return not p.dense and p.summed > 1 and p.partitioned


def _by_tap(p: Problem) -> bool:
    """Whether cuDNN has no such convolution, or gathers the batch, and dots are not too many."""
    return p.result == "coarse" and (p.bits == 8 or _gathers(p)) and p.taps <= split.MAX_TAPS


def _not_one_convolution(p: Problem) -> bool:
    return _no_backward_data(p) and (p.rank > 3 or _gathers(p) or split.reaches_far(p))


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
    Line(
        "4-D",
        split.FIRST_AXIS,
        lambda p: p.rank > 3,
        "no form has more than three spatial axes",
    ),
    Line(
        "by tap",
        dots.BY_TAP,
        _by_tap,
        "cuDNN lacks it for 8-bit integers, or would gather all devices' batch (openxla/xla#47945)",
    ),
    Line("all others", cudnn.FORM, lambda p: True, "one convolution of cuDNN's"),
)

TABLES: Tables = dict.fromkeys(OPERANDS, _LINES)
