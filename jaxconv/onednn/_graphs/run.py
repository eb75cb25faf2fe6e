"""Run a graph: match arrays to the inputs, compute its nodes, check the results."""

from collections import ChainMap
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxconv._base.messages import Refusal, either
from jaxconv._base.typing import DType, PrecisionLike, Shape
from jaxconv._rules.op import OPS
from jaxconv._rules.values import check_attributes, suggestion
from jaxconv._tools.explain import Explanation, explain
from jaxconv._tools.inspect import resolve
from jaxconv.onednn._convolutions import fpmath_precision, prepare_call
from jaxconv.onednn._graphs.graph import DTYPES, Graph, Node, Tensor
from jaxconv.onednn._graphs.inputs import GRAPH_KINDS, Arrays, InputsLike, known_dtype, match_inputs
from jaxconv.onednn._graphs.kinds import FLOAT_TYPES, SPECS
from jaxconv.onednn._graphs.load import GraphLike, load_graph
from jaxconv.onednn._graphs.partitions import fold_followers, join_nodes
from jaxconv.onednn._names import find_kind

#: The arguments of a convolution's kind that are arrays.
TENSORS = ("src", "diff_dst", "weights", "bias")


def run_graph(
    graph: GraphLike, inputs: InputsLike | None = None, *, precision: PrecisionLike = None
) -> dict[int, Array]:
    """Compute the outputs of a graph: a dict from ids to arrays.

    The graph is static, so a function that calls `run_graph` can be jitted. The outputs are
    differentiable in the inputs that reach them by floating-point operations alone.

    A Convolution or ConvTranspose is computed together with the chain of nodes that follow, in
    float32, and rounded once (on GPU and TPU, sums of 16-bit types are rounded too). The chain may
    have BiasAdd, BatchNormInference, TypeCast, and kinds that compute element by element of one
    tensor or two. What stands first in the chain is part of the operation: a bias, then an Add of
    a tensor of the same shape, then ReLU, Clamp from 0 to 6, LeakyReLU, Elu, Tanh, Sigmoid, GELU
    or x * sigmoid(x). The chain ends at a tensor that another node reads, that `output_ports`
    lists, or whose type is neither src's nor f32.

    Args:
      graph: the argument of `load_graph`.
      inputs: a dict by ids, by the names of tensors or by the names of a node's inputs, as in
        "CONV_0.weights"; or a sequence in the order of `input_ports`, or else in the order in which
        nodes read inputs. By default, `random_inputs` draws the inputs.
      precision: of the convolutions; by default, as the graph's `fpmath_mode` says.

    Returns:
      The graph's `output_ports`, or else all tensors that no node reads.

    Raises:
      TypeError, ValueError: the error names the node, the rule, and the argument it got.
    """
    graph = load_graph(graph)
    arrays = evaluate(join_nodes(graph), match_inputs(graph, inputs), precision=precision)
    return {tensor.id: jnp.asarray(arrays[tensor.id]) for tensor in graph.outputs}


def explain_graph(graph: GraphLike) -> dict[int, Explanation]:
    """Call `jaxconv.explain` for each convolution of a graph, by the id of the node.

    `Explanation.nodes` names the nodes that are computed together with the convolution. The plan
    and its cost are those of the convolution alone.

    Args:
      graph: the argument of `load_graph`. All inputs must have known shapes and types.
    """
    graph = load_graph(graph)
    inputs = {t.id: jax.ShapeDtypeStruct(t.shape, known_dtype(t)) for t in graph.inputs}
    # The graph as it is: joined nodes hide the tensors between them.
    specs = jax.eval_shape(partial(evaluate, graph), inputs)
    return {
        node.id: replace(explain(function, **arguments), nodes=node.names if node.followers else "")
        for node, function, arguments in convolution_calls(join_nodes(graph), specs)
    }


def evaluate(graph: Graph, inputs: Mapping[int, Any], *, precision: PrecisionLike = None) -> Arrays:
    """Compute all tensors by id, but for those within the partitions of `join_nodes`."""
    for node in graph.nodes:
        if node.kind not in GRAPH_KINDS:
            raise ValueError(
                f"{node}: the kind must be {either(GRAPH_KINDS)}; "
                f"got {node.kind!r}{suggestion(node.kind, GRAPH_KINDS)}"
            )
        if len(node.outputs) != 1:
            raise ValueError(f"{node}: the outputs must be 1; got {len(node.outputs)}")
    if precision is None:
        precision = fpmath_precision("graph", graph.fpmath_mode)
    arrays: Arrays = dict(inputs)
    for node in graph.nodes:
        [tensor] = node.chain[-1].outputs
        if node.kind in SPECS:
            arrays[tensor.id] = _compute_node(node, arrays)
        else:
            arrays[tensor.id] = _compute_partition(node, arrays, precision)
    return arrays


