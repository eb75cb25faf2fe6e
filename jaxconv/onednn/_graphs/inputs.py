"""The inputs of a graph: arrays by id, by name or in order, or random arrays."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from jaxconv._base.dtypes import canonical
from jaxconv._base.messages import shown
from jaxconv._base.typing import DType
from jaxconv._rules.arguments import array
from jaxconv._rules.values import suggestion
from jaxconv.onednn._graphs.graph import DTYPES, UNKNOWN, Graph, Node, Tensor
from jaxconv.onednn._graphs.kinds import SPECS
from jaxconv.onednn._graphs.load import GraphLike, load_graph
from jaxconv.onednn._names import KINDS, find_kind

Arrays = dict[int, Any]

#: By id, by name, or in order.
InputsLike = Mapping[Any, Any] | Sequence[Any]

#: All kinds that a graph may have.
GRAPH_KINDS = (*KINDS, *SPECS)


def random_inputs(graph: GraphLike, seed: int = 0) -> dict[int, np.ndarray[Any, Any]]:
    """Draw arrays for all inputs of a graph, of their shapes and types, by id.

    Floats are normal with variance 1, and positive where a node needs positive floats. Integers
    are uniform over their type. A tensor that is a shape is the shape of the output.

    Args:
      graph: the argument of `load_graph`.
      seed: another seed gives other arrays.
    """
    graph = load_graph(graph)
    rng = np.random.default_rng(seed)
    return {tensor.id: _draw_input(rng, graph, tensor) for tensor in graph.inputs}


#: Kinds, and those of their inputs that must be positive.
_POSITIVE = {("Sqrt", "src"), ("Log", "src"), ("Pow", "src"), ("BatchNormInference", "variance")}


def _draw_input(rng: np.random.Generator, graph: Graph, tensor: Tensor) -> np.ndarray[Any, Any]:
    dtype = known_dtype(tensor)
    readers = [(node, name) for node, name, read in _find_reads(graph) if read == tensor.id]
    for node, name in readers:
        if name.endswith("_shape"):
            return np.array(node.outputs[0].shape, dtype)
    if np.issubdtype(dtype, np.integer) or dtype == np.bool_:
        least, most = (0, 1) if dtype == np.bool_ else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        return rng.integers(least, most, tensor.shape, endpoint=True).astype(dtype)
    drawn = rng.standard_normal(tensor.shape, np.float32)
    if any((node.kind, name) in _POSITIVE for node, name in readers):
        drawn = np.abs(drawn)
    return drawn.astype(dtype)


def known_dtype(tensor: Tensor) -> DType:
    if not tensor.known or tensor.dtype == UNKNOWN:
        raise ValueError(f"graph: an input's shape and type must be known; got tensor {tensor}")
    return DTYPES[tensor.dtype]


def match_inputs(graph: Graph, inputs: InputsLike | None) -> Arrays:
    """Match arrays, given by id, by name or in order, to all inputs by id."""
    if inputs is None:
        inputs = random_inputs(graph)
    if isinstance(inputs, Mapping):
        found = _match_names(graph, inputs)
    elif isinstance(inputs, Sequence) and not isinstance(inputs, str):
        if len(inputs) != len(graph.inputs):
            raise ValueError(f"run_graph: {_list_inputs(graph)}; got {len(inputs)}")
        found = dict(zip((tensor.id for tensor in graph.inputs), inputs, strict=True))
    else:
        raise TypeError(
            f"run_graph: `inputs` must be a dict or a sequence of arrays; got {shown(inputs)}"
        )
    missing = [str(tensor.id) for tensor in graph.inputs if tensor.id not in found]
    if missing:
        raise ValueError(f"run_graph: {_list_inputs(graph)}; missing: {', '.join(missing)}")
    for tensor in graph.inputs:
        value = found[tensor.id]
        if isinstance(value, Sequence | int | float | np.generic):
            try:
                value = np.asarray(value)
            except ValueError:  # rows of unequal length
                value = np.asarray(value, object)
        value = array("run_graph", str(tensor), value)
        # A shape, say, stays as it is: within jit, an array that JAX made of a shape is traced.
        dtype = canonical(value.dtype)
        if dtype not in DTYPES.values() or not tensor.fits(value.shape, dtype):
            raise TypeError(
                f"run_graph: an input must be as the graph says, {tensor}; "
                f"got {dtype} {tuple(value.shape)}"
            )
        found[tensor.id] = value
    return found


def _match_names(graph: Graph, inputs: Mapping[Any, Any]) -> Arrays:
    known = {tensor.id for tensor in graph.inputs}
    names: dict[str, set[int]] = {str(i): {i} for i in known}  # as JSON and npz have them
    for tensor in graph.inputs:
        names.setdefault(tensor.name or str(tensor.id), set()).add(tensor.id)
    for node, name, read in _find_reads(graph):
        if read in known:
            names.setdefault(f"{node.name}.{name}", set()).add(read)
    found: Arrays = {}
    for key, value in inputs.items():
        ports = names.get(key, set()) if isinstance(key, str) else {key} & known
        if len(ports) > 1:
            raise ValueError(
                f"run_graph: a name must be that of one input; got {key!r}, which is any of "
                f"{', '.join(map(str, sorted(ports)))}: give it by its id"
            )
        if not ports:
            hint = suggestion(key, tuple(names)) if isinstance(key, str) else ""
            raise ValueError(f"run_graph: {_list_inputs(graph)}; got {key!r}{hint}")
        [port] = ports
        if port in found:
            raise ValueError(f"run_graph: an input must be given once; got {key!r}, {port} again")
        found[port] = value
    return found


def _list_inputs(graph: Graph) -> str:
    reads: dict[int, str] = {}
    for node, name, read in _find_reads(graph):
        reads.setdefault(read, f"{node.name}.{name}")
    return "the inputs are " + "; ".join(f"{t} ({reads.get(t.id, t.name)})" for t in graph.inputs)


def _find_reads(graph: Graph) -> Iterator[tuple[Node, str, int]]:
    """Yield each node, the name of one of its inputs, and the id of that input's tensor."""
    for node in graph.nodes:
        if node.kind in GRAPH_KINDS:
            names = (SPECS.get(node.kind) or find_kind(node.kind)).inputs
            for name, tensor in zip(names, node.inputs, strict=False):
                yield node, name, tensor.id
