"""Graphs that are written: they read back as they were meant, and compute what they say.

Values of all are those of the NumPy oracle on integers, exactly; scales are powers of two.
"""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxconv import onednn
from tests.support.graphs import COARSE, FINE, KINDS, TAPS, exact, integers, written


@pytest.mark.parametrize("kind", KINDS)
def test_each_operation(kind):
    first, second, attributes, out = KINDS[kind]
    made = written(kind)
    read = onednn.load_graph(made)
    [node] = read.nodes
    assert (node.kind, read.fpmath_mode) == (kind, "strict")
    assert [t.shape for t in read.inputs] == [first, second]
    assert [t.shape for t in read.outputs] == [out]
    assert {n: a["value"] for n, a in node.attributes.items()} == json.loads(json.dumps(attributes))
    assert node.attributes["groups"] == {"type": "s64", "value": 2}
    assert node.attributes["strides"] == {"type": "s64[]", "value": [2, 1]}
    x, y = integers(*first, seed=1), integers(*second, seed=2)
    [found] = jax.jit(lambda x: onednn.run_graph(made, x))([x, y]).values()
    np.testing.assert_array_equal(found, exact(kind, x, y).astype(np.float32), strict=True)
    np.testing.assert_array_equal(found, onednn.apply(kind, [x, y], attributes))


def test_an_int_for_all_axes_is_written_for_each():
    attributes = {"strides": 2, "pads_begin": 0, "pads_end": 1, "dilations": 1, "auto_pad": None}
    made = onednn.write_graph("Convolution", (1, 5, 5, 1), (2, 2, 1, 1), attributes)
    [node] = made["graph"]
    assert node["attrs"] == {
        "strides": {"type": "s64[]", "value": [2, 2]},
        "pads_begin": {"type": "s64[]", "value": [0, 0]},
        "pads_end": {"type": "s64[]", "value": [1, 1]},
        "dilations": {"type": "s64[]", "value": [1, 1]},
    }
    assert node["inputs"][0]["stride"] == [25, 5, 1, 1]
    assert (made["input_ports"], made["output_ports"]) == ([0, 1], [2])


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_what_follows_a_convolution(dtype):
    """conv+bias+relu and conv+add+clamp, in one program, each rounded once."""
    bias, other = integers(6, seed=3, most=40), integers(*COARSE, seed=4, most=40)
    x, w = integers(*FINE, seed=1, most=60), integers(*TAPS["OIX"], seed=2)
    clamp = ("Clamp", {"min": -8, "max": 600})
    graphs = [
        written("Convolution", dtype=dtype, then=["BiasAdd", "ReLU"]),
        written("Convolution", dtype=dtype, then=["Add", clamp]),
    ]
    assert [n["kind"] for n in graphs[0]["graph"]] == ["Convolution", "BiasAdd", "ReLU"]
    assert graphs[0]["graph"][1]["attrs"]["data_format"]["value"] == "NCX"
    assert graphs[1]["graph"][2]["attrs"]["min"] == {"type": "f32", "value": -8.0}

    kind = {"f32": jnp.float32, "bf16": jnp.bfloat16}[dtype]
    given = [jnp.asarray(v, kind) for v in (x, w, bias, other)]

    @jax.jit
    def both(x, w, bias, other):
        return [onednn.run_graph(g, [x, w, v]) for g, v in zip(graphs, (bias, other), strict=True)]

    relu, clamped = (next(iter(found.values())) for found in both(*given))
    sums = exact("Convolution", x, w)
    assert np.any(sums != sums.astype(jnp.bfloat16))  # a rounding shows
    expected = np.maximum(sums + bias.reshape(6, 1, 1), 0).astype(kind)
    np.testing.assert_array_equal(np.asarray(relu), expected, strict=True)
    expected = np.clip(sums + other, -8, 600).astype(kind)
    np.testing.assert_array_equal(np.asarray(clamped), expected, strict=True)


