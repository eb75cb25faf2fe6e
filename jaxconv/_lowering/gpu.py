"""GPU: a contraction becomes one of cuDNN's convolutions, by the first line that holds.

The layouts stay as they are, since XLA chooses those of cuDNN by itself. XLA hands none of these to
cuDNN, so other lines take them: more than three spatial axes, a data gradient with groups or
dilations, and a dilated weights gradient.
"""

from jaxconv._lowering.form import Line, Table
from jaxconv._lowering.forms import cudnn, dot, dots, phases, reference, taps
from jaxconv._lowering.problem import Problem


def _no_backward_data(p: Problem) -> bool:
    return p.result == "fine" and (not p.dense or p.dilated or p.rank > 3)


TABLE: Table = (
    Line("empty", reference.ZEROS, lambda p: p.empty, "nothing is summed"),
    Line(
        "stride 1",
        phases.FLIP,
        _no_backward_data,
        "no backward data form; it is a forward convolution by the reversed kernel",
    ),
    Line(
        "strided",
        phases.PHASES,
        _no_backward_data,
        "no backward data form; a forward one would write out the coarse tensor with zeros between",
    ),
    Line(
        "strided, one tap",
        dot.FORM,
        _no_backward_data,
        "no backward data form, and strides too large for phases",
    ),
    Line(
        "odd strides",
        taps.TAPS,
        _no_backward_data,
        "no backward data form, and too many phases",
    ),
    Line(
        "4-D",
        taps.FIRST_AXIS,
        lambda p: p.rank > 3 and p.result != "fine",
        "no form has more than three spatial axes",
    ),
    Line(
        "dilated weights gradient",
        dots.BY_TAP,
        lambda p: p.result == "kernel" and p.dilated and p.taps <= taps.MOST_TAPS,
        "no backward filter form; a forward one would have the coarse tensor as its kernel",
    ),
    Line(
        "grouped, sharded",
        dots.BY_TAP,
        lambda p: (
            p.result == "coarse"
            and not p.dense
            and p.fine_channels > 1
            and p.partitioned
            and p.taps <= taps.MOST_TAPS
        ),
        "a grouped convolution gathers the batch of all devices (openxla/xla#47945)",
    ),
    Line("all others", cudnn.FORM, lambda p: True, "one convolution of cuDNN's"),
)
