"""Partitions of graphs: which nodes are computed together, by which arguments, and the values.

Values are those of NumPy float64 on integers, rounded once.
"""

import json
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxconv import onednn
from jaxconv.onednn import __main__ as main
from jaxconv.onednn._graphs.partitions import fold_followers, join_nodes
from jaxconv.onednn._graphs.run import convolution_calls, evaluate
from tests.support.graphs import graph, integers, node, tensor
from tests.support.partitions import (
    CASES,
    CHANNELS,
    DST,
    OTHER,
    PAIRS,
    SMOOTH,
    SRC,
    TAPS,
    TYPES,
    VARIANTS,
    compute_exact,
    draw,
    find,
    make,
    make_case,
)


def find_partitions(made):
    """The names of all nodes after joining, and what each convolution is told."""
    read, told = onednn.load_graph(made), []
    joined = join_nodes(read)
    specs = {t.id: jax.ShapeDtypeStruct(t.shape, TYPES[t.dtype]) for t in read.inputs}
    specs = jax.eval_shape(partial(evaluate, read), specs)
    for found, _, arguments in convolution_calls(joined, specs):
        arguments |= fold_followers(found, arguments)[0]
        names = ("bias", "residual", "activation", "alpha")
        told.append([arguments[n] if n[0] == "a" else n for n in names if n in arguments])
    return [n.names for n in joined.nodes], told


@pytest.mark.parametrize(("name", "variant"), PAIRS)
def test_each_partition_is_one_node(name, variant):
    made = make_case(name, **VARIANTS[variant])
    whole = " + ".join(n["name"] for n in made["graph"])
    assert find_partitions(made) == ([whole], [CASES[name][1]])


@pytest.mark.parametrize("dtype", ["f32", "bf16", pytest.param("f16", marks=pytest.mark.slow)])
def test_the_values_are_rounded_once(dtype):
    """All cases as one program."""
    graphs = [onednn.load_graph(make_case(name, dtype, **VARIANTS[v])) for name, v in PAIRS]
    arrays = [{t.id: draw(t) for t in g.inputs} for g in graphs]
    run = jax.jit(lambda x: [onednn.run_graph(*one) for one in zip(graphs, x, strict=True)])
    for case, given, found in zip(PAIRS, arrays, run(arrays), strict=True):
        name, variant = case
        [array], exact = found.values(), compute_exact(name, given, **VARIANTS[variant])
        if name not in SMOOTH:
            rounded = exact.astype(np.float32).astype(TYPES[dtype])
            np.testing.assert_array_equal(np.asarray(array), rounded, str(case), strict=True)
            continue
        eps = float(jnp.finfo(TYPES[dtype]).eps) / 2 if dtype != "f32" else 0
        least = float(jnp.finfo(TYPES[dtype]).smallest_subnormal)
        bound = (eps + 32 * 2.0**-24) * np.abs(exact) + max(32 * 2.0**-24, least)
        error = np.abs(np.asarray(array, np.float64) - exact)
        assert np.all(error <= bound), (case, float(np.max(error / bound)))


RELU = ("ReLU", [DST])


@pytest.mark.parametrize(
    ("made", "names"),
    [
        (make(RELU, ("Abs", [DST])), ["CONVOLUTION_0", "RELU_1", "ABS_2"]),
        (make(RELU, output_ports=[DST, 10]), ["CONVOLUTION_0", "RELU_1"]),
        (make(RELU, ("Tanh", [10]), output_ports=[11, 10]), ["CONVOLUTION_0 + RELU_1", "TANH_2"]),
        (make(("Add", [DST, DST])), ["CONVOLUTION_0", "ADD_1"]),
        (make(("Sigmoid", [DST]), ("Multiply", [DST, 10]), ("Abs", [10])),
         ["CONVOLUTION_0", "SIGMOID_1", "MULTIPLY_2", "ABS_3"]),
        (make(("Sigmoid", [DST]), ("Multiply", [DST, OTHER])),
         ["CONVOLUTION_0", "SIGMOID_1", "MULTIPLY_2"]),
        (make(("ReLU", [DST]), ("Multiply", [DST, 10])), ["CONVOLUTION_0", "RELU_1", "MULTIPLY_2"]),
        (make(("PReLU", [CHANNELS, DST])), ["CONVOLUTION_0", "PRELU_1"]),
        (make(("Reorder", [DST])), ["CONVOLUTION_0", "REORDER_1"]),
    ],
    ids=[
        "two readers", "a port", "a port on the way", "a sum with itself", "a third reader",
        "a sigmoid that is no factor", "no sigmoid", "a slope", "a move",
    ],
)  # fmt: skip
def test_a_chain_ends_where_its_tensor_is_needed(made, names):
    joined = join_nodes(onednn.load_graph(made))
    assert sorted(n.names for n in joined.nodes) == sorted(names)


