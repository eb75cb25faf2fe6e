"""The six operations: the tensors that each takes, its result, and their slots."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from jaxconv._base.geometry import OPERANDS, Slot

T = TypeVar("T")

#: The slot of each tensor of a convolution, and of a transposed convolution, whose src is coarse.
CONVOLUTION: Mapping[str, Slot] = {
    **dict.fromkeys(("src", "diff_src"), "fine"),
    **dict.fromkeys(("dst", "diff_dst"), "coarse"),
    **dict.fromkeys(("weights", "diff_weights"), "kernel"),
}
TRANSPOSED: Mapping[str, Slot] = {
    **dict.fromkeys(("src", "diff_src"), "coarse"),
    **dict.fromkeys(("dst", "diff_dst"), "fine"),
    **dict.fromkeys(("weights", "diff_weights"), "kernel"),
}


@dataclass(frozen=True)
class Op:
    """The properties that tell an operation from the other five."""

    name: str
    slots: Mapping[str, Slot] = field(hash=False)
    inputs: tuple[str, str]
    result: str
    shape_argument: str | None = None

    @property
    def transposed(self) -> bool:
        """Whether src is the coarse tensor and dst the fine tensor."""
        return self.slots is TRANSPOSED

    def slot(self, tensor: str) -> Slot:
        """The slot of a tensor of this name."""
        return self.slots[tensor]

    def order_by_slot(self, pair: tuple[T, T]) -> tuple[T, T]:
        """Put a pair that belongs to the inputs in the order in which contractions take slots."""
        slots = self.slot(self.inputs[0]), self.slot(self.inputs[1])
        return pair if slots == OPERANDS[self.slot(self.result)] else pair[::-1]


OPS = {
    op.name: op
    for op in (
        Op("convolution", CONVOLUTION, ("src", "weights"), "dst"),
        Op(
            "convolution_backward_data", CONVOLUTION, ("diff_dst", "weights"),
            "diff_src", "dst_shape",
        ),
        Op(
            "convolution_backward_weights", CONVOLUTION, ("src", "diff_dst"),
            "diff_weights", "weights_shape",
        ),
        Op("conv_transpose", TRANSPOSED, ("src", "weights"), "dst", "dst_shape"),
        Op("conv_transpose_backward_data", TRANSPOSED, ("diff_dst", "weights"), "diff_src"),
        Op(
            "conv_transpose_backward_weights", TRANSPOSED, ("src", "diff_dst"),
            "diff_weights", "weights_shape",
        ),
    )
}  # fmt: skip
