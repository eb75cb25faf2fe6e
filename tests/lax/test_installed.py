"""Convolutions of lax under `jaxconv.installed`: transformed, on meshes, and listed.

Whether a program is lax's own is read from its text: a depthwise convolution is never lowered
as lax does it.
"""

import re
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxconv
from jaxconv._lax import install
from tests.support.forms import integers
from tests.support.lax_oracle import K, X, conv, depthwise, loss, same
from tests.support.programs import collectives


def check(function, *args):
    """Compiled on both sides of `installed`, a function gives the same, by other programs."""
    function = jax.jit(function)
    theirs, text = function(*args), function.lower(*args).as_text()
    with jaxconv.installed():
        same(function(*args), theirs)
        assert function.lower(*args).as_text() != text
    return theirs


def test_a_jaxpr_is_what_it_was():
    before = str(jax.make_jaxpr(jax.grad(loss, (0, 1)))(X, K))
    with jaxconv.installed():
        assert str(jax.make_jaxpr(jax.grad(loss, (0, 1)))(X, K)) == before


@pytest.mark.parametrize("nans", [False, True])
def test_eager(nans):
    expected = depthwise(X, K)
    with jaxconv.installed(), jax.disable_jit(), jax.debug_nans(nans):
        same(depthwise(X, K), expected)
        same(jaxconv.convolution(X, K, strides=(2, 1), auto_pad="same_upper", groups=6), expected)


def test_a_platform_is_no_switch():
    with pytest.raises(TypeError, match="`yes` must be True or False; got 'gpu'"):
        jaxconv.installed("gpu")


@pytest.mark.parametrize(
    ("taps", "arguments", "split"),
    [
        (2, {"window_strides": (1,), "padding": [(2, 2)]}, P(None, None, "b")),
        (3, {"window_strides": (1,), "padding": [(1, 2)], "lhs_dilation": (2,)}, P(None, "b")),
        (4, {"window_strides": (1,), "padding": [(2, 2)], "lhs_dilation": (2,)}, P(None, "b")),
    ],
)
def test_what_xla_splits_rightly_of_lax_alone(taps, arguments, split):
    """Over two axes of a mesh; it splits wrongly a convolution whose padding stands apart."""
    mesh = jax.make_mesh((2, 2), ("a", "b"), axis_types=(AxisType.Auto,) * 2)
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-3, 4, shape).astype(np.float32) for shape in ((2, 12, 4), (taps, 4, 2)))
    convolve = partial(lax.conv_general_dilated, dimension_numbers=("NHC", "HIO", "NHC"))
    convolve = partial(convolve, **arguments)
    placed = [
        jax.device_put(array, NamedSharding(mesh, spec))
        for array, spec in ((x, P(None, "a")), (w, split))
    ]
    expected = convolve(x, w)
    np.testing.assert_array_equal(jax.jit(convolve)(*placed), expected)
    with jaxconv.installed():
        np.testing.assert_array_equal(jax.jit(convolve)(*placed), expected)


def test_automatic_sharding():
    mesh = jax.make_mesh((4,), ("d",), axis_types=(AxisType.Auto,))
    x, k = (jax.device_put(a, NamedSharding(mesh, s)) for a, s in ((X, P("d")), (K, P())))
    expected = jax.grad(loss, (0, 1))(X, K)
    with jaxconv.installed():
        compiled = jax.jit(jax.grad(loss, (0, 1))).lower(x, k).compile()
    for got, exact in zip(compiled(x, k), expected, strict=True):
        assert np.array_equal(got, exact)
    assert set(collectives(compiled.as_text())) == {"all-reduce"}


def transposed_loss(x, k):
    """Of a weights gradient whose groups move; it has the kernel's sharding."""
    return (conv(x, k, (1, 1), [(1, 1)] * 2, groups=6, lhs_dilation=(2, 1)) ** 2).sum()


@pytest.mark.parametrize("of", [loss, transposed_loss])
@pytest.mark.parametrize("shape", [(2,), (2, 2)])
def test_explicit_sharding(shape, of):
    """With two mesh axes, XLA's own weights gradient is wrong, by a factor of the unused one."""
    both = jax.grad(of, (0, 1))
    exact = both(X, K)
    mesh = jax.make_mesh(
        shape, ("d", "e")[: len(shape)], axis_types=(AxisType.Explicit,) * len(shape)
    )
    with jax.set_mesh(mesh):
        x = jax.device_put(X, NamedSharding(mesh, P("d")))
        k = jax.device_put(K, NamedSharding(mesh, P()))
        types = [jax.typeof(a) for a in jax.jit(both)(x, k)]
        with jaxconv.installed():
            results = jax.jit(both)(x, k)
    for got, expected, of in zip(results, exact, types, strict=True):
        assert jax.typeof(got) == of
        assert np.array_equal(got, expected)


@pytest.mark.parametrize("asked", [P("d", "e"), P(None, "e"), P("d", None, "e")])
def test_an_explicit_sharding_that_is_asked_for(asked):
    """Of the channels, in a layout other than that of the data."""
    mesh = jax.make_mesh((2, 2), ("d", "e"), axis_types=(AxisType.Explicit,) * 2)
    wide = integers((3, 3, 6, 4), 3)

    def dense(x, k, sharding=None):
        return lax.conv_general_dilated(
            x, k, (1, 1), "SAME", dimension_numbers=("NHWC", "HWIO", "NCHW"), out_sharding=sharding
        )

    exact = dense(X, wide)
    with jax.set_mesh(mesh), jaxconv.installed():
        x = jax.device_put(X, NamedSharding(mesh, P("d")))
        k = jax.device_put(wide, NamedSharding(mesh, P(None, None, None, "e")))
        got = jax.jit(dense, static_argnums=2)(x, k, asked)
    assert tuple(got.sharding.spec)[: len(asked)] == tuple(asked)
    assert np.array_equal(got, exact)


