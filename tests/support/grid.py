"""A few hundred small named cases over the six operations; the same ones in every run.

For each operation, every value of every factor below meets every value of every other one
(pairwise covering). Within a value the numbers are drawn at random, different on every axis.
"""

import itertools
import random
from dataclasses import dataclass
from functools import partial

import jax.numpy as jnp
import numpy as np

from tests.support import oracle
from tests.support.forms import OPS

PER_OP = 44  # at least, before the rare ones
SPELLINGS = {
    "none": (None, "none", "NONE", "NOTSET", "notset", "explicit", "Explicit"),
    "valid": ("valid", "VALID"),
    "same_upper": ("same_upper", "SAME_UPPER", "Same_Upper"),
    "same_lower": ("same_lower", "SAME_LOWER", "Same_Lower"),
}
DEFAULTS = {
    "strides": 1,
    "pads_begin": 0,
    "pads_end": 0,
    "dilations": 1,
    "auto_pad": "none",
    "groups": 1,
    "data_format": "NXC",
    "output_padding": 0,
}
SHAPE_KINDS = {"tuple": tuple, "list": list, "numpy": np.array, "jax": jnp.array}


@dataclass(frozen=True)
class Case:
    """One call of one operation; src, weights and dst are those of its forward operation."""

    name: str
    op: str
    attributes: dict[str, object]  # as a user writes them, without weights_shape and dst_shape
    axes: tuple[oracle.Axis, ...]
    src_shape: tuple[int, ...]
    weights_shape: tuple[int, ...]
    dst_shape: tuple[int, ...]
    given_shape: str | None  # how the shape argument is given, if it is
    bias: bool

    @property
    def transposed(self):
        return self.op.startswith("conv_transpose")

    @property
    def input_shapes(self):
        """The shapes of the arrays that the operation takes, a bias included."""
        if self.op.endswith("backward_data"):
            return self.dst_shape, self.weights_shape
        if self.op.endswith("backward_weights"):
            return self.src_shape, self.dst_shape
        bias_shape = (self.channels(self.dst_shape),)
        return self.src_shape, self.weights_shape, *([bias_shape] if self.bias else [])

    @property
    def result_shape(self):
        if self.op.endswith("backward_data"):
            return self.src_shape
        return self.weights_shape if self.op.endswith("backward_weights") else self.dst_shape

    @property
    def data_format(self):
        return self.attributes.get("data_format", "NXC")

    @property
    def weights_format(self):
        return self.attributes.get("weights_format", "XOI" if self.transposed else "XIO").upper()

    @property
    def letters(self):
        """The axes of the first array, of the second and of the result, one letter each."""
        rank = "X" * len(self.axes)
        data = self.data_format.replace("X", rank)
        weights = self.weights_format.replace("X", rank)
        if self.op.endswith("backward_weights"):
            return data, data, weights
        return data, weights, data

    def channels(self, shape):
        return shape[-1] if self.data_format == "NXC" else shape[1]

    def bind(self, module, **more):
        """The operation of `module`, the package or the oracle, as a function of its arrays."""
        if self.given_shape:
            argument = "weights_shape" if self.op.endswith("weights") else "dst_shape"
            more[argument] = SHAPE_KINDS[self.given_shape](self.result_shape)
        return partial(getattr(module, self.op), **self.attributes, **more)


# Factors: what may be chosen independently, by name.


def factors(op):
    """The values of each factor that concern an operation."""
    transposed = op.startswith("conv_transpose")
    values = {
        "rank": ("1", "2", "3"),
        "data_format": ("NXC", "NCX"),
        "weights_format": ("OIX", "XIO", "IOX", "XOI"),
        "channels": ("one group", "groups", "depthwise", "depthwise x2", "depthwise x3"),
        "auto_pad": tuple(SPELLINGS),
        "kernel": ("one", "uneven", "long"),
        "strides": ("one", "uneven", "beyond the kernel"),
        "dilations": ("one", "uneven"),
        "pads": ("zero", "empty", "uneven", "long begin", "long end"),
        "spelling": ("int", "tuple", "list"),
        "batch": ("1", "2", "3"),
    }
    if transposed:  # in these the weights of several groups have two readings
        values["reading"] = ("all src channels", "all dst channels")
    if transposed or op == "convolution_backward_data":
        values["output_padding"] = ("zero", "some", "beyond the stride")
    if op.endswith("weights"):
        values["given_shape"] = tuple(SHAPE_KINDS)
    elif op in ("convolution_backward_data", "conv_transpose"):
        values["given_shape"] = ("", *SHAPE_KINDS)
    if op in ("convolution", "conv_transpose"):
        values["bias"] = ("", "bias")
    return values