def tensors_of(made):
    return [t for part in made["graph"] for t in [*part["inputs"], *part["outputs"]]]


def change_shape(made, number, shape):
    for t in tensors_of(made):
        if t["id"] == number:
            t["shape"] = list(shape)
    return made


@pytest.mark.parametrize(
    ("changed", "names"),
    [
        ({}, ["CONVOLUTION_0 + RELU_1 + TANH_2"]),
        ({10: "f32"}, ["CONVOLUTION_0 + RELU_1 + TANH_2"]),
        ({10: "f16"}, ["CONVOLUTION_0", "RELU_1", "TANH_2"]),
        ({11: "f16"}, ["CONVOLUTION_0 + RELU_1", "TANH_2"]),
        ({DST: "f16"}, ["CONVOLUTION_0", "RELU_1", "TANH_2"]),
        ({10: "undef"}, ["CONVOLUTION_0", "RELU_1", "TANH_2"]),
    ],
)
def test_the_types_within_are_that_of_src_or_f32(changed, names):
    made = make(RELU, ("Tanh", [10]), dtype="bf16")
    for t in tensors_of(made):
        t["dtype"] = changed.get(t["id"], t["dtype"])
    assert [n.names for n in join_nodes(onednn.load_graph(made)).nodes] == names


def test_what_does_not_fit_the_operation_is_computed_in_the_chain():
    """Sums that broadcast, biases of other types and formats, and shapes that are unknown."""
    wide = find("Convolution", "NXC")[1][DST]
    one = change_shape(make(("Add", [DST, OTHER]), ("ReLU", [10])), OTHER, (1, *wide[1:]))
    first = make(("BiasAdd", [DST, CHANNELS]))
    first["graph"][1]["attrs"]["data_format"]["value"] = "NCX"
    change_shape(first, CHANNELS, wide[1:2])
    mixed = make(("BiasAdd", [DST, CHANNELS]), ("ReLU", [10]), dtype="bf16")
    mixed["graph"][1]["inputs"][1]["dtype"] = "f32"
    unknown = make(("Add", [DST, OTHER]), ("ReLU", [10]))
    for number in (DST, OTHER, 10, 11):
        change_shape(unknown, number, [-1] * 4)
    for made in (one, first, mixed):
        names, told = find_partitions(made)
        assert (len(names), told) == (1, [[]])
    read = onednn.load_graph(unknown)
    other = np.float32([[[[1]]], [[[2]]]])
    arrays = {SRC: integers(*read.inputs[0].shape), TAPS: integers(3, 2, 2, 6), OTHER: other}
    [found] = onednn.run_graph(read, arrays).values()
    np.testing.assert_array_equal(found, evaluate(read, arrays)[11])


def convolve(number, src, dst, taps, **attributes):
    """A node of a convolution with a bias; tensors are pairs of an id and a shape."""
    same = {"strides": [1, 1], "pads_begin": [0, 0], "pads_end": [0, 0], "dilations": [1, 1],
            "auto_pad": "SAME_UPPER"}  # fmt: skip
    inputs = [tensor(*src), tensor(100 + number, *taps), tensor(200 + number, taps[-1])]
    return node(number, "Convolution", inputs, tensor(*dst), **(same | attributes))