@pytest.mark.parametrize("check_vma", [False, True])
def test_shard_map(check_vma):
    mesh = jax.make_mesh((4,), ("d",), axis_types=(AxisType.Auto,))
    split = jax.shard_map(
        depthwise, mesh=mesh, in_specs=(P("d"), P()), out_specs=P("d"), check_vma=check_vma
    )
    check(jax.grad(lambda x, k: (split(x, k) ** 2).sum(), (0, 1)), X, K)


def test_a_symbolic_batch():
    (batch,) = export.symbolic_shape("b")
    types = [jax.ShapeDtypeStruct(s, np.float32) for s in ((batch, *X.shape[1:]), K.shape)]
    with jaxconv.installed():
        exported = export.export(jax.jit(jax.grad(loss, (0, 1))))(*types)
        plain = export.export(jax.jit(jaxconv.convolution))(types[0], integers((1, 1, 6, 2), 3))
    assert (
        exported.mlir_module()
        != export.export(jax.jit(jax.grad(loss, (0, 1))))(*types).mlir_module()
    )
    same(exported.call(X, K), jax.grad(loss, (0, 1))(X, K))
    assert plain.call(X, integers((1, 1, 6, 2), 3)).shape == (*X.shape[:3], 2)


def test_several_platforms():
    """On CPU ours, on the others lax's, in one program."""
    platforms = ["cpu", "cuda", "tpu"]

    def both(x, k):
        first = jaxconv.convolution(x, k, strides=(2, 1), auto_pad="same_upper", groups=6)
        return first + depthwise(x, k)

    expected = both(X, K)
    with jaxconv.installed():
        exported = export.export(jax.jit(both), platforms=platforms)(X, K)
    same(exported.call(X, K), expected)
    assert exported.mlir_module().count("stablehlo.case") >= 1


@pytest.mark.parametrize("forced", [None, "reference"])
def test_the_library_does_not_come_back_to_itself(forced):
    """Its own operations are lowered as they are without."""

    def text():
        gradients = jax.grad(lambda x, k: jaxconv.convolution(x, k, groups=6).sum(), (0, 1))
        return jax.jit(gradients).lower(X, K).as_text()

    with jaxconv.forced(forced):
        before = text()
        with jaxconv.installed():
            assert text() == before


def test_forced():
    with jaxconv.installed():
        chosen = jax.jit(loss).lower(X, K).as_text()
        with jaxconv.forced("reference"):
            assert jax.jit(loss).lower(X, K).as_text() != chosen
            same(loss(X, K), jax.jit(loss)(X, K))


def test_measured():
    measure = partial(jaxconv.measure, depthwise, X, K)
    with pytest.raises(ValueError, match="must contract something"):
        measure()
    with jaxconv.installed():
        measured = measure()
        assert len(measured.milliseconds) == 1
        with jaxconv.forced(measured):
            same(jax.jit(depthwise)(X, K), depthwise(X, K))


@pytest.mark.parametrize(
    ("lhs_dilation", "k", "expected"),
    [((1,), 3, "HIGHEST, DEFAULT"), ((2,), 9, "DEFAULT, HIGHEST")],
)
def test_precision(lhs_dilation, k, expected):
    """Each operand's own; a transposed convolution's weights gradient exchanges the two."""
    x, k = integers((2, 2, 9), 1), integers((2, 2, k), 2)
    function = partial(
        lax.conv_general_dilated, window_strides=(1,), padding=[(0, 0)], lhs_dilation=lhs_dilation,
        dimension_numbers=("NCH", "OIH", "NCH") if k.shape[2] == 3 else ("CNH", "OIH", "NCH"),
        precision=("highest", "default"),
    )  # fmt: skip
    with jaxconv.installed(), jaxconv.forced("reference"):
        text = jax.jit(function).lower(x, k).as_text()
    assert re.findall(r"#stablehlo<precision (\w+)>", text) == expected.split(", ")


def test_complex_numbers_are_three_convolutions():
    x, k = (integers(s, 1) + 1j * integers(s, 2) for s in (X.shape, K.shape))
    check(depthwise, x.astype(np.complex64), k.astype(np.complex64))


def test_numpy_and_scipy_of_jax():
    x, k = integers((40,), 1), integers((7,), 2)

    def both(x, k):
        return jnp.convolve(x, k), jax.scipy.signal.convolve2d(x.reshape(5, 8), k.reshape(1, 7))

    theirs = both(x, k)
    with jaxconv.installed():
        same(both(x, k), theirs)
    assert [row.to for row in jaxconv.explain(both, x, k).rows] == ["coarse", "coarse"]

    def by_kernel(k):
        return jax.grad(lambda k: jnp.convolve(x, k).sum())(k)

    left = [row.why for row in jaxconv.explain(by_kernel, k).rows if not row.to]
    assert left == [install.FASTER]
    theirs = by_kernel(k)
    with jaxconv.installed():
        same(by_kernel(k), theirs)
