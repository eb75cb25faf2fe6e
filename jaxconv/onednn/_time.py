"""How fast is a graph? Each convolution, and all of it, beside plain lax."""

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

#: Seconds in which to time one pair, the fewest rounds and the most.
BUDGET, FEWEST, MOST = 0.5, 3, 200


def plain(function: Callable[..., Array], arguments: dict[str, Any]) -> Array:
    """An operation as one writes it in lax: a convolution, or the transpose of one."""
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


def whole(graph: Graph, inputs: Arrays) -> tuple[float, float]:
    """Seconds of a graph: by jaxconv, and by lax in place of its operations."""
    arrays = {i: jnp.asarray(x) for i, x in inputs.items()}
    ways = [partial(evaluate, graph), partial(evaluate, graph, convolve=plain)]

    def outputs(way: Callable[..., Arrays], given: Arrays) -> Arrays:
        found = way(given)
        return {tensor.id: found[tensor.id] for tensor in graph.outputs}

    ours, theirs = (jax.jit(partial(outputs, way)) for way in ways)
    return interleaved(ours, theirs, arrays)


def each(graph: Graph, inputs: Arrays) -> list[tuple[Node, float, float]]:
    """Seconds of each convolution by jaxconv and by lax, on its inputs in the graph."""
    arrays = jax.jit(partial(evaluate, graph))({i: jnp.asarray(x) for i, x in inputs.items()})
    found = []
    for node, function, arguments in convolution_calls(graph, arrays):
        tensors = {name: jnp.asarray(arguments[name]) for name in TENSORS if name in arguments}
        rest = {name: value for name, value in arguments.items() if name not in tensors}

        ways = (_called, plain)
        ours, theirs = (jax.jit(partial(_of_tensors, way, function, rest)) for way in ways)
        found.append((node, *interleaved(ours, theirs, tensors)))
    return found


def _called(function: Callable[..., Array], arguments: dict[str, Any]) -> Array:
    return function(**arguments)


def _of_tensors(
    way: Callable[..., Array],
    function: Callable[..., Array],
    rest: dict[str, Any],
    tensors: dict[str, Any],
) -> Array:
    return way(function, rest | tensors)


def interleaved(
    ours: Callable[[Any], Any], theirs: Callable[[Any], Any], arguments: Any
) -> tuple[float, float]:
    """The fastest call of each, in turn, after one that compiles."""
    both = (ours, theirs)
    for function in both:
        jax.block_until_ready(function(arguments))
    best, rounds, end = [float("inf")] * 2, 0, time.perf_counter() + BUDGET
    while rounds < FEWEST or (rounds < MOST and time.perf_counter() < end):
        rounds += 1
        for which, function in enumerate(both):
            start = time.perf_counter()
            jax.block_until_ready(function(arguments))
            best[which] = min(best[which], time.perf_counter() - start)
    return best[0], best[1]
