"""Graphs of oneDNN Graph's JSON format: tensors and nodes of a dump, and the six operations.

Their sums are the oracle's.
"""

import itertools
import json
import re

import numpy as np

from tests.support import oracle


def tensor(number, *shape, dtype="f32", **more):
    """A logical tensor as a dump has it; its strides say channels last, and count for nothing."""
    last = np.argsort(np.argsort([0, *range(2, len(shape)), 1][: len(shape)]))
    return {
        "id": number,
        "dtype": dtype,
        "shape": list(shape),
        "stride": last.tolist(),
        "layout_type": "strided",
        "property_type": "undef",
        **more,
    }


def wrapped(value):
    """With its type beside it, as in a dump."""
    types = {int: "s64", str: "string", float: "f32", bool: "bool"}
    if isinstance(value, list):
        return {"type": f"{types[type(value[0])]}[]", "value": value}
    return {"type": types[type(value)], "value": value}


def node(number, kind, inputs, output, **attributes):
    attrs = {name: wrapped(value) for name, value in attributes.items()}
    return {
        "id": number,
        "name": f"{kind.upper()}_{number}",
        "kind": kind,
        "attrs": attrs,
        "inputs": inputs,
        "outputs": [output],
    }


def graph(*nodes, **more):
    head = {"version": "3.0.0", "engine_kind": "cpu", "fpmath_mode": "strict"}
    return {**head, **more, "graph": list(nodes)}


#: Of the tensors between which the six operations are.
FINE, COARSE = (2, 4, 7, 6), (2, 6, 3, 6)
TAPS = {"OIX": (6, 2, 3, 2), "XIO": (3, 2, 2, 6), "IOX": (6, 2, 3, 2), "XOI": (3, 2, 2, 6)}
#: of one convolution, and of the transposed one between the same tensors, where I meets the coarse
WINDOW = {
    "strides": [2, 1],
    "pads_begin": [1, 0],
    "pads_end": [0, 2],
    "dilations": [1, 2],
    "groups": 2,
    "data_format": "NCX",
}
FORWARD = WINDOW | {"weights_format": "OIX"}
TRANSPOSED = WINDOW | {"weights_format": "IOX"}
#: kind: (first, second, attributes, output)
KINDS = {
    "Convolution": (FINE, TAPS["OIX"], FORWARD, COARSE),
    "ConvolutionBackwardData": (COARSE, TAPS["OIX"], FORWARD | {"dst_shape": FINE}, FINE),
    "ConvolutionBackwardWeights": (
        FINE,
        COARSE,
        FORWARD | {"weights_shape": TAPS["OIX"]},
        TAPS["OIX"],
    ),
    "ConvTranspose": (COARSE, TAPS["IOX"], TRANSPOSED | {"output_padding": [1, 0]}, FINE),
    "ConvTransposeBackwardData": (FINE, TAPS["IOX"], TRANSPOSED, COARSE),
    "ConvTransposeBackwardWeights": (
        COARSE,
        FINE,
        TRANSPOSED | {"weights_shape": TAPS["IOX"]},
        TAPS["IOX"],
    ),
}


def integers(*shape, seed=0, least=-4, most=4, dtype=np.float32):
    drawn = np.random.default_rng((seed, *shape)).integers(least, most, shape, endpoint=True)
    return drawn.astype(dtype)


def exact(kind, first, second):
    """By the oracle, which takes shapes by position."""
    attributes = dict(KINDS[kind][2])
    shape = [attributes.pop(name) for name in ("dst_shape", "weights_shape") if name in attributes]
    name = re.sub("(?<!^)([A-Z])", r"_\1", kind).lower()
    return getattr(oracle, name)(np.asarray(first), np.asarray(second), *shape, **attributes)


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
    listed = {n: list(v) if isinstance(v, tuple) else v for n, v in attributes.items()}
    last = add(kind, inputs, out, dtype, **listed)
    for follower, shapes, more in then:
        last = add(follower, [last, *(new(s, dtype) for s in shapes)], out, dtype, **more)
    if int8 is not None:
        scaled("Quantize", cast(last, "f32"), "u8", DST_SCALE, 128)
    return json.loads(json.dumps(graph(*nodes)))


SRC_SCALE, DST_SCALE = [1 / 16], [1 / 2]
RELU, BIAS = ("ReLU", (), {}), ("BiasAdd", [COARSE[1:2]], {"data_format": "NCX"})
