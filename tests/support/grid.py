"""A few hundred small named cases over the six operations; the same ones in every run.

For each operation, every value of every factor below meets every value of every other one
(pairwise covering). The sizes are those of convolutions drawn by `small.py`.
"""

import inspect
import itertools
import random
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from math import prod

import jax.numpy as jnp
import numpy as np

import jaxconv
from tests.support import oracle, small
from tests.support.forms import OPS, ROLES, Form

PER_OP = 44  # at least, before the rare ones
SPELLINGS = {
    "none": (None, "none", "NONE", "NOTSET", "notset", "explicit", "Explicit"),
    "valid": ("valid", "VALID"),
    "same_upper": ("same_upper", "SAME_UPPER", "Same_Upper"),
    "same_lower": ("same_lower", "SAME_LOWER", "Same_Lower"),
}
SHAPE_KINDS = {"tuple": tuple, "list": list, "numpy": np.array, "jax": jnp.array}


@dataclass(frozen=True)
class Case:
    """One call of one operation."""

    name: str
    op: str
    form: Form
    attributes: dict[str, object]  # as a user writes them, without weights_shape and dst_shape
    given_shape: str | None  # how the shape argument is given, if it is
    bias: bool

    @property
    def input_shapes(self):
        """The shapes of the arrays that the operation takes, a bias included."""
        first, second, result = (self.form.shapes[slot] for slot in ROLES[self.op])
        channels = result[-1] if self.data_format == "NXC" else result[1]
        return first, second, *([(channels,)] if self.bias else [])

    @property
    def result_shape(self):
        return self.form.shapes[ROLES[self.op][2]]

    @property
    def data_format(self):
        return self.attributes.get("data_format", "NXC")

    @property
    def weights_format(self):
        return self.attributes.get("weights_format", default_format(self.op)).upper()

    @property
    def letters(self):
        """The axes of the first array, of the second and of the result, one letter each."""
        rank = "X" * self.form.rank
        data = self.data_format.replace("X", rank)
        weights = self.weights_format.replace("X", rank)
        if self.op.endswith("backward_weights"):
            return data, data, weights
        return data, weights, data

    def bind(self, module, **more):
        """The operation of `module`, the package or the oracle, as a function of its arrays."""
        if self.given_shape:
            argument = "weights_shape" if self.op.endswith("weights") else "dst_shape"
            more[argument] = SHAPE_KINDS[self.given_shape](self.result_shape)
        return partial(getattr(module, self.op), **self.attributes, **more)


def default_format(op):
    return "XOI" if op.startswith("conv_transpose") else "XIO"


# Factors: what may be chosen independently, by name.
def factors(op):
    """The values of each factor that concern an operation."""
    transposed = op.startswith("conv_transpose")
    values = {
        "rank": ("1", "2", "3"), "data_format": ("NXC", "NCX"),
        "weights_format": ("OIX", "XIO", "IOX", "XOI"), "auto_pad": tuple(SPELLINGS),
        "spelling": ("int", "tuple", "list"), "batch": ("1", "2", "3"),
    }  # fmt: skip
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
    formats = itertools.product(values["data_format"], values["weights_format"])
    for _, (data, weights) in zip(range(len(rows), PER_OP), itertools.cycle(formats), strict=False):
        rows.append(draw() | {"auto_pad": "none", "data_format": data, "weights_format": weights})
    rows += [draw() | rare for rare in ({"rank": "4"}, {"rank": "4"}, {"batch": "0"})]
    return [build(op, index, row, rng) for index, row in enumerate(rows)]


