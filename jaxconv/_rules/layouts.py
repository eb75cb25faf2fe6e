"""From `data_format` and `weights_format` to axis numbers, and to channels that fit each other.

N is the batch, C the channels, X all spatial axes, O and I the output and input channels of the
weights. A spatial rank is the number of spatial axes.
"""

from typing import NamedTuple

from jaxconv._base.geometry import DataLayout, KernelLayout
from jaxconv._base.messages import Refusal
from jaxconv._base.typing import Shape
from jaxconv._rules.op import Op

DATA_FORMATS = ("NXC", "NCX")
WEIGHTS_FORMATS = ("OIX", "XIO", "IOX", "XOI")

Tensors = dict[str, Shape]  # the given data tensors by name


def find_axes(letters: str, spatial_rank: int) -> dict[str, int]:
    """Find the axis of each letter of a format; for X, the first spatial axis."""
    found, axis = {}, 0
    for letter in letters:
        found[letter] = axis
        axis += spatial_rank if letter == "X" else 1
    return found


def parse_data_format(data_format: str, spatial_rank: int) -> DataLayout:
    """Convert NXC or NCX to a layout with this many spatial axes."""
    at = find_axes(data_format, spatial_rank)
    return DataLayout(at["N"], at["C"], tuple(range(at["X"], at["X"] + spatial_rank)))


def parse_weights_format(weights_format: str, spatial_rank: int, transposed: bool) -> KernelLayout:
    """Convert a weights format to a layout; I is coarse in a transposed convolution, else O."""
    at = find_axes(weights_format, spatial_rank)
    coarse_letter, fine_letter = "IO" if transposed else "OI"
    spatial = tuple(range(at["X"], at["X"] + spatial_rank))
    return KernelLayout(at[coarse_letter], at[fine_letter], spatial)


def check_channels(
    op: Op, data: Tensors, weights: Shape, groups: int, data_format: str, weights_format: str
) -> bool:
    """Check all channel counts; say whether the groups lie on the weights' fine axis.

    Groups lie on the coarse axis in every layout of a convolution, and in layouts of a transposed
    convolution that divide the output channels. The published layouts of the transposed family
    divide the input channels instead: the same numbers, and the extents tell the readings apart.
    """
    divided = ("I",) if not op.transposed else ("O", "I") if groups > 1 else ("O",)
    broken = [
        _find_misfit(op, data, weights, groups, data_format, weights_format, axis)
        for axis in divided
    ]
    if None in broken:
        return broken.index(None) == 1
    # The error is about the reading that more tensors fit, or about both readings.
    meant = max(filter(None, broken), key=lambda b: b.passed)
    readings = dict.fromkeys(b.reading for b in broken if b and b.passed == meant.passed)
    either = " (or ".join(readings) + ")" * (len(readings) - 1)
    rule = meant.rule.format(either)
    raise ValueError(Refusal(op.name, meant.argument, rule, meant.got, meant.remedy))


class _Misfit(NamedTuple):
    """Why a reading of the weights fails; the rule may have a place for what a reading says."""

    passed: int  # how many of the tensors fit
    argument: str
    rule: str
    got: str
    reading: str = ""
    remedy: str = ""


def _find_misfit(
    op: Op,
    data: Tensors,
    weights: Shape,
    groups: int,
    data_format: str,
    weights_format: str,
    divided: str,
) -> _Misfit | None:
    """Find the first broken rule, if axis `divided` of the weights has the channels of a group."""
    argument = "weights" if "weights" in op.inputs else "weights_shape"
    at = find_axes(weights_format, len(weights) - 2)
    extents = {axis: weights[at[axis]] for axis in "IO"}
    shape = f"in shape {weights} ({weights_format})"
    for passed, (name, tensor) in enumerate(data.items()):
        axis = "I" if name.endswith("src") else "O"  # that meets this tensor
        whole = tensor[find_axes(data_format, len(tensor) - 2)["C"]]
        got = f"groups={groups}, channels={whole} from {name} shape {tensor} ({data_format})"
        if whole % groups:
            return _Misfit(passed, "groups", f"must divide the {name} channels", got)
        part = whole // groups
        if extents[axis] == (part if axis == divided else whole):
            continue
        if op.transposed and passed and extents[axis] in (part, whole):
            rule = f"one of the axes I and O of `{argument}` must hold the channels of one group"
            both = "divided" if extents[axis] == part else "whole"
            got = f"both {both}, {extents['I']} and {extents['O']} {shape}, {got}"
            return _Misfit(passed, "", f"exactly {rule}", got)
        is_part = axis == divided
        reads = f"{name} channels / groups = {part}" if is_part else f"all {whole} {name} channels"
        rule, got = f"must have {{}} on axis {axis}", f"{extents[axis]} {shape}, {got}"
        remedy = "A group has weights for its own channels only" if extents[axis] == whole else ""
        return _Misfit(passed, argument, rule, got, reads, remedy)
    axis = "O" if divided == "I" else "I"
    if extents[axis] % groups:
        got = f"groups={groups}, {extents[axis]} {shape}"
        return _Misfit(len(data), "groups", f"must divide axis {axis} of `{argument}`", got)
    return None


def check_first_axis(src: Shape, weights: Shape, groups: int) -> None:
    """Refuse grouped weights of a transposed layer that do not begin with the channels of src.

    The operation takes weights with either axis of channels divided by the groups, PyTorch and ONNX
    those with the second.
    """
    if groups > 1 and len(src) > 1 and weights[:1] != src[1:2]:
        rule = f"must have the {src[1]} channels of `src` on its first axis"
        raise ValueError(Refusal("conv_transpose", "weights", rule, f"shape {weights}"))
