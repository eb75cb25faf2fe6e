"""Each kind of a graph beside the six operations: its values, types and attributes.

Values are those of a formula in NumPy float64, written out here, on numbers that are exact in
every type. All kinds of one type are nodes of one graph, and run as one program.
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxconv import onednn
from jaxconv.onednn._graphs.kinds import SPECS
from tests.support.activations import KINDS as FORMULAS
from tests.support.graphs import graph, node, tensor

SHAPE = (2, 3, 4, 5)
X = np.random.default_rng(1).integers(-24, 25, SHAPE) / 8  # from -3 to 3
X[0, 0, 0] = [0, -0.5, 0.5, 1.5, 2.5]  # ties
POSITIVE = np.abs(X) + 0.125
Y = np.random.default_rng(2).integers(1, 17, (3, 1, 5)) / 4
BIAS = np.float64([-2, 0.5, 3])
LAST = np.float64([1, -2, 0.25, 3, -1])  # one for each place of the last axis


UNARY = "Abs Exp GELU HardSwish Mish ReLU Reorder Round Sigmoid SoftPlus Square Tanh TypeCast"
OF_POSITIVE, BINARY = "Log Reciprocal Sqrt", "Divide Maximum Multiply SquaredDifference"
#: name: (kind, inputs, attributes)
CASES = {
    kind: (kind, inputs, {})
    for kinds, inputs in ((UNARY, [X]), (OF_POSITIVE, [POSITIVE]), (BINARY, [X, Y]))
    for kind in kinds.split()
} | {
    "Clamp": ("Clamp", [X], {"min": -1.5, "max": 2.0}), "Elu": ("Elu", [X], {"alpha": 0.5}),
    "GELU erf": ("GELU", [X], {"mode": "gelu_erf"}), "Pow": ("Pow", [POSITIVE], {"beta": 1.5}),
    "GELU tanh": ("GELU", [X], {"mode": "gelu_tanh"}), "Subtract": ("Subtract", [Y, X], {}),
    "HardSigmoid": ("HardSigmoid", [X], {"alpha": 0.25, "beta": 0.375}),
    "LeakyReLU": ("LeakyReLU", [X], {"alpha": 0.125}), "Minimum": ("Minimum", [Y, X], {}),
    "Pow of what is negative": ("Pow", [X], {"beta": 3}), "BiasAdd": ("BiasAdd", [X, LAST], {}),
    "SoftPlus beta": ("SoftPlus", [X], {"beta": 2.0}), "PReLU": ("PReLU", [X, LAST], {}),
    "SoftPlus of -beta": ("SoftPlus", [X], {"beta": -1.0}),
    "Add": ("Add", [X, Y], {"auto_broadcast": "numpy"}),
    "Add of one shape": ("Add", [X, POSITIVE], {"auto_broadcast": "none"}),
    "Add of no axes": ("Add", [X, np.float64(3)], {}),
    "BiasAdd NCX": ("BiasAdd", [X, BIAS], {"data_format": "NCX"}),
    "PReLU NCX": ("PReLU", [X, BIAS], {"data_format": "NCX"}),
    "PReLU last": ("PReLU", [X, LAST], {"data_format": "NCX", "per_channel_broadcast": False}),
    "PReLU of one slope": ("PReLU", [X, np.float64([0.25])], {}),
    "PReLU of several axes": ("PReLU", [X, Y], {}),
    "BatchNormInference": (
        "BatchNormInference",
        [X, BIAS, np.float64([1, 2, 3]), np.float64([0.5, 0, -1]), np.float64([1, 4, 0.25])],
        {"epsilon": 0.25, "data_format": "NCX"},
    ),
}  # fmt: skip
#: The same, and what it gives
CASES = {name: (k, x, a, FORMULAS[k](*x, **a)) for name, (k, x, a) in CASES.items()} | {
    "StaticReshape": (
        "StaticReshape", [X], {"shape": [3, -1, 4], "special_zero": False}, X.reshape(3, 10, 4),
    ),
    "StaticReshape with 0": (
        "StaticReshape", [X], {"shape": [0, 3, 4, 5, 1], "special_zero": True}, X[..., None],
    ),
    "StaticTranspose": ("StaticTranspose", [X], {"order": [0, 2, -1, 1]}, X.transpose(0, 2, 3, 1)),
}  # fmt: skip

#: Kinds that are exact in f32 on these numbers, and so rounded once in the other types.
EXACT = {
    "Abs", "Clamp", "LeakyReLU", "ReLU", "Round", "Square", "TypeCast", "Add", "Subtract",
    "Multiply", "Maximum", "Minimum", "SquaredDifference", "BiasAdd", "PReLU", "StaticReshape",
    "StaticTranspose", "Reorder", "HardSigmoid",
}  # fmt: skip
TYPES = {"f32": jnp.float32, "bf16": jnp.bfloat16, "f16": jnp.float16}


def test_every_kind_has_a_case():
    tested = {kind for kind, *_ in CASES.values()} | {"Quantize", "Dequantize"}
    assert tested | set(onednn.KINDS) == set(onednn.GRAPH_KINDS)


def run(cases, dtype):
    """All of them as one program."""
    nodes, arrays, number = [], {}, 0
    for name, (kind, inputs, attributes, expected) in cases.items():
        tensors = [tensor(number + i, *np.shape(x), dtype=dtype) for i, x in enumerate(inputs)]
        arrays |= {number + i: jnp.asarray(x, TYPES[dtype]) for i, x in enumerate(inputs)}
        out = tensor(number + 9, *expected.shape, dtype=dtype)
        nodes.append(node(number, kind, tensors, out, **attributes) | {"name": name})
        number += 10
    found = jax.jit(lambda arrays: onednn.run_graph(graph(*nodes), arrays))(arrays)
    return dict(zip(cases, found.values(), strict=True))


@pytest.mark.parametrize("dtype", ["f32", "bf16", pytest.param("f16", marks=pytest.mark.slow)])
def test_the_values(dtype):
    for name, found in run(CASES, dtype).items():
        kind, _, _, expected = CASES[name]
        assert found.dtype == TYPES[dtype]
        if kind in EXACT:
            rounded = expected.astype(np.float32).astype(TYPES[dtype])
            np.testing.assert_array_equal(np.asarray(found), rounded, err_msg=name, strict=True)
            continue
        # A few roundings in f32 on the way, of numbers up to 3, and one to the type.
        eps = float(jnp.finfo(TYPES[dtype]).eps) / 2 if dtype != "f32" else 0
        bound = (eps + 16 * 2.0**-24) * np.abs(expected) + 16 * 2.0**-24
        error = np.abs(np.asarray(found, np.float64) - expected)
        assert np.all(error <= bound), (name, float(np.max(error / bound)))


def one(kind, x, out=None, dtype="f32", **attributes):
    """The output of one node, given an array."""
    names = {str(np.dtype(v)): k for k, v in TYPES.items()} | {"int8": "s8", "uint8": "u8"}
    x = jnp.asarray(x)
    source = tensor(0, *x.shape, dtype=names[str(x.dtype)])
    made = graph(node(0, kind, [source], tensor(1, *(out or x.shape), dtype=dtype), **attributes))
    return np.asarray(onednn.run_graph(made, [x])[1])


def test_a_cast_rounds_to_the_even_neighbour():
    x = np.float32([1 + 2**-8, 1 + 3 * 2**-8, 1e-7, 65519])
    for name in ("bf16", "f16"):
        expected = x.astype(TYPES[name])
        np.testing.assert_array_equal(one("TypeCast", x, dtype=name), expected, strict=True)
    half = np.float16([1.5, -2, 6e-8])
    np.testing.assert_array_equal(one("TypeCast", half), half.astype(np.float32), strict=True)


def test_16_bits_are_computed_in_f32_and_rounded_once():
    x = jnp.float16([300.0])  # its square is more than f16 has
    np.testing.assert_array_equal(one("Square", x), np.float32([90000]))
    with pytest.raises(
        TypeError, match=r"^node 0 .*: the output must be of the type of src, float16"
    ):
        one("Reorder", x)


def test_bools_as_dumps_write_them():
    x = np.float32(np.arange(6).reshape(2, 3))
    for value, shape in ((0, (6,)), (1, (2, 3)), (np.True_, (2, 3))):
        made = node(0, "StaticReshape", [tensor(0, 2, 3)], tensor(1, *shape))
        wanted = list(shape) if value == 0 else [0, -1]
        made["attrs"] = {
            "special_zero": {"type": "bool", "value": value},
            "shape": {"type": "s64[]", "value": wanted},
        }
        found = onednn.run_graph(graph(made), [x])[1]
        np.testing.assert_array_equal(found, x.reshape(shape))
    made |= {"inputs": [tensor(0, -1, 3)], "outputs": [tensor(1, -1, 3)]}
    batch = jax.ShapeDtypeStruct(jax.export.symbolic_shape("b, 3"), np.float32)
    jax.export.export(jax.jit(lambda x: onednn.run_graph(graph(made), [x])[1]))(batch)
    made["attrs"]["special_zero"]["value"] = 2
    with pytest.raises(TypeError, match=r"`special_zero` must be a bool, or 0 or 1 as in dumps,"):
        onednn.run_graph(graph(made), [x])


KINKS = [("ReLU", {}, 0), ("LeakyReLU", {"alpha": 0.25}, 0), ("Elu", {"alpha": 0.5}, 0)]
KINKS += [("Clamp", {"min": 0.0, "max": 6.0}, at) for at in (0, 6)]


@pytest.mark.parametrize(("kind", "attributes", "at"), KINKS)
def test_the_derivative_at_a_kink_is_that_of_partitions(kind, attributes, at):
    slope = jax.grad(partial(SPECS[kind].compute, jnp.dtype("float32"), **attributes))
    assert slope(jnp.float32(at)) == attributes.get("alpha", 0)


def test_elements_that_a_where_leaves_out_do_not_spoil_the_derivative():
    kinds = {"Elu": {"alpha": 2.0}, "SoftPlus": {}, "Mish": {}, "ReLU": {}}
    nodes = [
        node(i, kind, [tensor(i, 2)], tensor(10 + i, 2), **attributes)
        for i, (kind, attributes) in enumerate(kinds.items())
    ]

    @jax.jit
    @jax.grad
    def slopes(inputs):
        return sum(x.sum() for x in onednn.run_graph(graph(*nodes), inputs).values())

    found = slopes([np.float32([200, -200])] * len(kinds))
    for kind, slope in zip(kinds, found, strict=True):
        np.testing.assert_allclose(slope, [1, 0], atol=1e-6, err_msg=kind)


def quantise(x, scale, zp, least, most):
    return np.clip(np.rint(np.float64(x) / scale + zp), least, most)


@pytest.mark.parametrize(("dtype", "least", "most"), [("s8", -128, 127), ("u8", 0, 255)])
def test_quantize_per_tensor(dtype, least, most):
    x = np.float32([-1000, -3, -0.75, -0.25, 0, 0.25, 0.75, 1.25, 30, 1000])
    found = one("Quantize", x, dtype=dtype, qtype="per_tensor", axis=0, scales=[0.5], zps=[3])
    assert found.dtype == {"s8": np.int8, "u8": np.uint8}[dtype]
    np.testing.assert_array_equal(found, quantise(x, 0.5, 3, least, most))
    assert found[3] == 2  # -0.25/0.5 + 3 = 2.5, a tie
    assert (found[0], found[-1]) == (least, most)
    without = one("Quantize", x, dtype=dtype, scales=[0.5])
    np.testing.assert_array_equal(without, quantise(x, 0.5, 0, least, most))


@pytest.mark.parametrize("axis", [1, -2])
def test_quantize_per_channel(axis):
    x = np.float32(np.random.default_rng(3).integers(-50, 50, (2, 3, 4))) / 4
    scales, zps = [0.5, 0.25, 2.0], [0, 100, -7]
    given = {"qtype": "per_channel", "axis": axis, "scales": scales, "zps": zps}
    found = one("Quantize", x, dtype="s8", **given)
    scale, zp = (np.float64(v).reshape(3, 1) for v in (scales, zps))
    np.testing.assert_array_equal(found, quantise(x, scale, zp, -128, 127))
    by_default = {k: v for k, v in given.items() if k != "axis"}
    np.testing.assert_array_equal(one("Quantize", x, dtype="s8", **by_default), found)


@pytest.mark.parametrize("dtype", [np.int8, np.uint8])
def test_dequantize(dtype):
    info = np.iinfo(dtype)
    x = np.arange(info.min, info.max + 1).astype(dtype).reshape(64, 4)
    scales, zps = [0.5, 0.25, 2.0, 1.0], [0, 100, 7, 255]
    found = one("Dequantize", x, scales=[0.125], zps=[17])
    np.testing.assert_array_equal(found, (x.astype(np.float32) - 17) / 8, strict=True)
    found = one("Dequantize", x, qtype="per_channel", scales=scales, zps=zps)
    expected = (x.astype(np.float32) - np.float32(zps)) * np.float32(scales)
    np.testing.assert_array_equal(found, expected, strict=True)
    half = one("Dequantize", x, dtype="bf16", scales=[0.125], zps=[17])
    expected = ((x.astype(np.float32) - 17) / 8).astype(jnp.bfloat16)
    np.testing.assert_array_equal(half, expected, strict=True)


def test_a_graph_is_differentiable_beside_quantised_weights():
    scaled = {"scales": [0.5], "zps": [0]}
    nodes = [
        node(0, "Dequantize", [tensor(0, 3, dtype="s8")], tensor(1, 3), **scaled),
        node(1, "Multiply", [tensor(2, 3), tensor(1, 3)], tensor(3, 3)),
    ]
    weights = np.int8([4, -2, 7])
    slope = jax.grad(lambda x: onednn.run_graph(graph(*nodes), {0: weights, 2: x})[3].sum())
    np.testing.assert_array_equal(slope(np.float32([1, 2, 3])), [2, -1, 3.5])


SRC = [(2, 3, 4)]
EACH_CHANNEL = r"must have one entry for each channel of src, \(2, 3, 4\)"


@pytest.mark.parametrize(
    ("message", "kind", "shapes", "attributes"),
    [
        ("`min` must be at most `max`; got 2.0 and 1.0", "Clamp", SRC, {"min": 2.0, "max": 1.0}),
        ("`beta` must not be 0; got 0", "SoftPlus", SRC, {"beta": 0.0}),
        (r"`shape` must hold the 24 elements of src, \(2, 3, 4\); got \[5, -1\]", "StaticReshape",
         SRC, {"shape": [5, -1], "special_zero": False}),
        (r"`shape` must hold the 0 elements of src, \(0, 3\); got \[0, -1\]", "StaticReshape",
         [(0, 3)], {"shape": [0, -1], "special_zero": False}),
        (r"a 0 in `shape` copies an extent of src, \(2, 3, 4\); got \[2, 3, 4, 0\]",
         "StaticReshape", SRC, {"shape": [2, 3, 4, 0], "special_zero": True}),
        (r"`shape` must be extents, at most one of them -1; got \[-1, -1\]", "StaticReshape",
         SRC, {"shape": [-1, -1], "special_zero": False}),
        (r"`order` must name each axis of src, \(2, 3, 4\), once; got \[0, 1, -2\]",
         "StaticTranspose", SRC, {"order": [0, 1, -2]}),
        (r"`scales` must have one entry, since `qtype` is per_tensor; got 3", "Quantize",
         SRC, {"scales": [1.0, 1.0, 1.0]}),
        (r"`zps` must have 3 entries, one for each place on axis 1 of src \(2, 3, 4\); got 1",
         "Quantize", SRC, {"scales": [1.0, 1.0, 1.0], "zps": [0], "qtype": "per_channel"}),
        (r"`axis` must be from -3 to 2, of src of shape \(2, 3, 4\); got 3", "Quantize",
         SRC, {"scales": [1.0], "axis": 3, "qtype": "per_channel"}),
        (r"`scales` must be above 0; got \[0.0\]", "Quantize", SRC, {"scales": [0.0]}),
        ("the attribute `scales` is required; got none", "Quantize", SRC, {"zps": [0]}),
        (r"src_0 and src_1 must have one shape, since `auto_broadcast` is none; got \(2, 3\) "
         r"and \(3,\)", "Add", [(2, 3), (3,)], {"auto_broadcast": "none"}),
        (r"the shapes of src_0 and src_1 must broadcast; got \(2, 3\) and \(2,\)",
         "Divide", [(2, 3), (2,)], {}),
        (rf"`bias` {EACH_CHANNEL} \(NXC\); got shape \(3,\)", "BiasAdd", [*SRC, (3,)], {}),
        (r"`bias` .* of src, \(3,\) .*", "BiasAdd", [(3,), (3,)], {}),
        (rf"`slope` {EACH_CHANNEL} \(NCX\); got shape \(4,\)",
         "PReLU", [*SRC, (4,)], {"data_format": "NCX"}),
        (r"`slope` must broadcast to src, \(2, 3\); got \(1, 2, 3\)",
         "PReLU", [(2, 3), (1, 2, 3)], {}),
        (r"the inputs must be src_0, src_1; got 1", "Add", [(2, 3)], {}),
    ],
)  # fmt: skip
def test_wrong_attributes_and_shapes(message, kind, shapes, attributes):
    tensors = [tensor(i, *shape) for i, shape in enumerate(shapes)]
    out = tensor(9, *shapes[0], dtype="s8" if kind == "Quantize" else "f32")
    made = node(0, kind, tensors, out, **attributes)
    with pytest.raises(ValueError, match=rf"^node 0 '{kind.upper()}_0' \({kind}\): {message}$"):
        onednn.run_graph(graph(made))
