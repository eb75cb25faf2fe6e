"""`jaxconv.onnx` against the package onnx: its own cases, and calls by its reference evaluator.

Where the evaluator is wrong, by the operator's page, it is given what the page says, or left out:

- `output_shape` under NOTSET: the pads follow from the size, while it leaves the pads at zero.
- Before onnx 1.23, `auto_pad` of Conv: it takes the batch for a spatial axis, and VALID for SAME.
- Groups of ConvTranspose, of several channels or with a bias.
- The total of pads of a transposed SAME is negative where the kernel does not cover the stride.
  What is missing goes to the end here, while under SAME_UPPER the evaluator, rounding down, begins
  with an odd pixel. So only SAME_LOWER is compared.
- A scale or a zero point for each channel, unless there are two spatial axes.
- QLinearConv rounds after it added the zero point: ties go to even integers with an even one alone.
  `test_nodes.py` has the others.
"""

from dataclasses import replace
from functools import partial
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from jaxconv.onnx import OP_TYPES, apply, apply_node
from tests.support import oracle, small
from tests.support.peers import bytes_of, integers, peer

onnx = peer("onnx")
ReferenceEvaluator = import_module("onnx.reference").ReferenceEvaluator


# The cases that come with the package: some in Python modules, which join a list when they are
# imported, and some in files, made by PyTorch of random data. What a later version adds is run
# as well.
def single_node(model):
    """The node of a model that is one convolution, otherwise None."""
    nodes = model.graph.node
    return nodes[0] if len(nodes) == 1 and nodes[0].op_type in OP_TYPES else None


def node_cases():
    """Node, inputs and expected outputs of each Python case, by name.

    The package's own loader would import the cases of all operations, some of which warn.
    """
    package = import_module("onnx.backend.test.case.node")
    modules = ["conv", "convtranspose", "convinteger", "qlinearconv"]
    if onnx.defs.onnx_opset_version() >= 27:
        modules.append("causal_conv_with_state")
    for module in modules:
        import_module(f"{package.__name__}.{module}")
    cases = {}
    for case in package._NodeTestCases:
        if node := single_node(case.model):
            [(inputs, expected)] = case.data_sets
            given = iter(inputs)
            cases[case.name] = node, [next(given) if n else None for n in node.input], expected
    return cases


def stored_cases():
    """Node, inputs and expected result of each stored case, by name."""
    load_cases = import_module("onnx.backend.test.loader").load_model_tests
    cases = {}
    for case in load_cases(kind="pytorch-converted") + load_cases(kind="pytorch-operator"):
        model = onnx.load(Path(case.model_dir, "model.onnx"))
        if node := single_node(model):
            [data] = Path(case.model_dir).glob("test_data_set_*")
            tensors = (onnx.load_tensor(data / f"{name}_0.pb") for name in ("input", "output"))
            x, expected = map(array_of, tensors)
            stored = {each.name: array_of(each) for each in model.graph.initializer}
            cases[case.name] = node, [stored.get(name, x) for name in node.input], expected
    return cases


def array_of(tensor):
    return onnx.numpy_helper.to_array(tensor)


FOUND = {"node": node_cases(), "stored": stored_cases()}


def test_no_case_is_lost():
    assert len(FOUND["node"]) >= 20
    assert len(FOUND["stored"]) >= 30
    assert {"Conv", "ConvTranspose"} == {node.op_type for node, *_ in FOUND["stored"].values()}
    kinds = {node.op_type for node, *_ in FOUND["node"].values()}
    assert kinds >= {"Conv", "ConvTranspose", "ConvInteger", "QLinearConv"}


@pytest.mark.parametrize("name", sorted(FOUND["node"]))
def test_node_case(name):
    """Of small integers, so exact; CausalConvWithState of a few terms of order one."""
    node, inputs, expected = FOUND["node"][name]
    found = apply_node(node, inputs)
    found = found if isinstance(found, tuple) else (found,)
    for result, right in zip(found, expected, strict=True):
        assert result.dtype == right.dtype
        causal = node.op_type == "CausalConvWithState"
        bound = 16 * np.finfo(right.dtype).eps if causal else 0
        np.testing.assert_allclose(result, right, rtol=0, atol=bound)


