"""Partitions of graphs: a convolution and steps that follow, as a table."""

from dataclasses import replace

import jax.numpy as jnp
import numpy as np

from tests.support import oracle
from tests.support.activations import KINDS
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
    for number, (step, ids, attributes) in enumerate(spelled(steps, data_format), 1):
        nodes.append(node(number, step, [*map(read, ids)], read(9 + number), **attributes))
    return graph(*nodes, **more)


def spelled(steps, data_format):
    """Each with its attributes, among them the layout of what is for each channel."""
    for step, ids, *given in steps:
        formats = {"data_format": data_format} if step in ("BiasAdd", "BatchNormInference") else {}
        yield step, ids, dict(*given) | formats


#: name: (steps, what the operation is told)
CASES = {
    "bias, relu": ([("BiasAdd", [DST, CHANNELS]), ("ReLU", [10])], ["bias", "relu"]),
    "bias, sum, relu": (
        [("BiasAdd", [DST, CHANNELS]), ("Add", [10, OTHER]), ("ReLU", [11])],
        ["bias", "residual", "relu"],
    ),
    "sum from the left": ([("Add", [OTHER, DST])], ["residual"]),
    "own bias, relu6": ([("Clamp", [DST], {"min": 0.0, "max": 6.0})], ["bias", "relu6"]),
    "leaky": ([("LeakyReLU", [DST], {"alpha": 0.375})], ["leaky_relu", 0.375]),
    # A chain that goes on in float32
    "relu, sum": ([("ReLU", [DST]), ("Add", [10, OTHER])], ["relu"]),
    "sum, bias": ([("Add", [DST, OTHER]), ("BiasAdd", [10, CHANNELS])], ["residual"]),
    "own bias, bias": ([("BiasAdd", [DST, CHANNELS])], ["bias"]),
    "sum of a number, relu": ([("Add", [DST, NUMBER]), ("ReLU", [10])], []),
    "product, sum, clamp": (
        [("Multiply", [DST, OTHER]), ("Add", [10, OTHER]),
         ("Clamp", [11], {"min": -300.0, "max": 300.0})], [],
    ),
    "norm, relu": (
        [("BatchNormInference", [DST, SCALE, CHANNELS, BIAS, VARIANCE], {"epsilon": 1.0}),
         ("ReLU", [10])], [],
    ),
    "minimum, cast": ([("Minimum", [OTHER, DST]), ("TypeCast", [10])], []),
    "leaky below": ([("LeakyReLU", [DST], {"alpha": -2.0})], []),
    "clamp to 5": ([("Clamp", [DST], {"min": 0.0, "max": 5.0})], []),
    # Smooth functions
    "bias, swish": (
        [("BiasAdd", [DST, CHANNELS]), ("Sigmoid", [10]), ("Multiply", [10, 11])],
        ["bias", "silu"],
    ),
    "sum, swish from the left, relu": (
        [("Add", [DST, OTHER]), ("Sigmoid", [10]), ("Multiply", [11, 10]), ("ReLU", [12])],
        ["residual", "silu"],
    ),
    "relu, swish": ([("ReLU", [DST]), ("Sigmoid", [10]), ("Multiply", [10, 11])], ["relu"]),
    "gelu": ([("GELU", [DST])], ["gelu_erf"]),
    "gelu tanh": ([("GELU", [DST], {"mode": "gelu_tanh"})], ["gelu_tanh"]),
    "elu": ([("Elu", [DST], {"alpha": 0.5})], ["elu", 0.5]),
    "tanh": ([("Tanh", [DST])], ["tanh"]),
    "sigmoid, product": ([("Sigmoid", [DST]), ("Multiply", [10, OTHER])], ["sigmoid"]),
    "hard swish": ([("HardSwish", [DST])], []),
}  # fmt: skip
SMOOTH = list(CASES)[list(CASES).index("bias, swish") :]
VARIANTS = {
    "": {}, ", channels first": {"data_format": "NCX"}, ", transposed": {"kind": "ConvTranspose"},
    ", transposed, channels first": {"kind": "ConvTranspose", "data_format": "NCX"},
}  # fmt: skip


#: The first cases in all variants, and the others in turn.
PAIRS = [
    (name, variant)
    for place, name in enumerate(CASES)
    for variant in (VARIANTS if place < 2 else [list(VARIANTS)[place % 4]])
]


def reads(name):
    """What the convolution of a case reads."""
    return (SRC, TAPS, BIAS) if name.startswith("own bias") else (SRC, TAPS)


def make_case(name, dtype="f32", **more):
    return make(*CASES[name][0], dtype=dtype, reads=reads(name), **more)


def compute_exact(name, arrays, kind="Convolution", data_format="NXC"):
    """By the oracle and the formulas of kinds, in float64."""
    operation, _ = find(kind, data_format)
    values = {i: np.asarray(x, np.float64) for i, x in arrays.items()}
    compute = getattr(oracle, operation.func.__name__)
    found = compute(*(values[i] for i in reads(name)), **operation.keywords)
    values[DST] = found
    for at, (step, ids, attributes) in enumerate(spelled(CASES[name][0], data_format), 10):
        found = values[at] = KINDS[step](*(values[i] for i in ids), **attributes)
    return found


def draw(read):
    """Integers for a tensor; a variance of 3, and an epsilon of 1, divide by 2."""
    least, most = {TAPS: (-4, 3), VARIANCE: (3, 3)}.get(read.id, (-30, 20))
    dtype = TYPES[read.dtype]
    return integers(*read.shape, seed=read.id, least=least, most=most, dtype=dtype)
