"""Time a graph, and each of its convolutions, by jaxconv and by plain lax."""

from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxconv._base.reshape import move_groups
from jaxconv._rules.op import OPS
from jaxconv._tools.clock import time_both
from jaxconv._tools.inspect import resolve
from jaxconv.onednn._graphs.graph import Graph, Node
from jaxconv.onednn._graphs.inputs import Arrays
from jaxconv.onednn._graphs.partitions import join_nodes
from jaxconv.onednn._graphs.run import TENSORS, convolution_calls, evaluate


def compute_with_lax(function: Callable[..., Array], arguments: dict[str, Any]) -> Array:
    """Compute an operation by `lax.conv_general_dilated`, or by its linear transpose."""
    resolved = resolve(function, **arguments)
    op, geometry = OPS[resolved.op], resolved.geometry
    convolve = partial(
        lax.conv_general_dilated,
        window_strides=[axis.stride for axis in geometry.axes],
        padding=[(axis.pad_low, axis.pad_high) for axis in geometry.axes],
        rhs_dilation=[axis.dilation for axis in geometry.axes],
        dimension_numbers=lax.ConvDimensionNumbers(
            geometry.data.spec, geometry.kernel.spec, geometry.data.spec
        ),
        feature_group_count=resolved.groups,
        precision=arguments.get("precision"),
    )

    def to_coarse(fine: Array, kernel: Array) -> Array:
        if resolved.groups_on_fine:
            layout = geometry.kernel
            kernel = move_groups(kernel, resolved.groups, layout.fine, layout.coarse)
        return convolve(fine, kernel)

    given = {op.slot(name): jnp.asarray(arguments[name]) for name in op.inputs}
    result = op.slot(op.result)
    if result == "coarse":
        out = to_coarse(given["fine"], given["kernel"])
    else:
        kept = next(slot for slot in ("fine", "kernel") if slot in given)
        shape = jax.ShapeDtypeStruct(resolved.shape(op.result), given["coarse"].dtype)
        forward = (
            partial(to_coarse, given["fine"])
            if kept == "fine"
            else partial(to_coarse, kernel=given["kernel"])
        )
        [out] = jax.linear_transpose(forward, shape)(given["coarse"])
    if arguments.get("bias") is not None:
        channel = geometry.data.channel
        axes = [axis for axis in range(out.ndim) if axis != channel]
        out = out + jnp.expand_dims(jnp.asarray(arguments["bias"]), axes)
    wider = arguments.get("preferred_element_type")
    return out if wider is None else lax.convert_element_type(out, wider)


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
        ours, theirs = (
            jax.jit(partial(_call_with_tensors, compute, function, static))
            for compute in (_compute_with_jaxconv, compute_with_lax)
        )
        found.append((node, *time_both(ours, theirs, tensors)))
    return found


def _compute_with_jaxconv(function: Callable[..., Array], arguments: dict[str, Any]) -> Array:
    return function(**arguments)


def _call_with_tensors(
    compute: Callable[..., Array],
    function: Callable[..., Array],
    static: dict[str, Any],
    tensors: dict[str, Any],
) -> Array:
    """Compute a function of static arguments and tensors; tensors are the arguments of a jit."""
    return compute(function, static | tensors)