def covering(values, rng):
    """Rows in which each two values of different factors meet at least once."""

    def pairs(row):
        return set(itertools.combinations(row.items(), 2))

    missing = set()
    for (one, ones), (other, others) in itertools.combinations(values.items(), 2):
        missing |= {((one, a), (other, b)) for a in ones for b in others}
    while missing:
        pair = dict(rng.choice(sorted(missing)))
        rows = [{name: rng.choice(of) for name, of in values.items()} | pair for _ in range(50)]
        best = max(rows, key=lambda row: len(pairs(row) & missing))
        missing -= pairs(best)
        yield best


def cases_of(op):
    """Covering cases, more with explicit pads, and some with four axes or an empty batch."""
    rng = random.Random(op)
    values = factors(op)

    def draw():
        return {name: rng.choice(of) for name, of in values.items()}

    rows = list(covering(values, rng))
    rows += [draw() | {"auto_pad": "none"} for _ in range(len(rows), PER_OP)]
    flat = {
        "rank": "4",
        "kernel": "uneven",
        "strides": "uneven",
        "dilations": "one",
        "pads": "uneven",
    }
    flat |= {"output_padding": "some"} if "output_padding" in values else {}
    for rare in (flat, flat, {"batch": "0"}, {"batch": "0"}):
        rows.append(draw() | rare)
    return [build(op, index, row, rng) for index, row in enumerate(rows)]


# Numbers: from a row of factor values to a case.


def build(op, index, row, rng):
    """Draw numbers for a row until its sizes fit."""
    for _ in range(1000):
        kernel, numbers = draw_numbers(row, rng)
        axes = draw_axes(op, row, kernel, numbers, rng)
        if axes:
            break
    else:
        raise RuntimeError(f"no sizes fit {op}, {row}")
    groups, ic, oc = draw_channels(row["channels"], rng)
    fine, coarse = ([getattr(axis, role) for axis in axes] for role in ("fine", "coarse"))
    src, dst = (coarse, fine) if "reading" in row else (fine, coarse)
    return Case(
        name=f"{op}-{index:02d}-{row['rank']}d-{row['data_format']}-{row['weights_format']}"
        f"-g{groups}-{row['auto_pad']}",
        op=op,
        attributes=spell(row, numbers | {"groups": groups}, rng),
        axes=axes,
        src_shape=data_shape(row, groups * ic, src),
        weights_shape=weights_shape(row, groups, ic, oc, kernel),
        dst_shape=data_shape(row, groups * oc, dst),
        given_shape=row.get("given_shape") or None,
        bias=bool(row.get("bias")),
    )


def draw_numbers(row, rng):
    """The kernel's sizes and the attributes, of each a list of one number per axis."""
    rank = int(row["rank"])
    alike = rank == 1 or row["spelling"] == "int"

    def several(*numbers):
        """Not the same on all axes, or else not the least."""
        drawn = [rng.choice(numbers) for _ in range(rank)]
        if alike:
            return [rng.choice(numbers[1:])] * rank
        return drawn if len(set(drawn)) > 1 else several(*numbers)

    def largest(numbers):
        return [max(numbers)] * rank if alike else numbers

    one, zero = [1] * rank, [0] * rank
    kernels = {"one": (1,) * rank, "uneven": (1, 2, 3, 4)[rank == 1 :], "long": (2, 4, 3, 5)}
    kernel = rng.sample(kernels[row["kernel"]][: max(rank, 3)], rank)
    dilations = one if row["dilations"] == "one" else several(1, 2, 3)
    strides = one if row["strides"] == "one" else several(1, 2, 3, 4)
    if row["strides"] == "beyond the kernel":
        strides = largest([size + rng.randint(1, 2) for size in kernel])
    begin, end = ([], []) if row["pads"] == "empty" else (zero, zero)
    if row["pads"] == "uneven":
        while begin == end:
            begin, end = several(0, 1, 2, 3), several(0, 1, 2, 3)
    elif row["pads"].startswith("long"):  # longer than the kernel reaches
        begin = largest([d * (k - 1) + 2 for k, d in zip(kernel, dilations, strict=True)])
        end = several(0, 1, 2)
        begin, end = (begin, end) if row["pads"] == "long begin" else (end, begin)
    numbers = {"strides": strides, "dilations": dilations, "pads_begin": begin, "pads_end": end}
    if "output_padding" in row:
        extra = {
            "zero": zero,
            "some": several(0, 1, 2),
            "beyond the stride": largest([stride + rng.randint(1, 2) for stride in strides]),
        }
        numbers["output_padding"] = extra[row["output_padding"]]
    return kernel, numbers


