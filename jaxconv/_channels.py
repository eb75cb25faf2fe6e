"""Do the channels of two tensors, the weights and the groups fit each other?"""

from itertools import product

from jaxconv import _layouts
from jaxconv._attributes import Shape
from jaxconv._op import Op

Tensors = dict[str, Shape]  # the given data tensors by name


def groups_on_fine(
    op: Op, data: Tensors, weights: Shape, groups: int, data_format: str, weights_format: str
) -> bool:
    """Check all channel counts; say whether the groups lie on the weights' fine axis.

    They lie on the coarse axis in every layout of a convolution and, of a transposed
    one, in the layouts that divide the output channels. The published layouts of the
    transposed family divide the input channels instead: the same numbers, and the
    extents tell which it is.
    """
    complaint = _complaint(op, data, weights, groups, data_format, weights_format)
    if complaint is None:
        return False
    if (
        op.transposed
        and groups > 1
        and _published_fits(op, data, weights, groups, data_format, weights_format)
    ):
        return True
    raise ValueError(
        f"{op.name}: {complaint}{_hint(op, data, weights, groups, data_format, weights_format)}"
    )


def channels(tensor: Shape, data_format: str) -> int:
    """The channel count of a data tensor."""
    extent: int = tensor[_layouts.positions(data_format, len(tensor) - 2)["C"]]
    return extent


def _weights_channels(weights: Shape, weights_format: str) -> dict[str, int]:
    at = _layouts.positions(weights_format, len(weights) - 2)
    return {"I": weights[at["I"]], "O": weights[at["O"]]}


def _complaint(
    op: Op, data: Tensors, weights: Shape, groups: int, data_format: str, weights_format: str
) -> str | None:
    """The first rule that is broken, when the groups lie on the coarse axis."""
    extents = _weights_channels(weights, weights_format)
    for name, tensor in data.items():
        found = channels(tensor, data_format)
        got = f"got groups={groups}, channels={found} from {name} shape {tensor} ({data_format})"
        if found % groups:
            return f"`groups` must divide the {name} channels; {got}"
        letter = "I" if name.endswith("src") else "O"
        divided = op.slot(name) == "fine"
        expected = found // groups if divided else found
        if extents[letter] != expected:
            rule = f"{name} channels / groups" if divided else f"the {name} channels"
            return (
                f"`weights` must have {rule} = {expected} on axis {letter}; got "
                f"{extents[letter]} in shape {weights} ({weights_format}), {got[4:]}"
            )
    whole = "I" if op.transposed else "O"
    if extents[whole] % groups:
        return (
            f"`groups` must divide axis {whole} of the weights; got groups={groups}, "
            f"{extents[whole]} in shape {weights} ({weights_format})"
        )
    return None


def _published_fits(
    op: Op, data: Tensors, weights: Shape, groups: int, data_format: str, weights_format: str
) -> bool:
    """Whether axis I holds the channels of one group and axis O all output channels."""
    extents = _weights_channels(weights, weights_format)
    counts = {"I": extents["I"] * groups, "O": extents["O"]}
    return extents["O"] % groups == 0 and all(
        channels(tensor, data_format) == counts["I" if name.endswith("src") else "O"]
        for name, tensor in data.items()
    )


def _hint(
    op: Op, data: Tensors, weights: Shape, groups: int, data_format: str, weights_format: str
) -> str:
    """Name the formats under which these very shapes would fit, the nearest first."""
    candidates = sorted(
        product(_layouts.DATA_FORMATS, _layouts.WEIGHTS_FORMATS),
        key=lambda c: (c[0] != data_format) + (c[1] != weights_format),
    )
    for data_other, weights_other in candidates:
        if _complaint(op, data, weights, groups, data_other, weights_other) is None:
            changes = []
            if data_other != data_format:
                changes.append(f"data_format={data_other!r}")
            if weights_other != weights_format:
                changes.append(f"weights_format={weights_other!r}")
            return f". The shapes look like another layout: they fit {' and '.join(changes)}"
    return ""
