"""Graphs of oneDNN Graph's JSON format: read, ordered, given inputs, run; and what is refused."""

import json
import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxconv import onednn
from tests.support.graphs import (
    COARSE,
    FINE,
    FORWARD,
    KINDS,
    TAPS,
    exact,
    graph,
    integers,
    node,
    tensor,
)

WINDOW = FORWARD | {"auto_pad": "None"}
SRC, DST = tensor(0, *FINE), tensor(3, *COARSE)
CONVOLUTION = node(7, "Convolution", [SRC, tensor(1, *TAPS)], DST, **WINDOW)
RELU = node(2, "ReLU", [DST], tensor(9, *COARSE))
TWO = graph(RELU, CONVOLUTION)  # the second before the first
X, W = integers(*FINE), integers(*TAPS)
EXACT = exact("Convolution", X, W)


def refused(message, *args, error=ValueError, function=onednn.run_graph):
    with pytest.raises(error, match=f"^{message}"):
        function(*args)


@pytest.mark.parametrize(
    "inputs",
    [
        {0: X, 1: W}, {"1": W, "0": X}, {"CONVOLUTION_7.weights": W, "CONVOLUTION_7.src": X},
        {0: X, "CONVOLUTION_7.weights": W}, [X, W], (jax.numpy.asarray(X), W),
    ],
    ids=["ids", "strings", "names", "both", "order", "tuple"],
)  # fmt: skip
def test_inputs_by_id_by_name_and_in_order(inputs):
    found = onednn.run_graph(TWO, inputs)
    assert list(found) == [9]
    np.testing.assert_array_equal(found[9], np.maximum(EXACT, 0).astype(np.float32), strict=True)


def test_tensors_may_have_names():
    named = node(0, "Add", [tensor(0, 2, name="x"), tensor(1, 2, name="y")], tensor(2, 2))
    x, y = np.float32([1, 2]), np.float32([10, 20])
    found = onednn.run_graph(graph(named), {"y": y, "x": x})
    np.testing.assert_array_equal(found[2], [11, 22])


def test_a_path_text_and_a_dict(tmp_path):
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(TWO, indent=2))
    expected = onednn.load_graph(TWO)
    assert onednn.load_graph(expected) is expected
    for given in (path, str(path), json.dumps(TWO), "\n " + json.dumps(TWO)):
        assert onednn.load_graph(given) == expected


def test_the_ports_are_the_order_and_the_outputs():
    ports = TWO | {"input_ports": [1, 0], "output_ports": [3, 9]}
    found = onednn.run_graph(ports, [W, X])
    assert list(found) == [3, 9]
    np.testing.assert_array_equal(found[3], EXACT)
    np.testing.assert_array_equal(found[9], np.maximum(EXACT, 0))
    assert [t.id for t in onednn.load_graph(TWO | {"input_ports": [1]}).inputs] == [1, 0]


def test_without_ports_the_outputs_are_what_no_node_reads():
    also = node(8, "Abs", [DST], tensor(4, *COARSE))
    assert [t.id for t in onednn.load_graph(graph(also, RELU, CONVOLUTION)).outputs] == [4, 9]


def test_the_order_is_that_of_the_file_but_for_what_is_needed():
    one = node(5, "Abs", [tensor(20, 2)], tensor(21, 2))
    two = node(4, "Abs", [tensor(22, 2)], tensor(23, 2))
    nodes = onednn.load_graph(graph(one, RELU, CONVOLUTION, two)).nodes
    assert [n.id for n in nodes] == [5, 7, 2, 4]


def test_jit_and_grad_of_a_whole_graph():
    read = onednn.load_graph(TWO)

    def loss(weights):
        return (onednn.run_graph(read, [X, weights])[9] ** 2).sum()

    value, slope = jax.jit(jax.value_and_grad(loss))(W)
    kept = np.maximum(EXACT, 0)
    assert value == (kept**2).sum()
    np.testing.assert_array_equal(slope, exact("ConvolutionBackwardWeights", X, 2 * kept))


@pytest.mark.parametrize(
    ("mode", "precision"), [("strict", "HIGHEST"), ("tf32", "HIGH"), ("any", "DEFAULT")]
)
def test_fpmath_mode_is_the_precision(mode, precision):
    given = TWO | {"fpmath_mode": mode, "fpmath_mode_apply_to_int": "false"}

    def found(**more):
        jaxpr = str(jax.make_jaxpr(lambda x: onednn.run_graph(given, x, **more))([X, W]))
        return set(re.findall(r"\b(HIGHEST|HIGH|DEFAULT)\b", jaxpr))

    assert found() == {precision}
    assert found(precision="high") == {"HIGH"}


