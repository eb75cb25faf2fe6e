"""The six operations: the tensors that each takes, its result, and their slots."""

from dataclasses import dataclass
from typing import TypeVar

from jaxconv._base.geometry import OPERANDS, Slot

T = TypeVar("T")


@dataclass(frozen=True)
class Op:
    """The properties that tell an operation from the other five."""

    name: str
    inputs: tuple[str, str]
    result: str
    shape_argument: str | None = None
    #: whether src is the coarse tensor and dst the fine tensor
    transposed: bool = False

    def slot(self, tensor: str) -> Slot:
        """The slot of a tensor of this name, or of what it differentiates."""
        forward = tensor.removeprefix("diff_")
        if forward == "weights":
            return "kernel"
        return "coarse" if (forward == "src") == self.transposed else "fine"

    def order_by_slot(self, pair: tuple[T, T]) -> tuple[T, T]:
        """Put a pair that belongs to the inputs in the order in which contractions take slots."""
        slots = self.slot(self.inputs[0]), self.slot(self.inputs[1])
        return pair if slots == OPERANDS[self.slot(self.result)] else pair[::-1]


OPS = {
    op.name: op
    for op in (
        Op("convolution", ("src", "weights"), "dst"),
        Op("convolution_backward_data", ("diff_dst", "weights"), "diff_src", "dst_shape"),
        Op("convolution_backward_weights", ("src", "diff_dst"), "diff_weights", "weights_shape"),
        Op("conv_transpose", ("src", "weights"), "dst", "dst_shape", transposed=True),
        Op("conv_transpose_backward_data", ("diff_dst", "weights"), "diff_src", transposed=True),
        Op(
            "conv_transpose_backward_weights", ("src", "diff_dst"), "diff_weights",
            "weights_shape", transposed=True,
        ),
    )
}  # fmt: skip
