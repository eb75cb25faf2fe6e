"""An ONNX model of convolutions, floats and 8-bit integers, read from a file and run in JAX.

pip install onnx . && python examples/onnx_model.py
"""

import tempfile
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import jaxconv

#: What the graph has besides convolutions; these lines take the place of a converter.
OTHERS = {
    "Relu": jax.nn.relu,
    "QuantizeLinear": lambda x, scale, zero: jnp.clip(
        jnp.round(x / scale) + zero.astype(x.dtype), 0, 255
    ).astype(zero.dtype),
    "DequantizeLinear": lambda x, scale, zero: (
        (x.astype(scale.dtype) - zero.astype(scale.dtype)) * scale
    ),
}


def read(path):
    """A function of JAX that computes the graph in a file, and its weights by name."""
    model = onnx.load(path)
    [opset] = (each.version for each in model.opset_import if each.domain == "")
    graph = model.graph
    weights = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    [entry] = (each.name for each in graph.input if each.name not in weights)

    def run(weights, x):
        found = {**weights, entry: x}
        for node in graph.node:
            inputs = [found.get(name) for name in node.input]
            if node.op_type in OTHERS:
                found[node.output[0]] = OTHERS[node.op_type](*inputs)
            else:
                found[node.output[0]] = jaxconv.onnx.apply_node(node, inputs, opset=opset)
        return found[graph.output[0].name]

    return run, weights


def main(width=16, size=32):
    run, weights = read(written(width, size, folder := tempfile.mkdtemp()))
    x = np.random.default_rng(1).standard_normal((2, 3, size, size)).astype(np.float32)
    [expected] = ReferenceEvaluator(str(Path(folder, "model.onnx"))).run(None, {"x": x})
    difference = float(np.abs(jax.jit(run)(weights, x) - expected).max())
    print(f"outputs {expected.shape}, largest difference {difference:.1e}")
    return expected, difference


def written(width, size, folder):
    """A model as an exporter writes it: Conv, Relu, a quantised layer, ConvTranspose."""
    rng = np.random.default_rng(0)
    normal = {"w1": (width, 3, 3, 3), "b1": (width,), "w3": (width, 3, 4, 4)}
    weights = {name: rng.standard_normal(shape) / 4 for name, shape in normal.items()}
    weights |= {"x_scale": 1 / 64, "w_scale": rng.uniform(1e-3, 4e-3, width), "y_scale": 1 / 32}
    weights = {name: np.asarray(value, np.float32) for name, value in weights.items()}
    weights |= {"x_zero": np.uint8(0), "w_zero": np.int8(0), "y_zero": np.uint8(128)}
    weights["w2"] = rng.integers(-127, 128, (width, 1, 5, 5)).astype(np.int8)
    small = ["x_scale", "x_zero"]
    nodes = [
        helper.make_node("Conv", ["x", "w1", "b1"], ["a"], strides=[2, 2], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["b"]),
        helper.make_node("QuantizeLinear", ["b", *small], ["c"]),
        helper.make_node(
            "QLinearConv", ["c", *small, "w2", "w_scale", "w_zero", "y_scale", "y_zero"], ["d"],
            group=width, auto_pad="SAME_UPPER",
        ),
        helper.make_node("DequantizeLinear", ["d", "y_scale", "y_zero"], ["e"]),
        helper.make_node("ConvTranspose", ["e", "w3"], ["y"], strides=[2, 2], pads=[1, 1, 1, 1]),
    ]  # fmt: skip
    shape = [2, 3, size, size]
    x, y = (helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, shape) for name in "xy")
    stored = [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()]
    graph = helper.make_graph(nodes, "layers", [x], [y], stored)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 21)])
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, path := str(Path(folder, "model.onnx")))
    return path


if __name__ == "__main__":
    main()
