"""How fast is a graph? Each convolution, and the whole graph, beside plain lax."""

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxconv._base.reshape import move_groups
from jaxconv._rules.op import OPS
from jaxconv._tools.inspect import resolve
from jaxconv.onednn._graphs.graph import Graph, Node
from jaxconv.onednn._graphs.inputs import Arrays
from jaxconv.onednn._graphs.run import TENSORS, convolution_calls, evaluate

#: The time for one pair, and the rounds.
BUDGET_SECONDS, MIN_ROUNDS, MAX_ROUNDS = 0.5, 3, 200


def call_lax(function: Callable[..., Array], arguments: dict[str, Any]) -> Array:
    """Compute an operation as users of lax do: by a convolution, or the transpose of one."""
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
    """Time a graph by jaxconv, and with lax in place of its operations, in seconds."""
    arrays = {i: jnp.asarray(x) for i, x in inputs.items()}
    ways = [partial(evaluate, graph), partial(evaluate, graph, convolve=call_lax)]

    def outputs(way: Callable[..., Arrays], given: Arrays) -> Arrays:
        found = way(given)
        return {tensor.id: found[tensor.id] for tensor in graph.outputs}

    ours, theirs = (jax.jit(partial(outputs, way)) for way in ways)
    return time_in_turn(ours, theirs, arrays)


def time_convolutions(graph: Graph, inputs: Arrays) -> list[tuple[Node, float, float]]:
    """Time each convolution by jaxconv and by lax, on its inputs in the graph, in seconds."""
    arrays = jax.jit(partial(evaluate, graph))({i: jnp.asarray(x) for i, x in inputs.items()})
    found = []
    for node, function, arguments in convolution_calls(graph, arrays):
        tensors = {name: jnp.asarray(arguments[name]) for name in TENSORS if name in arguments}
        rest = {name: value for name, value in arguments.items() if name not in tensors}

        ways = (_call, call_lax)
        ours, theirs = (jax.jit(partial(_call_on, way, function, rest)) for way in ways)
        found.append((node, *time_in_turn(ours, theirs, tensors)))
    return found


def _call(function: Callable[..., Array], arguments: dict[str, Any]) -> Array:
    return function(**arguments)


def _call_on(
    way: Callable[..., Array],
    function: Callable[..., Array],
    rest: dict[str, Any],
    tensors: dict[str, Any],
) -> Array:
    return way(function, rest | tensors)


def time_in_turn(
    ours: Callable[[Any], Any], theirs: Callable[[Any], Any], arguments: Any
) -> tuple[float, float]:
    """Time calls of both in turn, after a call that compiles: the seconds of the fastest."""
    both = (ours, theirs)
    for function in both:
        jax.block_until_ready(function(arguments))
    best, rounds, end = [float("inf")] * 2, 0, time.perf_counter() + BUDGET_SECONDS
    while rounds < MIN_ROUNDS or (rounds < MAX_ROUNDS and time.perf_counter() < end):
        rounds += 1
        for which, function in enumerate(both):
            start = time.perf_counter()
            jax.block_until_ready(function(arguments))
            best[which] = min(best[which], time.perf_counter() - start)
    return best[0], best[1]
