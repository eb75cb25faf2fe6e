"""ONNX's Conv and ConvTranspose: the package's own cases, and more by its reference evaluator.

`ours` says what the attributes of ONNX are called here. Where ONNX differs:

- `pads` lists all beginnings, then all ends.
- Transposed weights are IOX and hold the output channels of a group.
- `output_shape` counts the spatial axes, and is the size whatever `pads` says: the pads follow
  from it, shared out as auto_pad says, under NOTSET as under SAME_LOWER.
- SAME_* makes a transposed dst strides * src. Ours is longer by output_padding, and shorter
  where the kernel does not cover the stride: those take `dst_shape` to be ONNX's. (Of the
  latter only SAME_LOWER is compared. The total of pads is negative: what is missing goes to
  the end here, while under SAME_UPPER the evaluator, rounding down, begins with an odd one.)
"""

from importlib import import_module
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

import jaxconv
from tests.support.peers import integers, peer

onnx = peer("onnx")
ReferenceEvaluator = import_module("onnx.reference").ReferenceEvaluator


def ours(op_type, attributes, x, w, b=None):
    """What our operation makes of an ONNX node."""
    sizes = x.shape[2:]
    attributes = dict(attributes)
    auto_pad = attributes.pop("auto_pad", "NOTSET")
    pads = attributes.pop("pads", [0] * 2 * len(sizes))
    strides = attributes.pop("strides", [1] * len(sizes))
    dilations = attributes.pop("dilations", [1] * len(sizes))
    groups = attributes.pop("group", 1)
    assert list(attributes.pop("kernel_shape", w.shape[2:])) == list(w.shape[2:])
    common = {
        "strides": strides,
        "pads_begin": pads[: len(sizes)],
        "pads_end": pads[len(sizes) :],
        "dilations": dilations,
        "groups": groups,
        "data_format": "NCX",
        "precision": "highest",
    }
    if op_type == "Conv":
        assert not attributes
        return jaxconv.convolution(x, w, b, auto_pad=auto_pad, weights_format="OIX", **common)

    output_padding = attributes.pop("output_padding", 0)
    output_shape = attributes.pop("output_shape", None)
    assert not attributes
    if output_shape is not None and auto_pad == "NOTSET":
        auto_pad = "SAME_LOWER"
    reach = [d * (k - 1) + 1 for d, k in zip(dilations, w.shape[2:], strict=True)]
    uncovered = any(stride > extent for stride, extent in zip(strides, reach, strict=True))
    if output_shape is None and auto_pad.startswith("SAME") and (output_padding or uncovered):
        output_shape = [stride * size for stride, size in zip(strides, sizes, strict=True)]
    dst_shape = output_shape and (len(x), w.shape[1] * groups, *output_shape)
    return jaxconv.conv_transpose(
        x, w, b, auto_pad=auto_pad, weights_format="IOX", output_padding=output_padding,
        dst_shape=dst_shape, **common,
    )  # fmt: skip


# The cases that come with the package: some in Python modules, which join a list when they are
# imported, and some in files, made by PyTorch of random data. What a later version adds is run
# as well; none of these may get lost.

NODE_CASES = [
    "test_basic_conv_with_padding", "test_basic_conv_without_padding",
    "test_conv_with_autopad_same", "test_conv_with_strides_and_asymmetric_padding",
    "test_conv_with_strides_no_padding", "test_conv_with_strides_padding", "test_convtranspose",
    "test_convtranspose_1d", "test_convtranspose_3d", "test_convtranspose_autopad_same",
    "test_convtranspose_dilations", "test_convtranspose_group_2",
    "test_convtranspose_group_2_image_3", "test_convtranspose_kernel_shape",
    "test_convtranspose_output_shape", "test_convtranspose_pad", "test_convtranspose_pads",
]  # fmt: skip
STORED_CASES = [
    "test_Conv1d", "test_Conv1d_dilated", "test_Conv1d_groups", "test_Conv1d_pad1",
    "test_Conv1d_pad1size1", "test_Conv1d_pad2", "test_Conv1d_pad2size1", "test_Conv1d_stride",
    "test_Conv2d", "test_Conv2d_depthwise", "test_Conv2d_depthwise_padded",
    "test_Conv2d_depthwise_strided", "test_Conv2d_depthwise_with_multiplier", "test_Conv2d_dilated",
    "test_Conv2d_groups", "test_Conv2d_groups_thnn", "test_Conv2d_no_bias", "test_Conv2d_padding",
    "test_Conv2d_strided", "test_Conv3d", "test_Conv3d_dilated", "test_Conv3d_dilated_strided",
    "test_Conv3d_groups", "test_Conv3d_no_bias", "test_Conv3d_stride", "test_Conv3d_stride_padding",
    "test_ConvTranspose2d", "test_ConvTranspose2d_no_bias", "test_operator_conv",
    "test_operator_convtranspose",
]  # fmt: skip


