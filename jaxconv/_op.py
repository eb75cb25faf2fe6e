"""The six operations: which tensors each takes, which it finds, and their roles."""

from dataclasses import dataclass

from jaxconv._geometry import Slot


@dataclass(frozen=True)
class Op:
    """What distinguishes one operation from the other five."""

    name: str
    inputs: tuple[str, str]
    result: str
    shape_argument: str | None = None

    @property
    def transposed(self) -> bool:
        """Whether src is the coarse tensor and dst the fine one."""
        return self.name.startswith("conv_transpose")

    def slot(self, tensor: str) -> Slot:
        """The role of a tensor of this name in the trilinear form."""
        if tensor.endswith("weights"):
            return "kernel"
        return "fine" if tensor.endswith("src") != self.transposed else "coarse"


OPS = {
    op.name: op
    for op in (
        Op("convolution", ("src", "weights"), "dst"),
        Op("convolution_backward_data", ("diff_dst", "weights"), "diff_src", "dst_shape"),
        Op("convolution_backward_weights", ("src", "diff_dst"), "diff_weights", "weights_shape"),
        Op("conv_transpose", ("src", "weights"), "dst", "dst_shape"),
        Op("conv_transpose_backward_data", ("diff_dst", "weights"), "diff_src"),
        Op("conv_transpose_backward_weights", ("src", "diff_dst"), "diff_weights", "weights_shape"),
    )
}
