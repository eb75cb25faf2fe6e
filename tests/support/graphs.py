"""Graphs of oneDNN Graph's JSON format: tensors and nodes of a dump, and what is written.

The sums of both are the oracle's.
"""

import json
import re

import numpy as np

from jaxconv import onednn
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


#: Of what is written.
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


def exact(kind, first, second, bias=None):
    """By the oracle, which takes shapes by position."""
    attributes = dict(KINDS[kind][2])
    shape = [attributes.pop(name) for name in ("dst_shape", "weights_shape") if name in attributes]
    name = re.sub("(?<!^)([A-Z])", r"_\1", kind).lower()
    given = [first, second, *shape] if bias is None else [first, second, bias]
    return getattr(oracle, name)(*map(np.asarray, given[:2]), *given[2:], **attributes)


def written(kind, **more):
    """A graph, as it comes back from a file."""
    first, second, attributes, _ = KINDS[kind]
    return json.loads(json.dumps(onednn.write_graph(kind, first, second, attributes, **more)))