def single_node(model):
    """The node of a model that is one Conv or ConvTranspose, otherwise None."""
    nodes = model.graph.node
    one = len(nodes) == 1 and nodes[0].op_type in ("Conv", "ConvTranspose")
    return nodes[0] if one else None


def node_cases():
    """Node, inputs and expected result of each Python case, by name.

    The package's own loader would import the cases of all operations, some of which warn.
    """
    package = import_module("onnx.backend.test.case.node")
    for module in ("conv", "convtranspose"):
        import_module(f"{package.__name__}.{module}")
    cases = {}
    for case in package._NodeTestCases:
        if node := single_node(case.model):
            [(inputs, [expected])] = case.data_sets
            cases[case.name] = node, inputs, expected
    return cases


def stored_cases():
    """Node, inputs and expected result of each stored case, by name."""
    load_cases = import_module("onnx.backend.test.loader").load_model_tests
    cases = {}
    for case in load_cases(kind="pytorch-converted") + load_cases(kind="pytorch-operator"):
        model = onnx.load(Path(case.model_dir, "model.onnx"))
        if node := single_node(model):
            [data] = Path(case.model_dir).glob("test_data_set_*")
            x, expected = (read(data / f"{name}_0.pb") for name in ("input", "output"))
            stored = {each.name: array_of(each) for each in model.graph.initializer}
            cases[case.name] = node, [stored.get(name, x) for name in node.input], expected
    return cases


def read(path):
    return array_of(onnx.load_tensor(path))


def array_of(tensor):
    return onnx.numpy_helper.to_array(tensor)


def attributes_of(node):
    values = {each.name: onnx.helper.get_attribute_value(each) for each in node.attribute}
    if "auto_pad" in values:
        values["auto_pad"] = values["auto_pad"].decode()
    return values


FOUND = {"node": node_cases(), "stored": stored_cases()}


def test_no_case_is_lost():
    assert set(NODE_CASES) <= set(FOUND["node"])
    assert set(STORED_CASES) <= set(FOUND["stored"])


@pytest.mark.parametrize("name", sorted(FOUND["node"]))
def test_node_case(name):
    """Of small integers, so exact."""
    node, inputs, expected = FOUND["node"][name]
    result = ours(node.op_type, attributes_of(node), *inputs)
    assert result.dtype == expected.dtype
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize("name", sorted(FOUND["stored"]))
def test_stored_case(name):
    """Of random data: two results, each off by roundings that add up like a random walk."""
    node, inputs, expected = FOUND["stored"][name]
    x, w, *_ = inputs
    result = ours(node.op_type, attributes_of(node), *inputs)
    assert result.dtype == expected.dtype
    products = w.size / (w.shape[0] if node.op_type == "Conv" else w.shape[1])
    bound = 4 * np.finfo(x.dtype).eps * np.sqrt(products) * abs(x).max() * abs(w).max()
    np.testing.assert_allclose(result, expected, rtol=0, atol=bound)


# More cases, by the reference evaluator.


class Case(NamedTuple):
    """A node, the shapes that it reads, and what the evaluator is given instead, if anything.

    The evaluator misreads some attributes: before onnx 1.23 auto_pad of Conv (it takes the
    batch for a spatial axis, and VALID for a SAME mode), and, 1.23 included, output_shape
    under NOTSET (it leaves the pads at zero). It is given pads then, worked out by hand.
    """

    op_type: str
    x: tuple
    w: tuple
    attributes: dict
    pads: list | None = None


