"""Partitions of graphs: a convolution and steps that follow, as a table with their formulas."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np

from tests.support import oracle
from tests.support.activations import FORMULAS
from tests.support.forms import GROUPED
from tests.support.graphs import graph, integers, node, tensor

TYPES = {"f32": np.float32, "bf16": jnp.bfloat16, "f16": np.float16}
FORM = replace(GROUPED, fine=(7, 5), dilations=(1, 1), batch=2)
#: kind: the operation, the slots of src and dst, and the convolution
FORMS = {
    "Convolution": ("convolution", "fine", "coarse", FORM),
    "ConvTranspose": ("conv_transpose", "coarse", "fine", replace(FORM, fine=(6, 4))),
}
#: Tensors by id. The convolution computes DST, and the followers compute 10, 11, ...
SRC, TAPS, BIAS, DST, OTHER, CHANNELS, NUMBER, SCALE, VARIANCE = range(9)


def find(kind, data_format):
    """The operation with its attributes, and the shape of each tensor that is an input, or DST."""
    name, src, dst, form = FORMS[kind]
    form = replace(form, formats=(data_format, "XIO"))
    dst, channels = form.shapes[dst], form.channels[name == "convolution"]
    vectors = dict.fromkeys((BIAS, CHANNELS, SCALE, VARIANCE), (channels,))
    shapes = {SRC: form.shapes[src], TAPS: form.shapes["kernel"], DST: dst, OTHER: dst}
    return form.op(name), shapes | {NUMBER: (1, 1, 1, 1)} | vectors


def make(*steps, kind="Convolution", dtype="f32", data_format="NXC", reads=(SRC, TAPS), **more):
    """A convolution, and a node for each step: a kind, the tensors it reads, attributes."""
    operation, shapes = find(kind, data_format)

    def read(i):
        return tensor(i, *shapes.get(i, shapes[DST]), dtype=dtype)

    nodes = [node(0, kind, [*map(read, reads)], read(DST), **operation.keywords)]
    for place, (step, ids, *given) in enumerate(steps):
        attributes = dict(*given)
        if step in ("BiasAdd", "BatchNormInference"):
            attributes["data_format"] = data_format
        nodes.append(node(place + 1, step, [*map(read, ids)], read(10 + place), **attributes))
    return graph(*nodes, **more)


#: name: (steps, what the operation is told, the formula of sums and of other tensors by id)
CASES = {
    "bias, relu": (
        [("BiasAdd", [DST, CHANNELS]), ("ReLU", [10])], ["bias", "relu"],
        lambda x, v: np.maximum(x + v[CHANNELS], 0),
    ),
    "bias, sum, relu": (
        [("BiasAdd", [DST, CHANNELS]), ("Add", [10, OTHER]), ("ReLU", [11])],
        ["bias", "residual", "relu"],
        lambda x, v: np.maximum(x + v[CHANNELS] + v[OTHER], 0),
    ),
    "sum from the left": ([("Add", [OTHER, DST])], ["residual"], lambda x, v: x + v[OTHER]),
    "own bias, relu6": (
        [("Clamp", [DST], {"min": 0.0, "max": 6.0})], ["bias", "relu6"],
        lambda x, v: np.clip(x + v[BIAS], 0, 6),
    ),
    "leaky": (
        [("LeakyReLU", [DST], {"alpha": 0.25})], ["leaky_relu", 0.25],
        lambda x, v: np.where(x > 0, x, x / 4),
    ),
    # A chain that goes on in float32
    "relu, sum": (
        [("ReLU", [DST]), ("Add", [10, OTHER])], ["relu"],
        lambda x, v: np.maximum(x, 0) + v[OTHER],
    ),
    "sum, bias": (
        [("Add", [DST, OTHER]), ("BiasAdd", [10, CHANNELS])], ["residual"],
        lambda x, v: x + v[OTHER] + v[CHANNELS],
    ),
    "own bias, bias": (
        [("BiasAdd", [DST, CHANNELS])], ["bias"], lambda x, v: x + v[BIAS] + v[CHANNELS],
    ),
    "sum of a number, relu": (
        [("Add", [DST, NUMBER]), ("ReLU", [10])], [], lambda x, v: np.maximum(x + v[NUMBER], 0),
    ),
    "product, sum, clamp": (
        [("Multiply", [DST, OTHER]), ("Add", [10, OTHER]),
         ("Clamp", [11], {"min": -300.0, "max": 300.0})],
        [], lambda x, v: np.clip(x * v[OTHER] + v[OTHER], -300, 300),
    ),
    "norm, relu": (
        [("BatchNormInference", [DST, SCALE, CHANNELS, BIAS, VARIANCE], {"epsilon": 1.0}),
         ("ReLU", [10])],
        [], lambda x, v: np.maximum((x - v[BIAS]) * v[SCALE] / 2 + v[CHANNELS], 0),
    ),
    "minimum, cast": (
        [("Minimum", [OTHER, DST]), ("TypeCast", [10])], [], lambda x, v: np.minimum(x, v[OTHER]),
    ),
    "leaky below": (
        [("LeakyReLU", [DST], {"alpha": -2.0})], [], lambda x, v: np.where(x > 0, x, -2 * x),
    ),
    "clamp to 5": (
        [("Clamp", [DST], {"min": 0.0, "max": 5.0})], [], lambda x, v: np.clip(x, 0, 5),
    ),
    # Smooth functions
    "bias, swish": (
        [("BiasAdd", [DST, CHANNELS]), ("Sigmoid", [10]), ("Multiply", [10, 11])],
        ["bias", "silu"], lambda x, v: FORMULAS["silu"](x + v[CHANNELS]),
    ),
    "sum, swish from the left, relu": (
        [("Add", [DST, OTHER]), ("Sigmoid", [10]), ("Multiply", [11, 10]), ("ReLU", [12])],
        ["residual", "silu"],
        lambda x, v: np.maximum(FORMULAS["silu"](x + v[OTHER]), 0),
    ),
    "relu, swish": (
        [("ReLU", [DST]), ("Sigmoid", [10]), ("Multiply", [10, 11])], ["relu"],
        lambda x, v: FORMULAS["silu"](np.maximum(x, 0)),
    ),
    "gelu": ([("GELU", [DST])], ["gelu_erf"], lambda x, v: FORMULAS["gelu_erf"](x)),
    "gelu tanh": (
        [("GELU", [DST], {"mode": "gelu_tanh"})], ["gelu_tanh"],
        lambda x, v: FORMULAS["gelu_tanh"](x),
    ),
    "elu": (
        [("Elu", [DST], {"alpha": 0.5})], ["elu", 0.5],
        lambda x, v: np.where(x > 0, x, np.expm1(np.minimum(x, 0)) / 2),
    ),
    "tanh": ([("Tanh", [DST])], ["tanh"], lambda x, v: np.tanh(x)),
    "sigmoid, product": (
        [("Sigmoid", [DST]), ("Multiply", [10, OTHER])], ["sigmoid"],
        lambda x, v: FORMULAS["sigmoid"](x) * v[OTHER],
    ),
    "hard swish": ([("HardSwish", [DST])], [], lambda x, v: x * np.clip(x + 3, 0, 6) / 6),
}  # fmt: skip
SMOOTH = list(CASES)[list(CASES).index("bias, swish") :]
VARIANTS = {
    "": {},
    ", channels first": {"data_format": "NCX"},
    ", transposed": {"kind": "ConvTranspose"},
    ", transposed, channels first": {"kind": "ConvTranspose", "data_format": "NCX"},
}


#: The first cases in all variants, and the others in turn.
PAIRS = [
    (name, variant)
    for place, name in enumerate(CASES)
    for variant in (VARIANTS if place < 2 else [list(VARIANTS)[place % 4]])
]


def make_case(name, dtype="f32", **more):
    reads = (SRC, TAPS, BIAS) if name.startswith("own bias") else (SRC, TAPS)
    return make(*CASES[name][0], dtype=dtype, reads=reads, **more)


def compute_exact(name, arrays, kind="Convolution", data_format="NXC"):
    """By the oracle and the formula, in float64."""
    operation, _ = find(kind, data_format)
    compute = getattr(oracle, operation.func.__name__)
    v = {i: np.asarray(x, np.float64) for i, x in arrays.items()}
    sums = compute(v[SRC], v[TAPS], **operation.keywords)
    if data_format == "NCX":
        v |= {i: x.reshape(-1, 1, 1) for i, x in v.items() if x.ndim == 1}
    return CASES[name][2](sums, v)


def draw(read):
    """Integers for a tensor; a variance of 3, and an epsilon of 1, divide by 2."""
    least, most = {TAPS: (-4, 3), VARIANCE: (3, 3)}.get(read.id, (-30, 20))
    dtype = TYPES[read.dtype]
    return integers(*read.shape, seed=read.id, least=least, most=most, dtype=dtype)
