"""Partitions of a graph: each convolution with the nodes that are computed together with it.

A partition is a Convolution or ConvTranspose of floats and the chain of nodes that follow, as
oneDNN Graph documents for its own partitions. Each node of the chain is computed in float32, and
is the only reader of the tensor before. x * sigmoid(x), two nodes, counts as one reader.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from jaxconv._rules.attributes import MAX_ALPHA
from jaxconv._rules.values import check_attributes
from jaxconv.onednn._graphs.graph import Graph, Node, Tensor
from jaxconv.onednn._graphs.kinds import FLOAT_TYPES, SPECS

Readers = Mapping[int, Sequence[Node]]


def join_nodes(graph: Graph) -> Graph:
    """Make each partition one node with followers, in the place of the last follower."""
    readers: dict[int, list[Node]] = {}
    for node in graph.nodes:
        for tensor in node.inputs:
            readers.setdefault(tensor.id, []).append(node)
    inner: Readers = readers | {tensor.id: [] for tensor in graph.outputs}
    partitions: dict[int, Node] = {}
    taken: set[int] = set()
    for node in graph.nodes:
        if followers := _find_followers(node, inner, taken):
            partitions[followers[-1].id] = replace(node, followers=tuple(followers))
            taken |= {joined.id for joined in (node, *followers)}
    left = (n for n in graph.nodes if n.id in partitions or n.id not in taken)
    return replace(graph, nodes=tuple(partitions.get(n.id, n) for n in left))


def _find_followers(node: Node, readers: Readers, taken: Collection[int]) -> list[Node]:
    """Find the chain that starts at a convolution's output."""
    found: list[Node] = []
    if (
        node.kind not in ("Convolution", "ConvTranspose")
        or not node.inputs
        or node.inputs[0].dtype not in FLOAT_TYPES
        or len(node.outputs) != 1
    ):
        return found
    # A partition computes in float32, and rounds to the type of src if at all.
    types = {node.inputs[0].dtype, "f32"}
    [tensor] = node.outputs

    def joins(follower: Node) -> bool:
        spec = SPECS.get(follower.kind)
        return (
            spec is not None
            and spec.of_floats
            and follower.id not in taken
            and len(follower.inputs) == len(spec.inputs)
            and len(follower.outputs) == 1
            and follower.outputs[0].dtype in types
            and ("auto_broadcast" in spec.attributes or follower.inputs[0].id == tensor.id)
        )

    while tensor.dtype in types:
        match readers.get(tensor.id):
            case [follower] if joins(follower):
                steps = [follower]
            case [Node(kind="Sigmoid") as gate, Node(kind="Multiply") as product] if (
                joins(gate) and joins(product) and readers[gate.outputs[0].id] == [product]
            ):
                steps = [gate, product]
            case _:
                break
        found += steps
        [tensor] = steps[-1].outputs
    return found


def fold_followers(
    node: Node, arguments: Mapping[str, Any]
) -> tuple[dict[str, Any], tuple[Node, ...]]:
    """Find arguments of the operation that say what the first followers compute.

    `arguments` are those of the convolution alone. The result is further arguments, in which
    tensors stand for their arrays, and the followers that are left. A follower that is malformed
    is left, so that its own error is raised.
    """
    found: dict[str, Any] = {}
    left, [tensor] = node.followers, node.outputs
    allowed = [name for name in ("bias", "residual", "activation") if name not in arguments]
    data_format = str(arguments.get("data_format", "NXC")).upper()
    while left:
        is_swish = len(left) > 1 and tensor.id in (read.id for read in left[1].inputs)
        steps = left[: 1 + is_swish]
        more = _find_arguments(node, steps, tensor, data_format)
        name = next(iter(more), None)
        if name not in allowed:
            break
        found |= more
        allowed = allowed[allowed.index(name) + 1 :]
        left, [tensor] = left[len(steps) :], steps[-1].outputs
    return found, left


def _find_arguments(
    node: Node, steps: Sequence[Node], tensor: Tensor, data_format: str
) -> dict[str, Any]:
    """Find the arguments, one argument and its parameter, that say what followers compute."""
    src, [dst] = node.inputs[0], node.outputs
    operands = [read for read in steps[0].inputs if read.id != tensor.id]
    try:
        attributes = [
            check_attributes(s.kind, s.attributes, SPECS[s.kind].attributes) for s in steps
        ]
    except (TypeError, ValueError):
        return {}
    if not dst.known or any(step.outputs[0].shape != dst.shape for step in steps):
        return {}
    if any(operand.dtype != src.dtype for operand in operands):
        return {}
    match [step.kind for step in steps], attributes[-1]:
        case ["BiasAdd"], {"data_format": given} if given == data_format:
            channels = dst.shape[1 if given == "NCX" else -1]
            return {"bias": operands[0]} if operands[0].shape == (channels,) else {}
        case ["Add"], _ if operands[0].shape == dst.shape:
            return {"residual": operands[0]}
        case ["ReLU" | "Tanh" | "Sigmoid" as kind], _:
            return {"activation": kind.lower()}
        case ["Sigmoid", "Multiply"], _:
            return {"activation": "silu"}
        case ["GELU"], {"mode": mode}:
            return {"activation": mode}
        case ["Clamp"], {"min": 0, "max": 6}:
            return {"activation": "relu6"}
        case ["LeakyReLU"], {"alpha": alpha} if 0 <= alpha <= MAX_ALPHA:
            return {"activation": "leaky_relu", "alpha": alpha}
        case ["Elu"], {"alpha": alpha} if 0 <= alpha <= MAX_ALPHA:
            return {"activation": "elu", "alpha": alpha}
    return {}