@pytest.mark.parametrize("name", sorted(FOUND["stored"]))
def test_stored_case(name):
    """Of random data: two results, each off by roundings that add up like a random walk."""
    node, inputs, expected = FOUND["stored"][name]
    x, w, *_ = inputs
    result = apply_node(node, inputs)
    assert result.dtype == expected.dtype
    products = w.size / (w.shape[0] if node.op_type == "Conv" else w.shape[1])
    bound = 4 * np.finfo(x.dtype).eps * np.sqrt(products) * abs(x).max() * abs(w).max()
    np.testing.assert_allclose(result, expected, rtol=0, atol=bound)


#: Transposed, by name: the shapes of x and w, and attributes, at first beside the mode.
SAME = {
    "in groups": ((1, 4, 3, 4), (4, 3, 5, 4), {"strides": [2, 3], "group": 2}),
    "output_padding": (
        (2, 3, 4, 3), (3, 2, 4, 3),
        {"strides": [3, 2], "dilations": [1, 2], "output_padding": [2, 1]},
    ),
    "output_shape": ((1, 2, 4, 3), (2, 3, 5, 3), {"strides": [3, 2], "output_shape": [11, 6]}),
}  # fmt: skip
CASES = {
    f"{mode} {name}": (x, w, attributes | {"auto_pad": mode})
    for mode in ("SAME_UPPER", "SAME_LOWER")
    for name, (x, w, attributes) in SAME.items()
} | {
    "valid": (
        (1, 2, 4, 3), (2, 3, 2, 3),
        {"auto_pad": "VALID", "strides": [3, 2], "output_padding": [2, 1]},
    ),
    "lower stride exceeds kernel": (
        (2, 3, 4, 5), (3, 2, 1, 2), {"auto_pad": "SAME_LOWER", "strides": [2, 3]},
    ),
}  # fmt: skip


def evaluate(op_type, attributes, *inputs):
    """The reference evaluator's result."""
    groups = attributes.get("group", 1)
    if op_type == "ConvTranspose" and groups > 1:
        alone = attributes | {"group": 1}
        x, w, b = inputs
        splits = np.split(x, groups, axis=1), np.split(w, groups), np.split(b, groups)
        results = [evaluate(op_type, alone, *group) for group in zip(*splits, strict=True)]
        return np.concatenate(results, axis=1)
    make = onnx.helper
    named = {f"in{n}": value for n, value in enumerate(inputs) if value is not None}
    names = [f"in{n}" if value is not None else "" for n, value in enumerate(inputs)]
    node = make.make_node(op_type, names, ["y"], **attributes)
    reads = [
        make.make_tensor_value_info(name, make.np_dtype_to_tensor_dtype(value.dtype), value.shape)
        for name, value in named.items()
    ]
    output = make.make_tensor_value_info("y", 1, [None] * inputs[0].ndim)
    graph = make.make_graph([node], "one node", reads, [output])
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 11)])
    return ReferenceEvaluator(model).run(None, named)[0]


def check(op_type, attributes, inputs, pads=None):
    """Compare a call with the evaluator's, which reads pads, if given, in place of a mode."""
    for_evaluator = attributes
    if pads is not None:
        others = {name: value for name, value in attributes.items() if name != "auto_pad"}
        for_evaluator = others | {"pads": pads}
    result = apply(op_type, attributes, inputs, opset=11, precision="highest")
    expected = evaluate(op_type, for_evaluator, *inputs)
    assert result.dtype == expected.dtype
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("case", CASES)
def test_evaluated_case(case):
    x, w, attributes = CASES[case]
    rng, bias = np.random.default_rng(21), (w[1] * attributes.get("group", 1),)
    inputs = [integers(rng, shape) for shape in (x, w, bias)]
    check("ConvTranspose", attributes, inputs)


