"""`python -m jaxconv.onednn FILE.json`: run a graph, check and time its convolutions."""

import argparse
import sys
from collections.abc import Sequence
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

from jaxconv.onednn import explain_graph, load_graph, random_inputs, run_graph
from jaxconv.onednn._check import check
from jaxconv.onednn._graphs.graph import Graph
from jaxconv.onednn._graphs.inputs import Arrays
from jaxconv.onednn._graphs.partitions import join_nodes
from jaxconv.onednn._timing import time_convolutions, time_graph


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
    except (OSError, TypeError, ValueError) as error:
        print(f"FAIL: {error}", file=sys.stderr)
        return 2
    wrong = print_check(graph, inputs) if asked.check else 0
    if asked.time:
        print_times(graph, inputs)
    return 1 if wrong else 0


def run(graph: Graph, inputs: Arrays) -> None:
    """Compute a graph as one program, and print its outputs."""
    arrays = {i: jnp.asarray(x) for i, x in inputs.items()}
    found = jax.jit(partial(run_graph, graph))(arrays)
    for tensor in graph.outputs:
        x = np.asarray(found[tensor.id]).astype(np.float64)
        print(f"\n{tensor}: from {x.min():.4g} to {x.max():.4g}, mean {x.mean():.4g}")


def print_check(graph: Graph, inputs: Arrays) -> int:
    """Print a line for each convolution; return how many are wrong."""
    print("\nEach convolution alone against its sum in float64; error in multiples of the bound")
    print("4 eps sqrt(terms) of the sum of absolute values, and one rounding to 16 bits:")
    findings = check(graph, inputs)
    for finding in findings:
        print(f"  {finding.node}: {finding.error:.3f} {'ok' if finding.ok else 'FAIL'}")
    return sum(not finding.ok for finding in findings)


def print_times(graph: Graph, inputs: Arrays) -> None:
    """Print a line for each convolution and one for the graph."""
    print(f"\n{'milliseconds, the fastest of several calls in turn':56}{'jaxconv':>9}{'lax':>9}")
    for node, ours, theirs in time_convolutions(graph, inputs):
        print(f"  {node!s:54}{1e3 * ours:9.3f}{1e3 * theirs:9.3f}")
    ours, theirs = time_graph(graph, inputs)
    print(f"  {'the whole graph':54}{1e3 * ours:9.3f}{1e3 * theirs:9.3f}")


if __name__ == "__main__":
    sys.exit(main())
