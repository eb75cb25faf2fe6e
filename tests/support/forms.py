"""The six operations on tiny shapes, asymmetric in everything: for tests of transformations.

One form feeds all six: fine (n, 7, 6, 4), kernel (3, 2) and coarse (n, 3, 6, 6), with strides,
dilations and pads that differ between the axes and leave a remainder of one.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

import jax
import numpy as np
import pytest

import jaxconv

#: op -> the slots of its two arguments, and of its result.
ROLES = {
    "convolution": ("fine", "kernel", "coarse"),
    "convolution_backward_data": ("coarse", "kernel", "fine"),
    "convolution_backward_weights": ("fine", "coarse", "kernel"),
    "conv_transpose": ("coarse", "kernel", "fine"),
    "conv_transpose_backward_data": ("fine", "kernel", "coarse"),
    "conv_transpose_backward_weights": ("coarse", "fine", "kernel"),
}
OPS = list(ROLES)

#: An operation for each slot that a contraction fills. Autodiff, vmap and shardings know slots
#: alone: where they are asked about, the other three operations would be the same contractions.
EACH_SLOT = ["convolution", "conv_transpose", "convolution_backward_weights"]

#: Those that, with their gradients, fill all three slots.
FORWARD = ["convolution", "conv_transpose"]

# Two formats for each way to write the tensors down: (data, convolution's, conv_transpose's).
CHANNELS_LAST = ("NXC", "XIO", "XOI")
CHANNELS_FIRST = ("NCX", "OIX", "IOX")


@dataclass(frozen=True)
class Form:
    """Sizes and attributes that the six operations share."""

    batch: int = 3
    fine: tuple[int, ...] = (7, 6)
    kernel: tuple[int, ...] = (3, 2)
    strides: tuple[int, ...] = (2, 1)
    dilations: tuple[int, ...] = (1, 2)
    pads_begin: tuple[int, ...] = (1, 0)
    pads_end: tuple[int, ...] = (0, 2)
    channels: tuple[int, int] = (4, 6)  # fine, coarse
    groups: int = 1
    formats: tuple[str, str, str] = CHANNELS_LAST
    #: the kernel's fine axis has the channels of all groups, and its coarse one those of one
    published: bool = False

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        sizes = zip(
            self.fine, self.kernel, self.strides, self.dilations, self.pads_begin, self.pads_end,
            strict=True,
        )  # fmt: skip
        coarse = tuple((f + b + e - d * (k - 1) - 1) // s + 1 for f, k, s, d, b, e in sizes)
        fine_channels, coarse_channels = self.channels
        inner, outer = fine_channels // self.groups, coarse_channels
        if self.published:
            inner, outer = fine_channels, coarse_channels // self.groups
        if self.formats == CHANNELS_FIRST:
            return {
                "fine": (self.batch, fine_channels, *self.fine),
                "kernel": (outer, inner, *self.kernel),
                "coarse": (self.batch, coarse_channels, *coarse),
            }
        return {
            "fine": (self.batch, *self.fine, fine_channels),
            "kernel": (*self.kernel, inner, outer),
            "coarse": (self.batch, *coarse, coarse_channels),
        }

    def op(self, name: str, **more) -> Callable[..., jax.Array]:
        """An operation with all but its two arrays bound; `more` as the operation takes it."""
        return _bound(self, name, tuple(more.items()))

    def axis(self, slot: str, letter: str) -> int:
        """Where a tensor keeps its axis N, C, first X (data), I or O (kernel: fine, coarse)."""
        first = self.formats == CHANNELS_FIRST
        if slot == "kernel":
            order = "OI" if first else "IO"
            return order.index(letter) + (0 if first else len(self.kernel))
        channel = 1 if first else 1 + len(self.kernel)
        return {"N": 0, "X": 2 if first else 1, "C": channel}[letter]


# One function object for each operation and form, so that JAX's caches of traces serve
# all tests of a run.
@cache
def _bound(form: Form, name: str, more: tuple) -> Callable[..., jax.Array]:
    transposed = name.startswith("conv_transpose")
    shapes = form.shapes
    attributes = dict(more) | {
        "strides": form.strides,
        "pads_begin": form.pads_begin,
        "pads_end": form.pads_end,
        "dilations": form.dilations,
        "groups": form.groups,
        "data_format": form.formats[0],
        "weights_format": form.formats[2 if transposed else 1],
    }
    if name.endswith("backward_weights"):
        attributes["weights_shape"] = shapes["kernel"]
    elif name in ("convolution_backward_data", "conv_transpose"):
        # The batch is left to the arguments: this fixes no more than the implied padding.
        attributes["output_padding"] = _remainder(form)
    return partial(getattr(jaxconv, name), **attributes)


def _remainder(form: Form) -> tuple[int, ...]:
    sizes = zip(
        form.fine, form.kernel, form.strides, form.dilations, form.pads_begin, form.pads_end,
        strict=True,
    )  # fmt: skip
    return tuple((f + b + e - d * (k - 1) - 1) % s for f, k, s, d, b, e in sizes)


DENSE = Form()
GROUPED = replace(DENSE, groups=2, formats=CHANNELS_FIRST)
# Its strides become channels.
DIVIDED = replace(DENSE, kernel=(4, 2), strides=(2, 2), dilations=(1, 1), pads_begin=(1, 2))
# For the transposed family only, and in the layout that is theirs in other libraries.
PUBLISHED = replace(GROUPED, published=True)
FORMS = {"dense": DENSE, "grouped": GROUPED}


def each(argument: str, values: dict, slow: Sequence[str] = ()):
    """Parametrize by named values, of which those in `slow` are left to `-m slow`."""
    return pytest.mark.parametrize(
        argument,
        [
            pytest.param(value, id=name, marks=slow_if(name in slow))
            for name, value in values.items()
        ],
    )


def alternately(forms: dict, slow: Sequence[str] = ()):
    """Parametrize by forms, and in turn by the two operations of FORWARD."""
    return pytest.mark.parametrize(
        ("form", "name"),
        [
            pytest.param(form, name, id=f"{label}-{name}", marks=slow_if(label in slow))
            for (label, form), name in zip(forms.items(), itertools.cycle(FORWARD), strict=False)
        ],
    )


def slow_if(condition: bool) -> list:
    return [pytest.mark.slow] if condition else []


def integers(shape, seed: int, dtype=np.float32, limit: int = 4) -> np.ndarray:
    """Whole numbers in -limit..limit: sums of their products are exact."""
    drawn = np.random.default_rng((seed, *shape)).integers(-limit, limit, shape, endpoint=True)
    return drawn.astype(dtype)


def operands(form: Form, name: str, dtype=np.float32, limit: int = 4) -> tuple:
    """Two integer arguments for an operation, and a cotangent for its result."""
    shapes = form.shapes
    return tuple(
        integers(shapes[slot], seed, dtype, limit) for seed, slot in enumerate(ROLES[name])
    )


def compiled_together(function: Callable, arguments: dict[str, tuple]) -> dict[str, tuple]:
    """function(name, *arguments) of each operation, in one program: one compilation for all."""
    return jax.jit(lambda of: {name: function(name, *args) for name, args in of.items()})(arguments)
