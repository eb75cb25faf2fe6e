"""Read a graph: JSON to nodes in an order that computes them, or an error that says where."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from graphlib import CycleError, TopologicalSorter
from itertools import chain
from pathlib import Path
from typing import Any

from jaxconv._base.messages import either, short, shown
from jaxconv._rules.values import entries, is_int
from jaxconv.onednn._graphs.graph import DTYPES, UNKNOWN, Graph, Node, Tensor

#: The path of a file, JSON text, parsed JSON, or a graph that was read before.
GraphLike = str | os.PathLike[str] | Mapping[str, Any] | Graph


def load_graph(graph: GraphLike) -> Graph:
    """Read a graph of oneDNN Graph's JSON format, and put its nodes in order.

    Args:
      graph: the path of a file, JSON text, parsed JSON, or a graph that was read before.

    Raises:
      TypeError, ValueError: the graph is malformed in its JSON, ids, shapes, types, ports or order.
    """
    if isinstance(graph, Graph):
        return graph
    fields = _parse_text(graph)
    listed = _read_list("graph", fields, "graph")
    nodes = tuple(_parse_node(place, node) for place, node in enumerate(listed))
    if not nodes:
        raise ValueError("graph: `graph` must list at least one node; got none")
    makers = _find_makers(nodes)
    tensors = _merge_tensors(nodes)

    def merged(listed: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        return tuple(tensors[tensor.id] for tensor in listed)

    nodes = tuple(replace(n, inputs=merged(n.inputs), outputs=merged(n.outputs)) for n in nodes)
    read = dict.fromkeys(t.id for node in nodes for t in node.inputs)
    given = [i for i in read if i not in makers]
    inputs = _read_ports("input_ports", fields, tensors) or given
    for port in inputs:
        if port in makers:
            raise ValueError(
                f"graph: `input_ports` has tensor {port}, which {makers[port]} computes"
            )
    outputs = _read_ports("output_ports", fields, tensors) or [i for i in makers if i not in read]
    return Graph(
        nodes=_order_nodes(nodes, makers),
        inputs=tuple(tensors[i] for i in dict.fromkeys([*inputs, *given])),
        outputs=tuple(tensors[i] for i in outputs),
        fpmath_mode=str(fields.get("fpmath_mode") or "strict").lower(),
    )


def _parse_text(graph: GraphLike) -> Mapping[str, Any]:
    """Read the fields of a file, a text or a dict."""
    is_text = isinstance(graph, str) and graph.lstrip().startswith(("{", "["))
    path = "the text" if is_text else graph
    if isinstance(graph, str | os.PathLike):
        try:
            text = str(graph) if is_text else Path(graph).read_text(encoding="utf-8-sig")
            graph = json.loads(text)
        except ValueError as error:  # no text in UTF-8, and no JSON
            raise ValueError(f"graph: {path} must be JSON; {error}") from None
    if not isinstance(graph, Mapping):
        raise TypeError(
            "graph: it must be a path, JSON text or a dict with the list `graph` of nodes; got "
            f"{shown(graph)}"
        )
    return graph


def _parse_node(place: int, fields: object) -> Node:
    where = f"graph: node number {place}"
    if not isinstance(fields, Mapping):
        raise TypeError(f"{where} must be a dict; got {shown(fields)}")
    node_id, kind = fields.get("id", place), fields.get("kind")
    if not is_int(node_id):
        raise TypeError(f"{where}: `id` must be an int; got {shown(node_id)}")
    if not isinstance(kind, str):
        raise TypeError(f"{where}: `kind` must be a string; got {shown(kind)}")
    name = str(fields.get("name", ""))
    where = f"node {node_id} {name!r} ({kind})"
    attributes = fields.get("attrs", {})
    if not isinstance(attributes, Mapping):
        raise TypeError(f"{where}: `attrs` must be a dict by name; got {shown(attributes)}")
    inputs, outputs = (
        tuple(_parse_tensor(f"{where}: {name}", t) for t in _read_list(name, fields, where))
        for name in ("inputs", "outputs")
    )
    return Node(node_id, name, kind, attributes, inputs, outputs)


def _parse_tensor(where: str, fields: object) -> Tensor:
    if not isinstance(fields, Mapping) or not is_int(fields.get("id")):
        raise TypeError(
            f"{where}: a tensor must be a dict with an `id`, an int; got {shown(fields)}"
        )
    where = f"{where}: tensor {fields['id']}"
    dtype, shape = fields.get("dtype", UNKNOWN), entries(fields.get("shape"))
    if dtype not in [*DTYPES, UNKNOWN]:
        raise ValueError(
            f"{where}: `dtype` must be {either([*DTYPES, UNKNOWN])}; got {short(dtype)}"
        )
    if shape is None or not all(map(is_int, shape)):
        raise TypeError(
            f"{where}: `shape` must be a list of ints; got {shown(fields.get('shape'))}"
        )
    return Tensor(fields["id"], dtype, tuple(shape), str(fields.get("name", "")))


def _read_list(name: str, fields: Mapping[str, Any], where: str) -> Sequence[Any]:
    found = fields.get(name)
    if not isinstance(found, list | tuple):
        raise TypeError(f"{where}: `{name}` must be a list; got {shown(found)}")
    return found


def _find_makers(nodes: tuple[Node, ...]) -> dict[int, Node]:
    """Find the node that computes each tensor."""
    makers: dict[int, Node] = {}
    by_id: dict[int, Node] = {}
    for node in nodes:
        if node.id in by_id:
            raise ValueError(f"{node}: the ids of nodes must differ; got that of {by_id[node.id]}")
        by_id[node.id] = node
        for tensor in node.outputs:
            if tensor.id in makers:
                raise ValueError(
                    f"{node}: tensor {tensor.id} is computed by {makers[tensor.id]} too"
                )
            makers[tensor.id] = node
    return makers


def _merge_tensors(nodes: tuple[Node, ...]) -> dict[int, Tensor]:
    """Merge tensors by id; a tensor must be the same in all nodes, except for unknown fields."""
    found: dict[int, Tensor] = {}
    for node in nodes:
        for tensor in chain(node.outputs, node.inputs):
            known = found.setdefault(tensor.id, tensor)
            if not known.fits(tensor.shape, DTYPES.get(tensor.dtype)):
                raise ValueError(
                    f"{node}: a tensor must be the same in all nodes; got {tensor}, but {known}"
                )
            found[tensor.id] = Tensor(
                tensor.id,
                tensor.dtype if known.dtype == UNKNOWN else known.dtype,
                tuple(map(max, known.shape, tensor.shape)),
                known.name or tensor.name,
            )
    return found


def _read_ports(name: str, fields: Mapping[str, Any], tensors: Mapping[int, Tensor]) -> list[int]:
    ports = [] if fields.get(name) is None else entries(fields[name])
    if ports is None or not all(map(is_int, ports)):
        raise TypeError(f"graph: `{name}` must be a list of ids; got {shown(fields[name])}")
    for port in ports:
        if port not in tensors:
            listed = ", ".join(map(str, sorted(tensors)))
            raise ValueError(f"graph: `{name}` must be ids of tensors ({listed}); got {port}")
    return list(dict.fromkeys(ports))


def _order_nodes(nodes: tuple[Node, ...], makers: Mapping[int, Node]) -> tuple[Node, ...]:
    needs = {n.id: {makers[t.id].id for t in n.inputs if t.id in makers} for n in nodes}
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        by_id = {node.id: node for node in nodes}
        cycle = " -> ".join(str(by_id[i]) for i in error.args[1])
        raise ValueError(f"graph: nodes must not form a cycle; got {cycle}") from None
    waiting, order = list(nodes), dict[int, Node]()
    while waiting:
        node = next(node for node in waiting if needs[node.id] <= order.keys())
        waiting.remove(node)
        order[node.id] = node
    return tuple(order.values())
