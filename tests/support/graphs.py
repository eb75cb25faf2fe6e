"""Graphs of oneDNN Graph's JSON format: tensors and nodes of a dump, and the six operations.

Their sums are the oracle's.
"""

import itertools
import json
from dataclasses import replace

import numpy as np

from tests.support.forms import GROUPED, ROLES


def tensor(number, *shape, dtype="f32", **more):
    """A logical tensor as a dump has it; its strides say channels last, and count for nothing."""
    last = np.argsort(np.argsort([0, *range(2, len(shape)), 1][: len(shape)]))
    layout = {"stride": last.tolist(), "layout_type": "strided", "property_type": "undef"}
    return {"id": number, "dtype": dtype, "shape": list(shape), **layout, **more}


def wrapped(value):
    """With its type beside it, as in a dump."""
    types = {int: "s64", str: "string", float: "f32", bool: "bool"}
    if isinstance(value, list | tuple):
        return {"type": f"{types[type(value[0])]}[]", "value": list(value)}
    return {"type": types[type(value)], "value": value}


def node(number, kind, inputs, output, **attributes):
    attrs = {name: wrapped(value) for name, value in attributes.items()}
    named = {"id": number, "name": f"{kind.upper()}_{number}", "kind": kind}
    return {**named, "attrs": attrs, "inputs": inputs, "outputs": [output]}


def graph(*nodes, **more):
    head = {"version": "3.0.0", "engine_kind": "cpu", "fpmath_mode": "strict"}
    return {**head, **more, "graph": list(nodes)}


#: The convolution of which, or of whose gradients, the six operations are.
FORM = replace(GROUPED, batch=2)
FINE, TAPS, COARSE = FORM.shapes.values()


def kinds_of(form):
    for name, slots in ROLES.items():
        attributes = dict(form.op(name).keywords)
        if name == "convolution_backward_data":
            attributes["dst_shape"] = FINE
        if name != "conv_transpose":
            attributes.pop("output_padding", None)
        first, second, output = (form.shapes[slot] for slot in slots)
        kind = "".join(word.capitalize() for word in name.split("_"))
        yield kind, (first, second, attributes, output)


#: kind: (first, second, attributes, output)
KINDS = dict(kinds_of(FORM))
NAMES = dict(zip(KINDS, ROLES, strict=True))
FORWARD = KINDS["Convolution"][2]


def integers(*shape, seed=0, least=-4, most=4, dtype=np.float32):
    drawn = np.random.default_rng((seed, *shape)).integers(least, most, shape, endpoint=True)
    return drawn.astype(dtype)


def exact(kind, first, second):
    """By the oracle."""
    return FORM.exact(NAMES[kind], first, second)


def written(kind, *, dtype="f32", then=(), int8=None):
    """A graph of one convolution and the kinds that follow, as it comes back from a file.

    Each of `then` is a kind, the shapes of its further inputs, and its attributes. `int8` are the
    scales of the weights: one, or one for each output channel; src (u8) and the weights (s8) are
    then dequantised, and the result is quantised to u8.
    """
    numbers, nodes = itertools.count(), []

    def new(shape, dtype):
        return tensor(next(numbers), *shape, dtype=dtype)

    def add(kind, inputs, shape, dtype, **attributes):
        nodes.append(node(len(nodes), kind, inputs, new(shape, dtype), **attributes))
        return nodes[-1]["outputs"][0]

    def cast(x, dtype):
        return x if x["dtype"] == dtype else add("TypeCast", [x], x["shape"], dtype)

    def scaled(kind, x, dtype, scales, zero):
        axis = attributes["weights_format"].index("O") if len(scales) > 1 else 1
        more = {"qtype": ["per_tensor", "per_channel"][len(scales) > 1], "axis": axis}
        zps = [zero] * len(scales)
        return add(kind, [x], x["shape"], dtype, scales=list(scales), zps=zps, **more)

    first, second, attributes, out = KINDS[kind]
    if int8 is None:
        inputs = [new(first, dtype), new(second, dtype)]
    else:
        inputs = [cast(scaled("Dequantize", new(first, "u8"), "f32", SRC_SCALE, 128), dtype)]
        inputs += [cast(scaled("Dequantize", new(second, "s8"), "f32", int8, 0), dtype)]
    last = add(kind, inputs, out, dtype, **attributes)
    for follower, shapes, more in then:
        last = add(follower, [last, *(new(s, dtype) for s in shapes)], out, dtype, **more)
    if int8 is not None:
        scaled("Quantize", cast(last, "f32"), "u8", DST_SCALE, 128)
    return json.loads(json.dumps(graph(*nodes)))


SRC_SCALE, DST_SCALE = [1 / 16], [1 / 2]
RELU, BIAS = ("ReLU", (), {}), ("BiasAdd", [COARSE[1:2]], {"data_format": "NCX"})
