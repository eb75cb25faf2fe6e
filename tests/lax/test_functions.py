"""`jaxconv.lax` gives what `jax.lax` gives: values, gradients, tangents, types, shapes, errors.

All data are small whole numbers, so that every order of summation gives the same.
"""

import jax
import numpy as np
import pytest
from jax import export, lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxconv
from jaxconv._base import jax_names
from tests.support.forms import each, integers
from tests.support.lax_oracle import LAST, both, data, same
from tests.support.programs import contractions, equations, primitives


@pytest.mark.parametrize("padding", ["SAME", "SAME_LOWER", "VALID", "same"])
def test_padding_by_name(padding):
    lhs, rhs = data((1, 9, 7, 2), (4, 3, 2, 3))
    for strides in [(1, 1), (3, 2)]:
        ours, theirs = both(
            window_strides=strides, padding=padding, lhs_dilation=(1, 1), rhs_dilation=(1, 2),
            dimension_numbers=LAST,
        )  # fmt: skip
        assert contractions(jax.make_jaxpr(ours)(lhs, rhs)) == ["coarse"]
        same(ours(lhs, rhs), theirs(lhs, rhs))


@pytest.mark.parametrize("ints", [np.array, lambda pads: (np.int32(p) for p in pads)])
def test_numbers_of_numpy_and_iterators(ints):
    for dtype in (np.float64, np.int32):  # to float32; and handed to lax, with what was read
        lhs, rhs = data((1, 2, 9), (3, 2, 4), dtype)
        strides, low, high = np.array([2]), ints([1]), ints([3])
        got = jaxconv.lax.conv_general_dilated(lhs, rhs, strides, zip(low, high, strict=True))
        same(got, lax.conv_general_dilated(lhs, rhs, (2,), [(1, 3)]))


def test_an_empty_batch():
    lhs, rhs = data((0, 4, 6), (6, 4, 3))
    ours, theirs = both(window_strides=(1,), padding=[(0, 0)])
    assert contractions(jax.make_jaxpr(ours)(lhs, rhs)) == ["coarse"]
    same(*(jax.vjp(f, lhs, rhs)[1](integers((0, 6, 4), 3)) for f in (ours, theirs)))


@pytest.mark.parametrize("weights", ["OIHW", "HWIO", "IOHW", "HWOI"])
@pytest.mark.parametrize("images", ["NHWC", "NCHW"])
def test_layouts_with_a_name_are_not_copied(images, weights):
    extents = {"N": 2, "C": 4, "H": 6, "W": 5}, {"O": 6, "I": 2, "H": 3, "W": 2}
    lhs, rhs = data([extents[0][c] for c in images], [extents[1][c] for c in weights])
    arguments = {"dimension_numbers": (images, weights, images), "feature_group_count": 2}
    ours, theirs = both(window_strides=(2, 1), padding="SAME", **arguments)
    assert primitives(jax.make_jaxpr(ours)(lhs, rhs)) == ["contract_to_coarse"]
    same(ours(lhs, rhs), theirs(lhs, rhs))
    padding = {"window_strides": (1, 1), "padding": [(1, 0), (1, 0)]}
    ours, theirs = both(lhs_dilation=(2, 3), **padding, **arguments)
    moves = primitives(jax.make_jaxpr(ours)(lhs, rhs))
    # The flip, and the groups from one axis of the weights to the other.
    assert (moves[0], moves[-1]) == ("rev", "contract_to_fine")
    assert moves.count("transpose") == 1
    same(ours(lhs, rhs), theirs(lhs, rhs))


@pytest.mark.parametrize(
    ("names", "copies"),
    [
        (("HWCN", "HWIO", "NHWC"), 1), (("NCHW", "OIHW", "NHWC"), 1),
        (("NHWC", "OHWI", "NCHW"), 1), (("NCHW", "IHOW", "CWHN"), 1),
        (("CHNW", "HOIW", "WHCN"), 1),
        (("NHWC", "WHIO", "NHWC"), 0),  # the kernel has its axes in any order
    ],
)  # fmt: skip
def test_data_in_the_layout_of_the_result_are_not_transposed(names, copies):
    extents = {"N": 2, "C": 4, "H": 6, "W": 5}, {"O": 6, "I": 4, "H": 3, "W": 2}
    lhs, rhs = ([s[c] for c in n] for s, n in zip(extents, names, strict=False))
    lhs, rhs = data(lhs, rhs)
    arguments = {"window_strides": (2, 1), "padding": [(1, 0), (0, 2)], "dimension_numbers": names}
    ours, theirs = both(**arguments)
    assert primitives(jax.make_jaxpr(ours)(lhs, rhs)).count("transpose") == copies
    same(ours(lhs, rhs), theirs(lhs, rhs))


EXPLICIT = jax.make_mesh((2,), ("d",), axis_types=(AxisType.Explicit,))


