"""`python -m jaxconv.onednn FILE.json`: run a graph, check and time its convolutions."""

import argparse
import sys
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxconv._lowering import forced
from jaxconv._tools.clock import time_both
from jaxconv.onednn import explain_graph, load_graph, random_inputs, run_graph
from jaxconv.onednn._check import check
from jaxconv.onednn._graphs.graph import Graph
from jaxconv.onednn._graphs.inputs import Arrays
from jaxconv.onednn._graphs.partitions import join_nodes
from jaxconv.onednn._graphs.run import TENSORS, convolution_calls, evaluate


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command: 0 if all is right, 1 if not, 2 if the graph cannot run."""
    parser = argparse.ArgumentParser(
        prog="python -m jaxconv.onednn",
        description="Run a graph of oneDNN Graph's JSON format on random inputs.",
        epilog="Exit code: 0 all right, 1 wrong numbers, 2 the graph cannot be read or run.",
    )
    parser.add_argument("file", metavar="FILE.json")
    parser.add_argument("--check", action="store_true", help="each convolution against NumPy")
    parser.add_argument("--explain", action="store_true", help="how each convolution is computed")
    parser.add_argument("--time", action="store_true", help="all beside plain lax")
    parser.add_argument("--seed", type=int, default=0, help="of the inputs; 0 by default")
    asked = parser.parse_args(argv)
    try:
        graph = load_graph(asked.file)
        print(graph)
        for joined in join_nodes(graph).nodes:
            if joined.followers:
                print(f"  {joined.names} in one")
        inputs = random_inputs(graph, asked.seed)
        run(graph, inputs)
        if asked.explain:
            for node, explanation in explain_graph(graph).items():
                print(f"\nnode {node}: {explanation}")
        right = print_check(graph, inputs) if asked.check else True
        if asked.time:
            print_times(graph, inputs)
    except (OSError, TypeError, ValueError, MemoryError, jax.errors.JaxRuntimeError) as error:
        print(f"FAIL: {error}", file=sys.stderr)
        return 2
    return 0 if right else 1


def run(graph: Graph, inputs: Arrays) -> None:
    """Compute a graph as one program, and print its outputs."""
    # Without the wait, reading what could not be allocated ends the process.
    outputs = jax.block_until_ready(jax.jit(partial(run_graph, graph))(_to_jax(inputs)))
    for tensor in graph.outputs:
        x = np.asarray(outputs[tensor.id]).astype(np.float64)
        told = f"from {x.min():.4g} to {x.max():.4g}, mean {x.mean():.4g}" if x.size else "empty"
        print(f"\n{tensor}: {told}")


def print_check(graph: Graph, inputs: Arrays) -> bool:
    """Print a line for each convolution; return whether all are right."""
    print("\nEach convolution alone against its sum in float64; error in multiples of the bound")
    print("4 eps sqrt(terms) of the sum of absolute values, and one rounding to 16 bits:")
    errors = check(graph, inputs)
    for node, error in errors:
        print(f"  {node}: {error:.3f} {'ok' if error <= 1 else 'FAIL'}")
    return all(error <= 1 for _, error in errors)


def print_times(graph: Graph, inputs: Arrays) -> None:
    """Print a line for each convolution and one for the graph."""
    print(f"\n{'milliseconds, the fastest of several calls in turn':56}{'jaxconv':>9}{'lax':>9}")
    arrays = jax.jit(partial(evaluate, graph))(_to_jax(inputs))
    for node, function, arguments in convolution_calls(graph, arrays):
        tensors = [jnp.asarray(arguments.pop(name)) for name in TENSORS if name in arguments]
        convolve = partial(function, **arguments)
        _print_times(node, convolve, convolve, *tensors)

    def compute_node_by_node(arrays: Arrays) -> Arrays:
        computed = evaluate(graph, arrays)
        return {tensor.id: computed[tensor.id] for tensor in graph.outputs}

    ours = partial(run_graph, graph)
    _print_times("the whole graph", ours, compute_node_by_node, _to_jax(inputs))


def _print_times(
    title: object, ours: Callable[..., Any], laxs: Callable[..., Any], *arrays: Any
) -> None:
    """Time two functions, the second by one `lax.conv_general_dilated` for each convolution."""

    def compute_with_lax(*arrays: Any) -> Any:
        with forced("reference"):
            return laxs(*arrays)

    times = time_both(jax.jit(ours), jax.jit(compute_with_lax), *arrays)
    print(f"  {title!s:54}" + "".join(f"{1e3 * seconds:9.3f}" for seconds in times))


def _to_jax(inputs: Arrays) -> Arrays:
    return {i: jnp.asarray(x) for i, x in inputs.items()}


if __name__ == "__main__":
    sys.exit(main())