def evaluates(form):
    """Whether sums are exact, and no window is of padding alone, at which the evaluator fails."""
    pads = zip(form.pads_begin, form.pads_end, form.extents, strict=True)
    inside = all(max(begin, end) < extent for begin, end, extent in pads)
    return inside and form.terms("coarse") < 2**24 / 255**2


def random_call(rng):
    """A node of any kind, its inputs, and the pads of its mode."""
    op_type = str(rng.choice(["Conv", "ConvTranspose", "ConvInteger", "QLinearConv"]))
    drawn = small.draw(int(rng.integers(2**31)), 60, ranks=(1, 2, 3), most_channels=4)
    form = next(form for form in drawn if evaluates(form))
    form, kernel, group = replace(form, formats=("NCX", "OIX")), form.kernel, form.groups
    attributes = {"strides": form.strides, "dilations": form.dilations, "kernel_shape": kernel}
    if op_type == "ConvTranspose":
        attributes["output_padding"] = form.output_padding
    modes = ["NOTSET", "VALID", "SAME_LOWER", "SAME_UPPER"]
    mode = "NOTSET" if op_type == "ConvTranspose" else str(rng.choice(modes))
    pads = None
    if mode == "NOTSET" or (mode == "VALID" and np.any(np.less(form.fine, form.extents))):
        attributes["pads"] = form.pads_begin + form.pads_end
    else:
        sizes = zip(form.fine, kernel, form.strides, form.dilations, strict=True)
        fit = partial(oracle.fit_axis, "convolution", c=None, pads=None, extra=0)
        fitted = [fit(f=f, k=k, s=s, d=d, mode=mode.lower()) for f, k, s, d in sizes]
        pads = [*(a.pad_begin for a in fitted), *(a.pad_end for a in fitted)]
        attributes["auto_pad"] = mode
    attributes = {n: [*v] if isinstance(v, tuple) else v for n, v in attributes.items()}
    attributes["group"] = group
    x_shape, w_shape = (
        form.shapes[s] for s in (("coarse" if op_type == "ConvTranspose" else "fine"), "kernel")
    )
    if op_type in ("Conv", "ConvTranspose"):
        channels = form.channels[op_type == "Conv"]
        inputs = [integers(rng, shape) for shape in (x_shape, w_shape, (channels,))]
        return op_type, attributes, inputs, pads
    # Integers. Per channel where the evaluator knows how; powers of two, so that scales are exact.
    x, w = (bytes_of(rng, shape) for shape in (x_shape, w_shape))
    each = w_shape[:1] if form.rank == 2 and rng.random() < 0.5 else ()
    x_zero, w_zero = bytes_of(rng, (), x.dtype), bytes_of(rng, each, w.dtype)
    if op_type == "ConvInteger":
        given = int(rng.integers(0, 3))
        return op_type, attributes, [x, w, x_zero, w_zero][: 2 + given], pads
    x_scale, y_scale = np.float32(0.25), np.float32(16.0)
    w_scale = np.asarray(2.0 ** -rng.integers(0, 9, each), np.float32)
    y_zero = bytes_of(rng, ()) >> 1 << 1
    bias = integers(rng, w_shape[:1], np.int32, 999)
    inputs = [x, x_scale, x_zero, w, w_scale, w_zero, y_scale, y_zero, bias]
    return op_type, attributes, [np.asarray(n) for n in inputs][: 8 + int(rng.integers(0, 2))], pads


@pytest.mark.parametrize(
    "seed", [pytest.param(n, marks=[pytest.mark.slow] * (n >= 32)) for n in range(200)]
)
def test_random_call(seed):
    """Of integers, and of scales that are powers of two, so exact."""
    check(*random_call(np.random.default_rng(seed)))