def follow(number, kind, reads, dst, **attributes):
    return node(number, kind, [tensor(*t) for t in reads], tensor(*dst), **attributes)


def make_resnet():
    """A basic block, whose shortcut is a convolution of src."""
    t = {i: (i, 2, 6, 6, 4) for i in range(9)}
    return graph(
        convolve(1, t[0], t[1], (3, 3, 4, 4)), follow(2, "ReLU", [t[1]], t[2]),
        convolve(3, t[2], t[3], (3, 3, 4, 4)), convolve(9, t[0], t[7], (1, 1, 4, 4)),
        follow(4, "Add", [t[3], t[7]], t[4]), follow(5, "ReLU", [t[4]], t[5]),
    )  # fmt: skip


def make_mobilenet():
    """An inverted residual: widened, each channel apart, narrowed, and added to src."""
    t = {i: (i, 2, 6, 6, 4 if i in (0, 6, 7) else 12) for i in range(8)}
    clamp = {"min": 0.0, "max": 6.0}
    return graph(
        convolve(1, t[0], t[1], (1, 1, 4, 12)), follow(2, "Clamp", [t[1]], t[2], **clamp),
        convolve(3, t[2], t[3], (3, 3, 1, 12), groups=12), follow(4, "HardSwish", [t[3]], t[4]),
        convolve(5, t[4], t[6], (1, 1, 12, 4)), follow(6, "Add", [t[0], t[6]], t[7]),
    )  # fmt: skip


BLOCKS = {
    "resnet": (
        make_resnet(),
        ["CONVOLUTION_1 + RELU_2", "CONVOLUTION_9", "CONVOLUTION_3 + ADD_4 + RELU_5"],
        [["bias", "relu"], ["bias"], ["bias", "residual", "relu"]],
    ),
    "mobilenet": (
        make_mobilenet(),
        ["CONVOLUTION_1 + CLAMP_2", "CONVOLUTION_3 + HARDSWISH_4", "CONVOLUTION_5 + ADD_6"],
        [["bias", "relu6"], ["bias"], ["bias", "residual"]],
    ),
}  # fmt: skip


@pytest.mark.parametrize("block", BLOCKS)
def test_blocks_of_networks(block):
    made, names, told = BLOCKS[block]
    assert find_partitions(made) == (names, told)


def test_blocks_and_their_derivatives_are_those_of_their_nodes():
    """As one program, in float32: a few roundings of quotients, and sums of few bits."""
    read = [onednn.load_graph(made) for made, *_ in BLOCKS.values()]
    arrays = [{t.id: integers(*t.shape, seed=t.id, least=-2, most=2) for t in g.inputs}
              for g in read]  # fmt: skip
    for given in arrays:  # no sum is 0 or 6, where derivatives differ
        given |= {i: x + np.float32(0.25) for i, x in given.items() if i > 200}

    def run(x, join):
        graphs = map(join_nodes, read) if join else read
        found = [evaluate(g, one) for g, one in zip(graphs, x, strict=True)]
        return [one[g.outputs[0].id] for g, one in zip(read, found, strict=True)]

    def differentiate(x, join):
        found, pull = jax.vjp(lambda x: run(x, join), x)
        return found, pull([jnp.ones_like(one) for one in found])

    together, apart = jax.jit(lambda x: [differentiate(x, join) for join in (True, False)])(arrays)
    for a, b in zip(*map(jax.tree.leaves, (together, apart)), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=8 * 2.0**-24 * np.max(np.abs(b)))