def draw_axes(op, row, kernel, numbers, rng):
    """Axes, neighbours of different sizes, found by trial; None if that fails."""
    largest = {1: 14, 2: 12, 3: 9, 4: 6}[len(kernel)]
    optional = op in ("convolution_backward_data", "conv_transpose")
    takes_fine = bool(row["given_shape"]) if optional else True
    takes_coarse = op not in ("convolution", "conv_transpose_backward_data")
    axes = []
    zeros = [0] * len(kernel)
    for k, s, d, begin, end, extra in zip(
        kernel,
        numbers["strides"],
        numbers["dilations"],
        numbers["pads_begin"] or zeros,
        numbers["pads_end"] or zeros,
        numbers.get("output_padding", zeros),
        strict=True,
    ):
        for _ in range(100):
            fine = rng.randint(1, largest) if takes_fine else None
            coarse = rng.randint(1, largest) if takes_coarse else None
            pads, mode = (begin, end), row["auto_pad"]
            try:
                axis = oracle.fit_axis(op, fine, k, coarse, s, d, pads, mode, extra)
            except ValueError:
                continue
            tiny = min(axis.fine, axis.coarse) == 1 and rng.random() < 0.9
            huge = axis.fine > largest + 4 or axis.rest > s + 3 or axis.pad_begin > d * k + 2
            if (
                not tiny
                and not huge
                and meets(axis)
                and axis.fine not in [last.fine for last in axes[-1:]]
            ):
                axes.append(axis)
                break
        else:
            return None
    return tuple(axes)


def meets(axis):
    """Whether the kernel meets the fine axis at all, not only its padding."""
    reached = itertools.product(range(axis.coarse), range(axis.kernel))
    at = (axis.stride * q + axis.dilation * tap - axis.pad_begin for q, tap in reached)
    return any(0 <= position < axis.fine for position in at)


def draw_channels(kind, rng):
    """Groups, and the src and dst channels of one group."""
    if kind == "one group":
        return 1, *rng.choice(((3, 2), (2, 5), (1, 3), (4, 1)))
    if kind == "groups":
        return rng.choice(((2, 3, 2), (3, 2, 3), (2, 2, 1), (4, 2, 3)))
    if kind == "many groups":
        return rng.choice((5, 16)), rng.choice((1, 2, 7)), rng.choice((1, 3))
    return rng.randint(2, 4), 1, int(kind[-1]) if kind[-1].isdigit() else 1


def data_shape(row, channels, sizes):
    inner = (*sizes, channels) if row["data_format"] == "NXC" else (channels, *sizes)
    return (int(row["batch"]), *inner)


def weights_shape(row, groups, ic, oc, kernel):
    """Of src and dst channels, one axis holds those of all groups."""
    if row.get("reading") == "all src channels":
        channels = {"I": (groups * ic,), "O": (oc,)}
    else:
        channels = {"I": (ic,), "O": (groups * oc,)}
    return sum(((channels | {"X": tuple(kernel)})[letter] for letter in row["weights_format"]), ())


def spell(row, numbers, rng):
    """The attributes as a user may write them; with plain ints, defaults are left out."""
    form = {"int": lambda each: each[0] if each else [], "tuple": tuple, "list": list}
    spelled = {
        name: form[row["spelling"]](value) if isinstance(value, list) else value
        for name, value in numbers.items()
    }
    weights_format = row["weights_format"]
    spelled |= {
        "auto_pad": rng.choice(SPELLINGS[row["auto_pad"]]),
        "data_format": row["data_format"],
        "weights_format": rng.choice((weights_format, weights_format.lower())),
    }
    defaults = DEFAULTS | {"weights_format": "XOI" if "reading" in row else "XIO"}
    if row["spelling"] == "int":
        spelled = {name: value for name, value in spelled.items() if value != defaults[name]}
    return spelled


CASES = [case for op in OPS for case in cases_of(op)]
