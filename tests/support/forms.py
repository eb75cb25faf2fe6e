"""The six operations on tiny shapes, asymmetric in everything: for tests of transformations.

One form feeds all six: fine (n, 7, 6, 4), kernel (3, 2) and coarse (n, 3, 6, 6), with strides,
dilations and pads that differ between the axes and leave a remainder of one.
"""

import itertools
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial

import jax
import numpy as np
import pytest

import jaxconv
from jaxconv._checks.layer import Layer
from tests.support import oracle

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

# (data, a convolution's weights); a transposed convolution's have I and O the other way round.
CHANNELS_LAST = ("NXC", "XIO")
CHANNELS_FIRST = ("NCX", "OIX")


@dataclass(frozen=True)
class Form(Layer):
    """A layer in some formats; its shapes are in these formats too."""

    formats: tuple[str, str] = CHANNELS_LAST
    #: the kernel's fine axis has the channels of all groups, and its coarse one those of one
    published: bool = False

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        last = super().shapes
        if self.published:
            *spatial, fine, coarse = last["kernel"]
            last["kernel"] = (*spatial, fine * self.groups, coarse // self.groups)
        orders = self.orders(*self.formats, transposed=False)
        return {slot: tuple(last[slot][at] for at in order) for slot, order in orders.items()}

    def op(self, name: str, **more) -> Callable[..., jax.Array]:
        """An operation with all but its two arrays bound; `more` as the operation takes it."""
        return _bound(self, name, tuple(more.items()))

    def exact(self, name: str, *arrays) -> np.ndarray:
        """What an operation makes of its arrays, by the oracle."""
        return getattr(oracle, name)(*arrays, **self.op(name).keywords)

    def exact_gradients(self, name: str, a, b, t) -> list[np.ndarray]:
        """What it makes of the cotangent of its result, by the oracle."""
        return [self.exact(other, *taken(a, b, t)) for other, taken in derivatives(name)]

    def exact_with_gradients(self, name: str, a, b, t) -> list[np.ndarray]:
        """Both, by the oracle."""
        return [self.exact(name, a, b), *self.exact_gradients(name, a, b, t)]

    def axis(self, slot: str, letter: str) -> int:
        """Where a tensor keeps its axis N, C, first X (data), I or O (kernel: fine, coarse)."""
        letters = self.formats[slot == "kernel"]
        after_x = "X" in letters[: letters.index(letter)]
        return letters.index(letter) + after_x * (self.rank - 1)


def derivatives(name: str) -> list[tuple[str, Callable]]:
    """Those of an operation by its two arguments: operations of the same family.

    With each, how the operation takes its arguments from a, b and the result's cotangent t.
    """
    slots, family = ROLES[name], name.split("_backward")[0]

    def taking(wanted):
        return lambda *abt: tuple(abt[slots.index(slot)] for slot in wanted)

    return [
        (other, taking(ROLES[other][:2]))
        for sought in slots[:2]
        for other in OPS
        if other.split("_backward")[0] == family and ROLES[other][2] == sought
    ]


def gradients(op: Callable, a, b, t) -> tuple:
    """The cotangents of both arguments."""
    return jax.vjp(op, a, b)[1](t)


def with_gradients(op: Callable, a, b, t) -> tuple:
    """The result, and the cotangents of both arguments."""
    return op(a, b), *gradients(op, a, b, t)


def assert_equal(found: Iterable, expected: Iterable) -> None:
    """That arrays are equal, one by one."""
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_array_equal(x, y)


# One function object for each operation and form, so that JAX's caches of traces serve
# all tests of a run.
@cache
def _bound(form: Form, name: str, more: tuple) -> Callable[..., jax.Array]:
    transposed = name.startswith("conv_transpose")
    data_format, weights_format = form.formats
    if transposed:
        weights_format = weights_format.translate(str.maketrans("IO", "OI"))
    attributes = form.attributes | {"data_format": data_format, "weights_format": weights_format}
    attributes |= dict(more)
    if name.endswith("backward_weights"):
        attributes["weights_shape"] = form.shapes["kernel"]
    if transposed or name == "convolution_backward_data":
        # The batch is left to the arguments: this fixes no more than the implied padding.
        attributes["output_padding"] = form.output_padding
    return partial(getattr(jaxconv, name), **attributes)


DENSE = Form((7, 6), (3, 2), (2, 1), (1, 2), (1, 0), (0, 2), (4, 6), batch=3)
GROUPED = replace(DENSE, groups=2, formats=CHANNELS_FIRST)
# Its strides become channels.
DIVIDED = replace(DENSE, kernel=(4, 2), strides=(2, 2), dilations=(1, 1), pads_begin=(1, 2))
# For the transposed family only, and in the layout that is theirs in other libraries.
PUBLISHED = replace(GROUPED, published=True)
FORMS = {"dense": DENSE, "grouped": GROUPED}


#: A form for each of EACH_SLOT, where each with each would only take longer.
OF_SLOTS = {"grouped": GROUPED, "divided": DIVIDED, "dense": DENSE}


each_op = pytest.mark.parametrize("name", OPS)
each_slot = pytest.mark.parametrize("name", EACH_SLOT)
each_slot_in_a_form = pytest.mark.parametrize(
    ("name", "form"), list(zip(EACH_SLOT, OF_SLOTS.values(), strict=True)), ids=EACH_SLOT
)


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
