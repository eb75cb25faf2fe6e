"""What is one layer: the sizes of a convolution, its name, and the work that it defines.

The sizes are `jaxconv._checks.layer.Layer`. That file is loaded by path: workers of other engines
do without JAX, which `import jaxconv` loads, and `--path` times other versions.

Two roles make the two families one: the *fine* tensor is the src of a convolution and the
dst of a transposed one, the *coarse* tensor is the other. The kernel is kept in one order,
(spatial..., fine channels per group, coarse channels), which is XIO for a convolution and
XOI for a transposed one; in channels-first runs it is (coarse, fine per group, spatial...),
which is OIX and IOX.
"""

import importlib.util
import math
import sys
from dataclasses import dataclass
from pathlib import Path

import numpy as np

FAMILIES = ("conv", "deconv")
OPS = ("forward", "data", "weights")  # the op and its two gradients
DTYPES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16", "f64": "float64"}
ITEMSIZE = {"f32": 4, "bf16": 2, "f16": 2, "f64": 8}
LAYOUTS = ("NXC", "NCX")

Ints = tuple[int, ...]


_PATH = Path(__file__).parents[1] / "jaxconv" / "_checks" / "layer.py"
_spec = importlib.util.spec_from_file_location("benchmarks._layer", _PATH)
checks = sys.modules[_spec.name] = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(checks)


@dataclass(frozen=True, kw_only=True)
class Layer(checks.Layer):
    """A convolution or transposed convolution with a name, of a network."""

    family: str  # conv or deconv
    name: str = ""
    network: str = ""
    tags: tuple[str, ...] = ()
    members: int = 1  # of an ensemble, each with operands of its own

    @classmethod
    def of(cls, src: tuple[Ints, int], dst: tuple[Ints, int], **sizes) -> "Layer":
        """The layer between two tensors, each with its extents and its channels.

        Of all other sizes, the pads at the end are left out: they make the geometry exact, and are
        negative where a convolution leaves elements unread, or where a transposed one has output
        padding.
        """
        fine, coarse = (src, dst) if sizes["family"] == "conv" else (dst, src)
        given = (sizes[name] for name in ("kernel", "strides", "dilations", "pads_begin"))
        axes = zip(coarse[0], fine[0], *given, strict=True)
        ends = tuple(s * (c - 1) + d * (k - 1) + 1 - f - p for c, f, k, s, d, p in axes)
        return cls(fine=fine[0], channels=(fine[1], coarse[1]), pads_end=ends, **sizes)

    @classmethod
    def from_json(cls, fields: dict) -> "Layer":
        """The layer that `dataclasses.asdict` and JSON took apart."""
        return cls(**{k: tuple(v) if isinstance(v, list) else v for k, v in fields.items()})

    @property
    def ends(self) -> tuple[tuple[Ints, int], tuple[Ints, int]]:
        """Src and dst, each with its extents and its channels."""
        fine, coarse = zip((self.fine, self.coarse), self.channels, strict=True)
        return (fine, coarse) if self.family == "conv" else (coarse, fine)

    def op_shapes(self, op: str) -> tuple[Ints, ...]:
        """Shapes of the two inputs of `op`, (src, weights), (diff_dst, weights) or (src, diff_dst),
        and of its output, channels last."""
        return tuple(self.shapes[slot] for slot in self.slots(op))

    def slots(self, op: str) -> tuple[str, str, str]:
        """Which tensors the two inputs of `op` and its output are."""
        src, dst = ("fine", "coarse") if self.family == "conv" else ("coarse", "fine")
        return {
            "forward": (src, "kernel", dst),
            "data": (dst, "kernel", src),
            "weights": (src, dst, "kernel"),
        }[op]

    @property
    def flops(self) -> int:
        """Multiplications and additions that the geometry defines; padding is not counted.

        The same for the op and both of its gradients.
        """
        pairs = 1
        axes = (self.fine, self.kernel, self.coarse, self.strides, self.dilations, self.pads_begin)
        for fine, taps, coarse, stride, dilation, pad in zip(*axes, strict=True):
            read = stride * np.arange(coarse)[:, None] + dilation * np.arange(taps) - pad
            pairs *= int(((read >= 0) & (read < fine)).sum())
        fine, coarse = self.channels
        return 2 * self.batch * fine // self.groups * coarse * pairs


def layer_class(layer: Layer) -> str:
    """The class a layer is summarised under: what decides which code is fast."""
    per_group = min(layer.channels) // layer.groups
    if layer.groups > 1:
        kind = "depthwise" if per_group == 1 else "grouped"
    elif math.prod(layer.kernel) == 1:
        kind = "pointwise"
    else:
        kind = "dense"
    transposed = "transposed " if layer.family == "deconv" else ""
    return f"{transposed}{kind} {layer.rank}-D"