# What dumps of Backward operations have: shapes of 12 zeros, as inputs, or not at all
#: The kinds that take a shape, and its name.
SHAPED = {
    kind: name
    for kind, (_, _, attributes, _) in KINDS.items()
    for name in attributes
    if name.endswith("_shape")
}


def backward(kind, how):
    """Its graph, and its inputs."""
    first, second, attributes, out = KINDS[kind]
    attributes, shape = attributes | {"auto_pad": "None"}, SHAPED[kind]
    del attributes[shape]
    if how == "zeros":
        attributes |= {shape: [0] * 12}
        if kind != "ConvolutionBackwardWeights":
            attributes |= {"output_padding": [0] * 12}
    tensors = [tensor(0, *first), tensor(1, *second)]
    arrays = [integers(*first, seed=1), integers(*second, seed=2)]
    if how == "input":
        tensors.append(tensor(5, 4, dtype="s32"))
        arrays.append(np.int32(out))
    made = graph(node(3, kind, tensors, tensor(4, *out), **attributes))
    if how == "input":  # and where only that tells it
        unknown = graph(node(3, kind, tensors, tensor(4, -1, *out[1:3], -1), **attributes))
        assert onednn.run_graph(unknown, arrays)[4].shape == out
    return made, arrays


@pytest.mark.parametrize("how", ["zeros", "input", "none"])
@pytest.mark.parametrize("kind", SHAPED)
def test_a_shape_is_an_input_or_the_output_s_own(kind, how):
    """As an attribute it is in test_operations.py."""
    made, arrays = backward(kind, how)
    expected = exact(kind, *arrays[:2]).astype(np.float32)
    run = partial(onednn.run_graph, made)
    for way in (run, jax.jit(run)):
        np.testing.assert_array_equal(way(arrays)[4], expected, strict=True)


def test_what_another_node_says_of_a_tensor_holds_where_it_is_made():
    """The sum, 257, is no bfloat16."""
    window = {"strides": [1], "pads_begin": [0], "pads_end": [0], "dilations": [1]}
    inputs = [tensor(0, 1, 1, 2, dtype="bf16"), tensor(1, 1, 2, 1, dtype="bf16")]
    made = graph(
        node(0, "Convolution", inputs, unknown := tensor(2, -1, -1, -1, dtype="undef"), **window),
        node(1, "Maximum", [tensor(2, 1, 1, 1), unknown], tensor(3, -1, -1, -1)),
        output_ports=[2, 3],
    )
    arrays = [jnp.bfloat16([[[256, 1]]]), jnp.ones((1, 2, 1), jnp.bfloat16)]
    found = onednn.run_graph(made, arrays).values()
    assert [(y.dtype, y.item()) for y in found] == [(jnp.float32, 257)] * 2
    made["graph"][1]["inputs"][0] = tensor(2, 1, 1, 7)
    with pytest.raises(ValueError, match=r"the output must be 2: f32 \(1, 1, 7\); got float32"):
        onednn.run_graph(made, arrays)


def test_a_shape_is_random_in_no_way():
    made, _ = backward("ConvolutionBackwardData", "input")
    assert onednn.random_inputs(made)[5].tolist() == list(FINE)
    assert onednn.run_graph(made)[4].shape == FINE


def test_a_shape_that_is_not_the_output_s_is_refused():
    made, arrays = backward("ConvolutionBackwardData", "input")
    shorter = np.int32([2, 4, 6, 6])
    message = r"node 3 .*: the output must be 4: f32 \(2, 4, 7, 6\); got float32 \(2, 4, 6, 6\)"
    refused(message, made, [*arrays[:2], shorter])


def test_random_inputs_are_as_the_graph_says():
    types = {"f32": np.float32, "s8": np.int8, "u8": np.uint8, "s32": np.int32, "boolean": bool}
    nodes = [
        node(i, "StaticReshape", [tensor(i, 50, 2, dtype=t)], tensor(100 + i, 100, dtype=t),
             shape=[-1], special_zero=False)
        for i, t in enumerate(types)
    ]  # fmt: skip
    made = graph(*nodes, node(9, "Sqrt", [tensor(9, 40)], tensor(109, 40)))
    drawn = onednn.random_inputs(made)
    assert [x.dtype for x in drawn.values()] == [*map(np.dtype, types.values()), np.float32]
    assert min(drawn[0].min(), drawn[1].min()) < 0
    assert drawn[9].min() >= 0
    again, other = onednn.random_inputs(made), onednn.random_inputs(made, seed=1)
    for i, x in drawn.items():
        np.testing.assert_array_equal(x, again[i])
        assert not np.array_equal(x, other[i])
    assert np.isfinite(onednn.run_graph(made)[109]).all()