@pytest.mark.parametrize("kind", ["Convolution", "ConvTranspose"])
@pytest.mark.parametrize("int8", ["per_tensor", "per_channel"])
def test_int8(kind, int8):
    """u8 and s8 to u8: exact, as scales are powers of two and sums stay below 2**24."""
    first, second, attributes, _ = KINDS[kind]
    made = written(kind, int8=int8, then=["ReLU"])
    kinds = [n["kind"] for n in made["graph"]]
    assert kinds == ["Dequantize", "Dequantize", kind, "ReLU", "Quantize"]
    x = integers(*first, seed=1, least=0, most=255, dtype=np.uint8)
    w = integers(*second, seed=2, least=-128, most=127, dtype=np.int8)
    [found] = jax.jit(lambda x: onednn.run_graph(made, x))([x, w]).values()
    src, weights, result = (
        {name: a["value"] for name, a in made["graph"][i]["attrs"].items()} for i in (0, 1, -1)
    )
    axis = attributes["weights_format"].index("O")
    if int8 == "per_channel":
        assert weights["axis"] == axis
        assert len(set(weights["scales"])) == min(3, second[axis])
    scales = np.float64(weights["scales"]).reshape([-1 if a == axis else 1 for a in range(4)])
    sums = exact(kind, (np.float64(x) - src["zps"]) * src["scales"], np.float64(w) * scales)
    expected = np.rint(np.maximum(sums, 0) / result["scales"] + result["zps"])
    np.testing.assert_array_equal(found, np.clip(expected, 0, 255).astype(np.uint8), strict=True)
    assert 0 < np.sum(expected < 255) < expected.size  # some saturate, and some do not


def test_int8_of_mixed_precision():
    made = written("Convolution", int8="per_channel", dtype="bf16", then=["BiasAdd"])
    kinds = [n["kind"] for n in made["graph"]]
    assert kinds == [
        *["Dequantize", "TypeCast"] * 2, "Convolution", "BiasAdd", "TypeCast", "Quantize",
    ]  # fmt: skip
    x = integers(*FINE, seed=1, least=0, most=255, dtype=np.uint8)
    w = integers(*TAPS["OIX"], seed=2, least=-128, most=127, dtype=np.int8)
    bias = integers(6, seed=3).astype(jnp.bfloat16)
    [found] = jax.jit(lambda x: onednn.run_graph(made, x))([x, w, bias]).values()
    # both fit into bf16, and sums stay in f32 until they are quantised
    scales = np.float64(made["graph"][2]["attrs"]["scales"]["value"]).reshape(6, 1, 1, 1)
    sums = exact("Convolution", (np.float64(x) - 128) / 16, np.float64(w) * scales)
    expected = np.rint((sums + np.float64(bias).reshape(6, 1, 1)) / 0.5 + 128)
    np.testing.assert_array_equal(found, np.clip(expected, 0, 255).astype(np.uint8), strict=True)


@pytest.mark.parametrize(
    ("message", "kind", "more"),
    [
        (r"write_graph: `dtype` must be f32, bf16 or f16; got 's8' \(str\)", "Convolution",
         {"dtype": "s8"}),
        (r"write_graph: `int8` must be None, 'per_tensor' or 'per_channel'; got True \(bool\)",
         "Convolution", {"int8": True}),
        ("write_graph: `int8` must be None, unless the kind is Convolution or ConvTranspose; got "
         "'per_tensor' for ConvolutionBackwardData", "ConvolutionBackwardData",
         {"int8": "per_tensor"}),
        (r"write_graph: `then` must be of Abs, .*; got 'Relu'; did you mean 'ReLU'\?",
         "Convolution", {"then": ["Relu"]}),
    ],
)  # fmt: skip
def test_what_cannot_be_written(message, kind, more):
    with pytest.raises(ValueError, match=f"^{message}$"):
        written(kind, **more)
