"""Do the channels of two tensors, the weights and the groups fit each other?"""

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
        and _published_fits(data, weights, groups, data_format, weights_format)
    ):
        return True
    raise ValueError(f"{op.name}: {complaint}")


def _channels(tensor: Shape, data_format: str) -> int:
    extent: int = tensor[_layouts.positions(data_format, len(tensor) - 2)["C"]]
    return extent


def _weights_channels(weights: Shape, weights_format: str) -> dict[str, int]:
    at = _layouts.positions(weights_format, len(weights) - 2)
    return {"I": weights[at["I"]], "O": weights[at["O"]]}


def _letter(tensor: str) -> str:
    """The weights' channel axis that meets a data tensor."""
    return "I" if tensor.endswith("src") else "O"


def _complaint(
    op: Op, data: Tensors, weights: Shape, groups: int, data_format: str, weights_format: str
) -> str | None:
    """The first rule that is broken, when the groups lie on the coarse axis."""
    extents = _weights_channels(weights, weights_format)
    argument = op.shape_argument if "weights" not in op.inputs else "weights"
    for name, tensor in data.items():
        found = _channels(tensor, data_format)
        got = f"groups={groups}, channels={found} from {name} shape {tensor} ({data_format})"
        if found % groups:
            return f"`groups` must divide the {name} channels; got {got}"
        divided = op.slot(name) == "fine"
        expected = found // groups if divided else found
        if extents[_letter(name)] != expected:
            part, whole = (
                f"{name} channels / groups = {found // groups}",
                f"all {found} {name} channels",
            )
            rule, other = (part, whole) if divided else (whole, part)
            either = f" (or {other})" if op.transposed and groups > 1 else ""
            return (
                f"`{argument}` must have {rule}{either} on axis {_letter(name)}; got "
                f"{extents[_letter(name)]} in shape {weights} ({weights_format}), {got}"
            )
    whole = "I" if op.transposed else "O"
    if extents[whole] % groups:
        return (
            f"`groups` must divide axis {whole} of `{argument}`; got groups={groups}, "
            f"{extents[whole]} in shape {weights} ({weights_format})"
        )
    return None


def _published_fits(
    data: Tensors, weights: Shape, groups: int, data_format: str, weights_format: str
) -> bool:
    """Whether axis I holds the channels of one group and axis O all output channels."""
    extents = _weights_channels(weights, weights_format)
    counts = {"I": extents["I"] * groups, "O": extents["O"]}
    return extents["O"] % groups == 0 and all(
        _channels(tensor, data_format) == counts[_letter(name)] for name, tensor in data.items()
    )
