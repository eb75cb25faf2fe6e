"""What is one layer: the shapes and attributes of a convolution, and the work it defines.

Two roles make the two families one: the *fine* tensor is the src of a convolution and the
dst of a transposed one, the *coarse* tensor is the other. The kernel is kept in one order,
(spatial..., fine channels per group, coarse channels), which is XIO for a convolution and
XOI for a transposed one; in channels-first runs it is (coarse, fine per group, spatial...),
which is OIX and IOX.

Nothing here is the library's: the workers of other engines do not load JAX, and `--library` times
other versions of the library.
"""

import dataclasses
import math
from dataclasses import dataclass

import numpy as np

FAMILIES = ("conv", "deconv")
OPS = ("forward", "data", "weights")  # the op and its two gradients
DTYPES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16", "f64": "float64"}
ITEMSIZE = {"f32": 4, "bf16": 2, "f16": 2, "f64": 8}
LAYOUTS = ("NXC", "NCX")

Ints = tuple[int, ...]


@dataclass(frozen=True)
class Layer:
    """A convolution or transposed convolution; every tuple has one int per spatial axis."""

    name: str
    network: str
    family: str  # conv or deconv
    batch: int
    groups: int
    src_channels: int
    dst_channels: int
    src_size: Ints
    dst_size: Ints
    kernel: Ints
    strides: Ints
    dilations: Ints  # 1 is a dense kernel
    pads_begin: Ints
    tags: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, fields: dict) -> "Layer":
        """The layer that `dataclasses.asdict` and JSON took apart."""
        return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()})

    @property
    def rank(self) -> int:
        return len(self.kernel)

    @property
    def fine_size(self) -> Ints:
        return self.src_size if self.family == "conv" else self.dst_size

    @property
    def coarse_size(self) -> Ints:
        return self.dst_size if self.family == "conv" else self.src_size

    @property
    def fine_channels(self) -> int:
        return self.src_channels if self.family == "conv" else self.dst_channels

    @property
    def coarse_channels(self) -> int:
        return self.dst_channels if self.family == "conv" else self.src_channels

    @property
    def fine_shape(self) -> Ints:
        return (self.batch, *self.fine_size, self.fine_channels)

    @property
    def coarse_shape(self) -> Ints:
        return (self.batch, *self.coarse_size, self.coarse_channels)

    @property
    def kernel_shape(self) -> Ints:
        return (*self.kernel, self.fine_channels // self.groups, self.coarse_channels)

    @property
    def extents(self) -> Ints:
        """The dilated kernel: dilation * (kernel - 1) + 1."""
        return tuple(d * (k - 1) + 1 for k, d in zip(self.kernel, self.dilations, strict=True))

    @property
    def pads_end(self) -> Ints:
        """What makes the geometry exact: S*(coarse - 1) + extent - fine - pads_begin.

        Negative where a convolution leaves elements unread at the high end, or where a
        transposed one has output padding.
        """
        return tuple(
            s * (c - 1) + e - f - p
            for f, c, s, e, p in zip(
                self.fine_size,
                self.coarse_size,
                self.strides,
                self.extents,
                self.pads_begin,
                strict=True,
            )
        )

    def operand_shapes(self, op: str) -> tuple[Ints, Ints]:
        """Shapes of the two inputs of `op`, channels last: (src, weights), (diff_dst, weights)
        or (src, diff_dst)."""
        src, dst = self.fine_shape, self.coarse_shape
        if self.family == "deconv":
            src, dst = dst, src
        return {
            "forward": (src, self.kernel_shape),
            "data": (dst, self.kernel_shape),
            "weights": (src, dst),
        }[op]

    def result_shape(self, op: str) -> Ints:
        """Shape of the output of `op`, channels last."""
        if op == "weights":
            return self.kernel_shape
        return self.operand_shapes("data" if op == "forward" else "forward")[0]

    def terms(self, op: str) -> int:
        """The most products that one element of the result sums."""
        taps = [len(tap_range(self, a)) for a in range(self.rank)]
        if op == "weights":
            return self.batch * math.prod(self.coarse_size)
        if (op == "forward") == (self.family == "conv"):  # the coarse tensor is computed
            return math.prod(taps) * self.fine_channels // self.groups
        per_axis = [math.ceil(t / s) for t, s in zip(taps, self.strides, strict=True)]
        return math.prod(per_axis) * self.coarse_channels // self.groups

    @property
    def flops(self) -> int:
        """Multiplications and additions that the geometry defines; padding is not counted.

        The same for the op and both of its gradients.
        """
        pairs = math.prod(int(taps_read(self, a).sum()) for a in range(self.rank))
        return 2 * self.batch * self.fine_channels // self.groups * self.coarse_channels * pairs

    def bytes(self, op: str, dtype: str) -> int:
        """Bytes of the two inputs and the output, each moved once."""
        shapes = (*self.operand_shapes(op), self.result_shape(op))
        return ITEMSIZE[dtype] * sum(math.prod(s) for s in shapes)

    def with_batch(self, batch: int) -> "Layer":
        return dataclasses.replace(self, batch=batch)


def taps_read(layer: Layer, axis: int) -> np.ndarray:
    """For each (coarse position, tap) of an axis: does it read inside the fine tensor?"""
    q = layer.strides[axis] * np.arange(layer.coarse_size[axis])[:, None]
    k = layer.dilations[axis] * np.arange(layer.kernel[axis])[None, :]
    at = q + k - layer.pads_begin[axis]
    return (at >= 0) & (at < layer.fine_size[axis])


def tap_range(layer: Layer, axis: int) -> list[int]:
    """The taps of an axis that read anything at all."""
    return np.flatnonzero(taps_read(layer, axis).any(axis=0)).tolist()


def layer_class(layer: Layer) -> str:
    """The class a layer is summarised under: what decides which code is fast."""
    per_group = min(layer.fine_channels, layer.coarse_channels) // layer.groups
    if layer.groups > 1:
        kind = "depthwise" if per_group == 1 else "grouped"
    elif math.prod(layer.kernel) == 1:
        kind = "pointwise"
    else:
        kind = "dense"
    transposed = "transposed " if layer.family == "deconv" else ""
    return f"{transposed}{kind} {layer.rank}-D"