def test_a_training_graph_keeps_what_its_backward_pass_reads():
    data, taps = (2, 6, 6, 4), (3, 3, 4, 4)
    t = {i: (i, *data) for i in range(1, 9)}
    backward = {"strides": [1, 1], "pads_begin": [1, 1], "pads_end": [1, 1], "dilations": [1, 1]}
    made = graph(
        convolve(1, t[1], t[2], taps),
        follow(2, "Sigmoid", [t[2]], t[3]),  # read by the derivative, too
        follow(3, "Multiply", [t[4], t[3]], t[5]),
        follow(4, "ConvolutionBackwardData", [t[5], (101, *taps)], t[6], **backward),
        follow(5, "ReLU", [t[6]], t[7]),
        follow(6, "ConvolutionBackwardWeights", [t[1], t[5]], (8, *taps),
               weights_shape=list(taps), **backward),
        output_ports=[3, 7, 8],
    )  # fmt: skip
    names = [n["name"] for n in made["graph"]]
    names[:2] = ["CONVOLUTION_1 + SIGMOID_2"]  # the derivative of a sigmoid needs its dst alone
    assert find_partitions(made)[0] == names
    made["graph"].append(follow(7, "Abs", [t[2]], (9, *data)))
    assert find_partitions(made)[0] == [n["name"] for n in made["graph"]]


@pytest.mark.parametrize(
    ("message", "change"),
    [
        (r"node 0 .*: the output must be 3: f32 \(2, 3, 6, 7\); got float32 \(2, 3, 6, 6\)",
         lambda made: change_shape(made, DST, (2, 3, 6, 7))),
        (r"node 1 .*: `bias` must have one entry for each channel of src, \(2, 3, 6, 6\) "
         r"\(NXC\); got shape \(5,\)", lambda made: change_shape(made, CHANNELS, (5,))),
        (r"node 2 .*: the output must be 11: f32 \(2, 3, 6, 7\); got float32 \(2, 3, 6, 6\)",
         lambda made: change_shape(made, 11, (2, 3, 6, 7))),
        (r"node 2 .*: the shapes of src_0 and src_1 must broadcast; got \(2, 3, 6, 6\) and ",
         lambda made: change_shape(made, OTHER, (2, 3, 6, 7))),
        (r"node 3 .*: the attributes are none; got 'alpha'",
         lambda made: made["graph"][3]["attrs"].update(alpha=1.0)),
    ],
    ids=["shape of dst", "shape of bias", "shape of a sum", "shape of a summand", "attribute"],
)  # fmt: skip
def test_errors_name_the_node_within_a_partition(message, change):
    made = make(("BiasAdd", [DST, CHANNELS]), ("Add", [10, OTHER]), ("ReLU", [11]))
    change(made)
    assert len(join_nodes(onednn.load_graph(made)).nodes) == 1
    for run in (onednn.run_graph, onednn.explain_graph):
        with pytest.raises(ValueError, match=f"^{message}"):
            run(made)


def test_what_is_computed_together_is_said(tmp_path, capsys):
    made = make(("BiasAdd", [DST, CHANNELS]), ("ReLU", [10]))
    path = tmp_path / "graph.json"
    path.write_text(json.dumps(made))
    names = "CONVOLUTION_0 + BIASADD_1 + RELU_2"
    assert main.main([str(path), "--explain", "--check"]) == 0
    out = capsys.readouterr().out
    assert f"\n  {names} in one\n" in out
    assert f"node 0: convolution to (2, 3, 6, 6): {names} in one\n" in out
    explained = onednn.explain_graph(made)[0]
    assert (explained.nodes, explained.resolved.dst_shape) == (names, (2, 3, 6, 6))
    assert explained.flops > 0
    assert onednn.explain_graph(make(("Reorder", [DST])))[0].nodes == ""


def test_an_accelerator_keeps_16_bits_before_a_chain(monkeypatch):
    """XLA would convert both operands to float32 for a result in float32."""
    read = join_nodes(onednn.load_graph(make(("HardSwish", [DST]), dtype="bf16")))
    specs = {t.id: jax.ShapeDtypeStruct(t.shape, jnp.bfloat16) for t in read.inputs}
    for platform, expected in {"cpu": jnp.float32, "gpu": jnp.bfloat16}.items():
        monkeypatch.setattr(jax, "default_backend", lambda platform=platform: platform)
        jaxpr, found = jax.make_jaxpr(lambda x: evaluate(read, x), return_shape=True)(specs)
        [call] = (eqn for eqn in jaxpr.eqns if eqn.params.get("name") == "convolution")
        assert (call.outvars[0].aval.dtype, found[10].dtype) == (expected, jnp.bfloat16)