LISTED = (
    r"run_graph: the inputs are 0: f32 \(2, 4, 7, 6\) \(CONVOLUTION_7\.src\); "
    r"1: f32 \(6, 2, 3, 2\) \(CONVOLUTION_7\.weights\); "
)


@pytest.mark.parametrize(
    ("message", "inputs", "error"),
    [
        (LISTED + "missing: 1$", {0: X}, ValueError),
        (LISTED + "got 1$", [X], ValueError),
        (LISTED + "got 3$", {0: X, 3: W}, ValueError),
        (LISTED + r"got 'CONVOLUTION_7\.weight'; did you mean 'CONVOLUTION_7\.weights'\?$",
         {0: X, "CONVOLUTION_7.weight": W}, ValueError),
        (r"run_graph: an input must be given once; got 'CONVOLUTION_7\.src', 0 again$",
         {0: X, "CONVOLUTION_7.src": X, 1: W}, ValueError),
        (r"run_graph: an input must be as the graph says, 1: f32 \(6, 2, 3, 2\); got float32 "
         r"\(6, 2, 2, 3\)$", {0: X, 1: W.swapaxes(2, 3)}, TypeError),
        (r"run_graph: an input must be as the graph says, 0: .* got int32 \(2, 4, 7, 6\)$",
         {0: X.astype(np.int32), 1: W}, TypeError),
        (r"run_graph: an input must be as the graph says, 0: .* got object \(2,\)$",
         {0: [1, [2]], 1: W}, TypeError),
        (r"run_graph: `0: .*` must be a JAX or NumPy array; got a masked one\.",
         {0: np.ma.masked_array(X), 1: W}, TypeError),
        (r"run_graph: `inputs` must be a dict or a sequence of arrays; got 3 \(int\)$", 3,
         TypeError),
    ],
)  # fmt: skip
def test_wrong_inputs(message, inputs, error):
    refused(message, TWO, inputs, error=error)


def test_a_name_that_several_nodes_have_tells_of_no_input():
    """Dumps call all their products mul."""
    one = node(0, "Multiply", [tensor(0, 2), tensor(1, 2)], tensor(2, 2)) | {"name": "mul"}
    two = node(1, "Multiply", [tensor(2, 2), tensor(3, 2)], tensor(4, 2)) | {"name": "mul"}
    made, x = graph(one, two), np.float32([3, 5])
    refused(
        r"run_graph: a name must be that of one input; got 'mul\.src_1', which is any of 1, 3: "
        r"give it by its id$",
        made,
        {"mul.src_0": x, "mul.src_1": x, 3: x},
    )
    found = onednn.run_graph(made, {"mul.src_0": x, 1: x, 3: x})  # of the second it is computed
    np.testing.assert_array_equal(found[4], x**3)


