"""Time a graph, and each of its convolutions, by jaxconv and by plain lax."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array

from jaxconv._lowering import forced
from jaxconv._tools.clock import time_both
from jaxconv.onednn._graphs.graph import Graph, Node
from jaxconv.onednn._graphs.inputs import Arrays
from jaxconv.onednn._graphs.partitions import join_nodes
from jaxconv.onednn._graphs.run import TENSORS, convolution_calls, evaluate


def compute_with_lax(function: Callable[..., Array], arguments: dict[str, Any]) -> Array:
    """Compute an operation by one `lax.conv_general_dilated`, in the layouts at hand."""
    with forced("reference"):
        return function(**arguments)


def time_graph(graph: Graph, inputs: Arrays) -> tuple[float, float]:
    """Time a graph as jaxconv computes it, and node by node with lax; both in seconds."""
    arrays = {i: jnp.asarray(x) for i, x in inputs.items()}
    evaluations = [
        partial(evaluate, join_nodes(graph)),
        partial(evaluate, graph, convolve=compute_with_lax),
    ]

    def outputs(evaluation: Callable[..., Arrays], given: Arrays) -> Arrays:
        found = evaluation(given)
        return {tensor.id: found[tensor.id] for tensor in graph.outputs}

    ours, theirs = (jax.jit(partial(outputs, e)) for e in evaluations)
    return time_both(ours, theirs, arrays)


def time_convolutions(graph: Graph, inputs: Arrays) -> list[tuple[Node, float, float]]:
    """Time each convolution of a graph: the node, seconds by jaxconv, seconds by lax."""
    arrays = jax.jit(partial(evaluate, graph))({i: jnp.asarray(x) for i, x in inputs.items()})
    found = []
    for node, function, arguments in convolution_calls(graph, arrays):
        tensors = {name: jnp.asarray(arguments[name]) for name in TENSORS if name in arguments}
        static = {name: value for name, value in arguments.items() if name not in tensors}
        found.append((node, *_time_call(partial(function, **static), tensors)))
    return found


def _time_call(call: Callable[..., Array], tensors: dict[str, Array]) -> tuple[float, float]:
    ours = jax.jit(lambda tensors: call(**tensors))
    return time_both(ours, jax.jit(partial(compute_with_lax, call)), tensors)