# Numbers: from a row of factor values to a case.
def build(op, index, row, rng):
    """Draw convolutions for a row until one fits."""
    transposed = op.startswith("conv_transpose")
    weights_format = row["weights_format"]
    if transposed:  # of a form, I is the fine axis
        weights_format = weights_format.translate(str.maketrans("IO", "OI"))
    for _ in range(1000):
        form, extra = draw_form(row, rng)
        numbers = form.attributes | ({"output_padding": extra} if "output_padding" in row else {})
        form = replace(
            form, batch=int(row["batch"]), formats=(row["data_format"], weights_format),
            published=row.get("reading") == "all dst channels",
        )  # fmt: skip
        form = fit(op, row, form, extra, rng)
        if form:
            break
    else:
        raise RuntimeError(f"no sizes fit {op}, {row}")
    return Case(
        name=f"{op}-{index:02d}-{row['rank']}d-{row['data_format']}-{row['weights_format']}"
        f"-g{form.groups}-{row['auto_pad']}",
        op=op, form=form, attributes=spell(op, row, numbers, rng),
        given_shape=row.get("given_shape") or None, bias=bool(row.get("bias")),
    )  # fmt: skip


def draw_form(row, rng):
    """A small convolution, of attributes that are alike on all axes if ints spell them."""
    rank = int(row["rank"])
    form = small.draw_one(rng, [rank], most_channels=4)
    extra = {"zero": [0], "some": (0, 1, 2)}.get(row.get("output_padding", "zero"))
    extra = tuple(rng.choice(extra or (stride + 1, stride + 2)) for stride in form.strides)
    if row["spelling"] == "int":
        names = ("strides", "dilations", "pads_begin", "pads_end")
        form = replace(form, **{name: getattr(form, name)[:1] * rank for name in names})
        extra = (max(extra),) * rank
    return form, extra


def fit(op, row, form, extra, rng):
    """The form with sizes and pads as the operation finds them; None if nothing fits, or much."""
    optional = op in ("convolution_backward_data", "conv_transpose")
    takes_fine = bool(row["given_shape"]) if optional else True
    takes_coarse = op not in ("convolution", "conv_transpose_backward_data")
    every_fine = range(1, small.LONGEST[form.rank] + 1) if takes_fine else [None]
    every_coarse = range(1, 9) if takes_coarse else [None]
    pads = zip(form.pads_begin, form.pads_end, strict=True)
    axes = []
    for k, s, d, pad, more in zip(
        form.kernel, form.strides, form.dilations, pads, extra, strict=True
    ):
        fitting = []
        for fine, coarse in itertools.product(every_fine, every_coarse):
            with suppress(ValueError):
                fitting.append(
                    oracle.fit_axis(op, fine, k, coarse, s, d, pad, row["auto_pad"], more)
                )
        if not fitting:
            return None
        axes.append(rng.choice(fitting))
    fine = tuple(axis.fine for axis in axes)
    begin = tuple(axis.pad_begin for axis in axes)
    high = tuple(axis.pad_end - axis.rest for axis in axes)
    form = replace(form, fine=fine, pads_begin=begin, pads_end=high)
    if max(prod(fine), prod(form.coarse)) > 700 or any(map(int.__eq__, fine, fine[1:])):
        return None
    return form if min(*form.coarse, *fine) > 1 or rng.random() < 0.1 else None


def spell(op, row, numbers, rng):
    """The attributes as a user may write them; with plain ints, defaults are left out."""
    form = {"int": lambda each: each[0], "tuple": tuple, "list": list}[row["spelling"]]
    spelled = {n: form(v) if isinstance(v, tuple) else v for n, v in numbers.items()}
    for name in ("pads_begin", "pads_end"):
        if not any(numbers[name]) and rng.random() < 0.5:
            spelled[name] = []
    spelled |= {
        "auto_pad": rng.choice(SPELLINGS[row["auto_pad"]]),
        "data_format": row["data_format"],
        "weights_format": rng.choice((row["weights_format"], row["weights_format"].lower())),
    }
    if row["spelling"] == "int":
        known = inspect.signature(getattr(jaxconv, op)).parameters
        spelled = {name: value for name, value in spelled.items() if value != known[name].default}
    return spelled


CASES = [case for op in OPS for case in cases_of(op)]
