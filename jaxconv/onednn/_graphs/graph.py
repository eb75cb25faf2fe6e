"""A graph: nodes, the tensors that join nodes, inputs and outputs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

from jaxconv._base.typing import DType, Extent, Shape

#: The name of a type in a dump -> the type of an array.
DTYPES: dict[str, DType] = {
    "f32": np.dtype(np.float32),
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f16": np.dtype(np.float16),
    "s8": np.dtype(np.int8),
    "u8": np.dtype(np.uint8),
    "s32": np.dtype(np.int32),
    "boolean": np.dtype(np.bool_),
}
UNKNOWN = "undef"


@dataclass(frozen=True)
class Tensor:
    """A logical tensor. Its strides are not kept: an array has its elements in any order."""

    id: int
    dtype: str
    #: A negative extent is unknown before the graph runs.
    shape: tuple[int, ...]
    name: str = ""

    @property
    def known(self) -> bool:
        """Whether all extents are known."""
        return min(self.shape, default=0) >= 0

    def __str__(self) -> str:
        return f"{self.id}: {self.dtype} {self.shape}"

    def fits(self, shape: Shape, dtype: DType | None) -> bool:
        """Whether this shape and type, as far as they are known, may be those of this tensor."""
        return (
            (dtype is None or DTYPES.get(self.dtype, dtype) == dtype)
            and len(shape) == len(self.shape)
            and all(n < 0 or n == m or _unknown(m) for n, m in zip(self.shape, shape, strict=True))
        )


def _unknown(extent: Extent) -> bool:
    return isinstance(extent, int) and extent < 0


@dataclass(frozen=True)
class Node:
    """An operation: its kind, its attributes as they stand in the file, its tensors."""

    id: int
    name: str
    kind: str
    attributes: Mapping[str, Any]
    inputs: tuple[Tensor, ...]
    outputs: tuple[Tensor, ...]
    #: The nodes that are computed together with this convolution, in order; see `partitions.py`.
    followers: tuple["Node", ...] = ()

    @property
    def chain(self) -> tuple["Node", ...]:
        """The nodes that are computed together, in order."""
        return (self, *self.followers)

    @property
    def names(self) -> str:
        """The names of these nodes, as in "CONV_0 + RELU_1"."""
        return " + ".join(node.name or str(node.id) for node in self.chain)

    def __str__(self) -> str:
        return f"node {self.id} {self.name!r} ({self.kind})"


@dataclass(frozen=True)
class Graph:
    """A graph as it was read; see `jaxconv.onednn.load_graph`."""

    #: Each node after the nodes that compute its inputs, and otherwise in the order of the file.
    nodes: tuple[Node, ...]
    #: The input ports, or else the tensors that a node reads and no node computes.
    inputs: tuple[Tensor, ...]
    #: The output ports, or else the tensors that a node computes and no node reads.
    outputs: tuple[Tensor, ...]
    fpmath_mode: str = "strict"

    def __str__(self) -> str:
        lines = [f"{len(self.nodes)} nodes, fpmath_mode {self.fpmath_mode}"]
        for title, tensors in (("in ", self.inputs), ("out", self.outputs)):
            lines += [f"  {title}  {tensor}" for tensor in tensors]
        for node in self.nodes:
            read, found = (", ".join(map(str, t)) for t in (node.inputs, node.outputs))
            lines.append(f"  {node}\n    {read}  ->  {found or 'nothing'}")
        return "\n".join(lines)
