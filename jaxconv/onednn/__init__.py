"""The oneDNN Graph API: its operations by their names, today's and older names, and its graphs.

`apply` takes an operation's kind, inputs and attributes as that API's pages list these, for
graphs that come from there:

>>> import numpy as np
>>> from jaxconv import onednn
>>> src = np.float32([1, 2, 4, 8]).reshape(1, 4, 1)  # one image, 4 long, one channel
>>> weights = np.float32([1, 10, 100]).reshape(3, 1, 1)
>>> window = {"strides": [1], "pads_begin": [1], "pads_end": [0], "dilations": [1]}
>>> dst = onednn.apply("Convolution", [src, weights], window)
>>> dst.ravel().tolist()
[210.0, 421.0, 842.0]
>>> older = {**window, "filter_format": "XIO", "output_shape": [1, 4, 1]}
>>> named = {"output_delta": dst, "filter": weights}
>>> onednn.apply("ConvolutionBackpropData", named, older).ravel().tolist()
[2521.0, 26052.0, 50520.0, 84200.0]

`run_graph` runs whole graphs of the JSON format that oneDNN Graph dumps and that its benchmark
driver reads. `load_graph` reads a graph; `explain_graph` explains its convolutions.
``python -m jaxconv.onednn FILE.json --check --time`` runs, checks and times a file:

>>> shapes = [1, 4, 1], [3, 1, 1], [1, 3, 1], [1, 3, 1]
>>> t = [{"id": i, "dtype": "f32", "shape": shape} for i, shape in enumerate(shapes)]
>>> attrs = {name: {"type": "s64[]", "value": value} for name, value in window.items()}
>>> nodes = [
...     {"kind": "Convolution", "attrs": attrs, "inputs": t[:2], "outputs": t[2:3]},
...     {"kind": "ReLU", "attrs": {}, "inputs": t[2:3], "outputs": t[3:]},
... ]
>>> graph = {"graph": [{"id": i, "name": f"node{i}", **node} for i, node in enumerate(nodes)]}
>>> [dst] = onednn.run_graph(graph, {"node0.src": src, 1: weights - 20}).values()
>>> dst.ravel().tolist()
[150.0, 281.0, 562.0]

A file is an object with a list `graph` of nodes. A node has an `id`, a `name`, a `kind` of
`GRAPH_KINDS`, and `attrs`, each ``{"type": ..., "value": ...}`` with the type s64, s64[], f32,
f32[], string or bool. Its `inputs` and `outputs` are logical tensors: an `id`, by which nodes
are joined, a `dtype` (f32, bf16, f16, s8, u8, s32, boolean or undef) and a `shape`, in which
a negative extent is unknown. `stride`, `layout_type` and `property_type` say how the engine keeps
a tensor in memory, and mean nothing here: the axes are in the order of the shape. Nodes may stand
in any order. `input_ports` and `output_ports` may list ids, and `fpmath_mode` may name
the type in which f32 may be multiplied; all else is ignored.

Each kind computes as its page says. Arithmetic on bf16 and f16 is done in f32 and rounded once, and
a convolution is computed together with the nodes that follow, as `run_graph` says. Round and
Quantize take ties to the even integer, and Quantize keeps to the range of its type.
"""

from jaxconv.onednn._convolutions import apply
from jaxconv.onednn._graphs.graph import Graph
from jaxconv.onednn._graphs.inputs import GRAPH_KINDS, random_inputs
from jaxconv.onednn._graphs.load import load_graph
from jaxconv.onednn._graphs.run import explain_graph, run_graph
from jaxconv.onednn._names import KINDS

__all__ = [
    "GRAPH_KINDS",
    "KINDS",
    "Graph",
    "apply",
    "explain_graph",
    "load_graph",
    "random_inputs",
    "run_graph",
]