CASES = {
    "1d upper": Case(
        "Conv", (2, 4, 7), (6, 2, 4), {"auto_pad": "SAME_UPPER", "strides": [2], "group": 2},
        [1, 2],
    ),
    "1d lower": Case(
        "Conv", (2, 4, 7), (6, 2, 4), {"auto_pad": "SAME_LOWER", "strides": [2], "group": 2},
        [2, 1],
    ),
    "1d stride exceeds kernel": Case(
        "Conv", (2, 2, 5), (3, 2, 1), {"auto_pad": "SAME_LOWER", "strides": [3]}, [0, 0]
    ),
    "2d upper": Case(
        "Conv", (1, 3, 8, 9), (4, 3, 3, 3),
        {"auto_pad": "SAME_UPPER", "strides": [3, 2], "dilations": [2, 3]}, [1, 3, 2, 3],
    ),
    "2d lower": Case(
        "Conv", (1, 3, 8, 9), (4, 3, 3, 3),
        {"auto_pad": "SAME_LOWER", "strides": [3, 2], "dilations": [2, 3]}, [2, 3, 1, 3],
    ),
    "2d valid": Case(
        "Conv", (2, 3, 9, 7), (2, 3, 2, 3),
        {"auto_pad": "VALID", "strides": [2, 3], "dilations": [3, 1]}, [0, 0, 0, 0],
    ),
    "transposed valid": Case(
        "ConvTranspose", (1, 2, 4, 3), (2, 3, 2, 3),
        {"auto_pad": "VALID", "strides": [3, 2], "output_padding": [2, 1]},
    ),
    "transposed upper": Case(
        "ConvTranspose", (1, 4, 3, 4), (4, 3, 5, 4),
        {"auto_pad": "SAME_UPPER", "strides": [2, 3], "group": 2},
    ),
    "transposed lower": Case(
        "ConvTranspose", (1, 4, 3, 4), (4, 3, 5, 4),
        {"auto_pad": "SAME_LOWER", "strides": [2, 3], "group": 2},
    ),
    "transposed lower stride exceeds kernel": Case(
        "ConvTranspose", (2, 3, 4, 5), (3, 2, 1, 2), {"auto_pad": "SAME_LOWER", "strides": [2, 3]}
    ),
    "transposed upper output_padding": Case(
        "ConvTranspose", (2, 3, 4, 3), (3, 2, 4, 3),
        {
            "auto_pad": "SAME_UPPER", "strides": [3, 2], "dilations": [1, 2],
            "output_padding": [2, 1],
        },
    ),
    "transposed lower output_padding": Case(
        "ConvTranspose", (2, 3, 4, 3), (3, 2, 4, 3),
        {
            "auto_pad": "SAME_LOWER", "strides": [3, 2], "dilations": [1, 2],
            "output_padding": [2, 1],
        },
    ),
    "transposed upper output_shape": Case(
        "ConvTranspose", (1, 2, 4, 3), (2, 3, 5, 3),
        {"auto_pad": "SAME_UPPER", "strides": [3, 2], "output_shape": [11, 6]},
    ),
    "transposed lower output_shape": Case(
        "ConvTranspose", (1, 2, 4, 3), (2, 3, 5, 3),
        {"auto_pad": "SAME_LOWER", "strides": [3, 2], "output_shape": [11, 6]},
    ),
    "transposed output_shape": Case(
        "ConvTranspose", (1, 2, 4, 3), (2, 3, 5, 3),
        {"strides": [3, 2], "output_shape": [11, 6]}, [2, 1, 1, 0],
    ),
    "transposed output_shape over pads": Case(
        "ConvTranspose", (1, 2, 4, 3), (2, 3, 5, 3),
        {"strides": [3, 2], "output_shape": [11, 6], "pads": [0, 0, 4, 3]}, [2, 1, 1, 0],
    ),
}  # fmt: skip


def evaluate(op_type, attributes, x, w, b):
    """The reference evaluator's result."""
    groups = attributes.get("group", 1)
    if op_type == "ConvTranspose" and groups > 1:
        # It gets groups right where each has one channel and there is no bias: one at a time.
        alone = attributes | {"group": 1}
        splits = np.split(x, groups, axis=1), np.split(w, groups), np.split(b, groups)
        results = [evaluate(op_type, alone, *group) for group in zip(*splits, strict=True)]
        return np.concatenate(results, axis=1)
    make = onnx.helper
    node = make.make_node(op_type, ["x", "w", "b"], ["y"], **attributes)
    reads = {"x": x.shape, "w": w.shape, "b": b.shape}
    inputs = [make.make_tensor_value_info(name, 1, shape) for name, shape in reads.items()]
    output = make.make_tensor_value_info("y", 1, [None] * x.ndim)
    graph = make.make_graph([node], "one node", inputs, [output])
    model = make.make_model(graph, opset_imports=[make.make_opsetid("", 11)])
    return ReferenceEvaluator(model).run(None, {"x": x, "w": w, "b": b})[0]


def operands_of(case):
    rng = np.random.default_rng(21)
    groups = case.attributes.get("group", 1)
    channels = case.w[0] if case.op_type == "Conv" else case.w[1] * groups
    return [integers(rng, shape) for shape in (case.x, case.w, (channels,))]


@pytest.mark.parametrize("case", CASES)
def test_evaluated_case(case):
    case = CASES[case]
    operands = operands_of(case)
    attributes = dict(case.attributes)
    if case.pads is not None:
        for name in ("auto_pad", "output_shape"):
            attributes.pop(name, None)
        attributes["pads"] = case.pads
    result = ours(case.op_type, case.attributes, *operands)
    expected = evaluate(case.op_type, attributes, *operands)
    assert result.dtype == expected.dtype
    np.testing.assert_array_equal(result, expected)