def _compute_partition(node: Node, arrays: Arrays, precision: PrecisionLike) -> Array:
    """Compute a convolution and its followers, if any, in float32, and round once."""
    dtype = DTYPES.get(node.chain[-1].outputs[0].dtype)
    with _blame_node(node):
        function, arguments = _call_of_node(node, arrays, precision)
        # The convolution's own errors come first, as if nothing followed.
        alone = resolve(function, **arguments)
        own_dtype = DTYPES.get(node.outputs[0].dtype, arrays[node.inputs[0].id].dtype)
        _check_output(node, alone.shape(OPS[alone.op].result), own_dtype)
        more, rest = fold_followers(node, arguments)
        for name, value in more.items():
            arguments[name] = arrays[value.id] if isinstance(value, Tensor) else value
        if not rest:
            arguments["preferred_element_type"] = dtype
        elif jax.default_backend() == "cpu":  # elsewhere XLA would convert operands to float32
            arguments["preferred_element_type"] = jnp.float32
        result = function(**arguments)
    within = ChainMap({node.chain[-1 - len(rest)].outputs[0].id: result}, arrays)
    for follower in rest:
        result = _compute_node(follower, within, jnp.float32)
        within[follower.outputs[0].id] = result
    return result if dtype is None else result.astype(dtype)


def convolution_calls(
    graph: Graph, arrays: Mapping[int, Any], precision: PrecisionLike = None
) -> Iterator[tuple[Node, Callable[..., Array], dict[str, Any]]]:
    """Yield the node of each convolution, its operation, and its arguments by name."""
    if precision is None:
        precision = fpmath_precision("graph", graph.fpmath_mode)
    for node in graph.nodes:
        if node.kind not in SPECS:
            yield node, *_call_of_node(node, arrays, precision)


def _call_of_node(
    node: Node, arrays: Mapping[int, Any], precision: PrecisionLike
) -> tuple[Callable[..., Array], dict[str, Any]]:
    values, [out] = [arrays[tensor.id] for tensor in node.inputs], node.outputs
    shape = out.shape if out.known and find_kind(node.kind).shape is not None else None
    if shape is not None and not all(map(_is_concrete, values[2:])):
        values = values[:2]  # a shape must be static, and the graph has it
    function, arguments = prepare_call(node.kind, values, node.attributes, shape)
    dtype, src = DTYPES.get(out.dtype), DTYPES.get(node.inputs[0].dtype, values[0].dtype)
    if dtype is not None and src in (DTYPES[name] for name in FLOAT_TYPES):
        _check_type("the output", dtype, [n for n in DTYPES if DTYPES[n] in (src, DTYPES["f32"])])
    numerics = {"precision": precision, "preferred_element_type": dtype}
    return function, arguments | numerics


def _is_concrete(value: object) -> bool:
    return isinstance(value, np.ndarray | jax.Array) and not isinstance(value, jax.core.Tracer)


def _compute_node(node: Node, arrays: Mapping[int, Any], dtype: DType | None = None) -> Array:
    """Compute a node, to a result of its type, or of another `dtype` within a partition."""
    spec, [out] = SPECS[node.kind], node.outputs
    with _blame_node(node):
        if len(node.inputs) != len(spec.inputs):
            raise ValueError(f"the inputs must be {', '.join(spec.inputs)}; got {len(node.inputs)}")
        attributes = check_attributes(node.kind, node.attributes, spec.attributes)
        values = [jnp.asarray(arrays[tensor.id]) for tensor in node.inputs]
        for name, x in zip(spec.inputs, values, strict=True):
            _check_type(name, x.dtype, spec.input_types)
        own_dtype = DTYPES.get(out.dtype, values[0].dtype)
        _check_type("the output", own_dtype, spec.output_types)
        result = spec.compute(own_dtype if dtype is None else dtype, *values, **attributes)
        _check_output(node, result.shape, own_dtype)
        return result


def _check_output(node: Node, shape: Shape, dtype: DType) -> None:
    [tensor] = node.outputs
    if not tensor.fits(shape, dtype):
        raise ValueError(f"the output must be {tensor}; got {dtype} {shape}")


def _check_type(name: str, dtype: DType, accepted: Sequence[str]) -> None:
    if dtype not in [DTYPES[known] for known in accepted]:
        raise TypeError(f"the type of {name} must be {either(accepted)}; got {dtype}")


@contextmanager
def _blame_node(node: Node) -> Iterator[None]:
    """Name the node in errors that are raised within."""
    try:
        yield
    except (TypeError, ValueError) as error:
        message: Any = error.args[0] if error.args else ""
        known = isinstance(message, Refusal)
        base = TypeError if isinstance(error, TypeError) else ValueError
        raise base(message.rename(str(node), {}) if known else f"{node}: {error}") from error