@pytest.mark.parametrize("lhs_dilation", [(1,), (2,)])
def test_out_sharding(lhs_dilation):
    with jax.set_mesh(EXPLICIT):
        lhs, rhs = data((4, 5, 2), (3, 2, 4))
        lhs = jax.device_put(lhs, NamedSharding(EXPLICIT, P("d")))
        specs = (None, P("d"), P(None, None, "d"))
        for layout, spec in [*(("NHC", spec) for spec in specs), ("CNH", P(None, "d"))]:
            ours, theirs = both(
                window_strides=(1,), padding=[(7, -1)], lhs_dilation=lhs_dilation,
                dimension_numbers=("NHC", "HIO", layout), out_sharding=spec,
            )  # fmt: skip
            assert len(contractions(jax.make_jaxpr(ours)(lhs, rhs))) == 1
            same(ours(lhs, rhs), theirs(lhs, rhs))


@pytest.mark.parametrize(
    ("shapes", "by"),
    [(("b, 2, 9", "4, 2, 3"), ["coarse"]), (("b, 2, n", "4, 2, 3"), []),
     (("b, 2, 9", "o, 2, 3"), [])],
)  # fmt: skip
def test_symbolic_extents(shapes, by):
    lhs, rhs = data((3, 2, 9), (4, 2, 3))
    ours, theirs = both(window_strides=(1,), padding=[(1, 2)])
    scope = export.SymbolicScope()
    symbolic = [
        jax.ShapeDtypeStruct(export.symbolic_shape(shape, scope=scope), np.float32)
        for shape in shapes
    ]
    assert contractions(jax.make_jaxpr(ours)(*symbolic)) == by
    same(export.export(jax.jit(ours))(*symbolic).call(lhs, rhs), theirs(lhs, rhs))


@pytest.mark.parametrize("lhs_dilation", [(1,), (2,)])
def test_precision(lhs_dilation):
    lhs, rhs = data((1, 2, 9), (4, 2, 3))
    arguments = {"window_strides": (1,), "padding": [(0, 0)], "lhs_dilation": lhs_dilation}
    ours, _ = both(**arguments, precision=("highest", "default"))
    *_, contraction = equations(jax.make_jaxpr(ours)(lhs, rhs))
    assert contraction.params["precision"] == (lax.Precision.HIGHEST, lax.Precision.DEFAULT)


LAYERS = {
    # name: batch, extents, options
    "same, groups": ((2,), (9, 8), {"kernel_size": (3, 2), "strides": 2, "feature_group_count": 2}),
    "dilation": ((2,), (4, 3), {"kernel_size": (3, 2), "input_dilation": (2, 3), "padding": 1}),
    "circular": ((2,), (9, 8), {"kernel_size": (3, 2), "strides": (2, 1), "padding": "CIRCULAR"}),
    "no batch": ((), (9, 8), {"kernel_size": (3, 2)}),
    "two batch axes": ((2, 3), (9,), {"kernel_size": (3,)}),
}  # fmt: skip


def nnx_layer(weights, bias, **options):
    nnx = pytest.importorskip("flax.nnx")
    layer = nnx.Conv(4, 6, **options, rngs=nnx.Rngs(0))
    layer.kernel[...], layer.bias[...] = weights, bias
    graph, state = nnx.split(layer)
    return lambda state, src: nnx.merge(graph, state)(src), state


def linen_layer(weights, bias, **options):
    nn = pytest.importorskip("flax.linen")
    return nn.Conv(6, **options).apply, {"params": {"kernel": weights, "bias": bias}}


@pytest.mark.filterwarnings("default")  # Flax's own
@pytest.mark.parametrize("make", [nnx_layer, linen_layer])
@each("given", LAYERS)
def test_a_layer_of_flax(given, make):
    batch, extents, options = given
    src, bias = integers((*batch, *extents, 4), 1), integers((6,), 3)
    inputs = 4 // options.get("feature_group_count", 1)
    weights = integers((*options["kernel_size"], inputs, 6), 2)
    results = []
    # Flax relies on promotion.
    with jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow"):
        for function in (jaxconv.lax.conv_general_dilated, lax.conv_general_dilated):
            apply, state = make(weights, bias, **options, conv_general_dilated=function)

            def loss(state, src, apply=apply):
                return (apply(state, src) ** 2).sum()

            slots = contractions(jax.make_jaxpr(apply)(state, src))
            assert len(slots) == (function is not lax.conv_general_dilated)
            results.append([apply(state, src), jax.grad(loss, (0, 1))(state, src)])
    same(*results)


def test_the_result_of_a_jaxpr_may_be_a_literal():
    program = jax.make_jaxpr(lambda x: 2.0)(1.0)
    assert jax_names.evaluate_equations(program, [1.0], None) == 2