@pytest.mark.parametrize(
    ("message", "made", "error"),
    [
        (r"graph: the text must be JSON; Expecting", "{]", ValueError),
        (r"graph: it must be a path, JSON text or a dict .* got \[\] \(list\)", [], TypeError),
        (r"graph: it must be a path, .* got \[\] \(list\)", " []", TypeError),
        (r"graph: `graph` must be a list; got None", {"nodes": []}, TypeError),
        (r"graph: `graph` must list at least one node; got none", {"graph": []}, ValueError),
        (r"graph: node number 0: `kind` must be a string", graph(RELU | {"kind": 3}), TypeError),
        (r"node 2 'RELU_2' \(ReLU\): `attrs` must be a dict by name; got \[\]",
         graph(RELU | {"attrs": []}), TypeError),
        (r"node 2 'RELU_2' \(ReLU\): outputs: tensor 1: `dtype` must be f32, bf16, .* or undef; "
         r"got 'f64'", graph(RELU | {"outputs": [tensor(1, 2, dtype="f64")]}), ValueError),
        (r"node 2 'RELU_2' \(ReLU\): inputs: a tensor must be a dict with an `id`, an int; got 1",
         graph(RELU | {"inputs": [1]}), TypeError),
        (r"node 2 'RELU_2' \(ReLU\): inputs: tensor 1: `shape` must be a list of ints; got 'ab'",
         graph(RELU | {"inputs": [tensor(1, 2) | {"shape": "ab"}]}), TypeError),
        (r"node 2 'AGAIN' \(ReLU\): the ids of nodes must differ; got that of node 2 'RELU_2'",
         graph(RELU, RELU | {"name": "AGAIN"}), ValueError),
        (r"node 3 'RELU_2' \(ReLU\): tensor 9 is computed by node 2 'RELU_2' \(ReLU\) too",
         graph(RELU, RELU | {"id": 3}), ValueError),
        (r"node 7 .*: a tensor must be the same in all nodes; got 3: f32 \(2, 6, 3, 6\), but 3: "
         r"bf16 \(2, 6, 3, 6\)",
         graph(RELU | {"inputs": [tensor(3, *COARSE, dtype="bf16")]}, CONVOLUTION), ValueError),
        (r"graph: `output_ports` must be ids of tensors \(0, 1, 3, 9\); got 5",
         TWO | {"output_ports": [5]}, ValueError),
        (r"graph: `input_ports` has tensor 3, which node 7 .* computes",
         TWO | {"input_ports": [0, 1, 3]}, ValueError),
        (r"graph: `input_ports` must be a list of ids", TWO | {"input_ports": "0"}, TypeError),
        (r"graph: nodes must not form a cycle; got node 0 'ABS_0' \(Abs\) -> node 1 "
         r"'ABS_1' \(Abs\) -> node 0|graph: nodes must .* got node 1 .* node 0 .* node 1",
         graph(node(0, "Abs", [tensor(0, 2)], tensor(1, 2)),
               node(1, "Abs", [tensor(1, 2)], tensor(0, 2))), ValueError),
        (r"graph: `fpmath_mode` must be 'strict', ", TWO | {"fpmath_mode": "f8"}, ValueError),
    ],
)  # fmt: skip
def test_wrong_graphs(message, made, error):
    refused(message, made, error=error)


@pytest.mark.parametrize(
    ("message", "made"),
    [
        (r"the kind must be Convolution, .* or Dequantize; got 'Relu'; did you mean 'ReLU'\?$",
         RELU | {"kind": "Relu"}),
        (r"the outputs must be 1; got 0$", RELU | {"outputs": []}),
        (r"the inputs must be src; got 2$", RELU | {"inputs": [DST, DST]}),
        (r"the attribute `alpha` is required; got none$", RELU | {"kind": "Elu"}),
        (r"the attributes are alpha; got 'alfa'; did you mean 'alpha'\?$",
         RELU | {"kind": "Elu", "attrs": {"alfa": 1}}),
        (r"the attribute `alpha` must be a number \(f32\); got 'a' \(str\)$",
         RELU | {"kind": "Elu", "attrs": {"alpha": "a"}}),
        (rf"the attribute `alpha` must be a number \(f32\); got {2**128} \(int\)$",
         RELU | {"kind": "Elu", "attrs": {"alpha": 2**128}}),
        (r"the output must be 9: f32 \(2, 6, 3\); got float32 \(2, 6, 3, 6\)$",
         RELU | {"outputs": [tensor(9, 2, 6, 3)]}),
        (r"the type of the output must be f32, bf16 or f16; got int8$",
         RELU | {"outputs": [tensor(9, *COARSE, dtype="s8")]}),
        (r"the type of src must be s8 or u8; got float32$",
         RELU | {"kind": "Dequantize", "attrs": {"scales": [1.0]}}),
    ],
)  # fmt: skip
def test_errors_name_the_node(message, made):
    with pytest.raises((TypeError, ValueError), match=rf"^node 2 'RELU_2' \(\w+\): {message}"):
        onednn.run_graph(graph(made, CONVOLUTION), [X, W])


def test_errors_of_a_convolution_name_the_node():
    wrong = node(7, "Convolution", CONVOLUTION["inputs"], DST, **(WINDOW | {"groups": 3}))
    refused(r"node 7 'CONVOLUTION_7' \(Convolution\): `groups` must ", graph(wrong), [X, W])
    narrow = CONVOLUTION | {"outputs": [tensor(3, *COARSE, dtype="bf16")]}
    message = r"node 7 .*: the type of the output must be f32; got bfloat16$"
    refused(message, graph(narrow), [X, W], error=TypeError)
