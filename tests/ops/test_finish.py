"""What follows the sum: a bias, a residual and an activation, with one rounding after all."""

from functools import partial

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest
from jax import export, lax
from jax.experimental import jet
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxconv
from jaxconv._base.finish import FUNCTIONS
from tests.support import oracle
from tests.support.activations import ALPHA, EXACT, FORMULAS, POINTS, SMOOTH
from tests.support.forms import integers
from tests.support.oracle import round_to

BF16 = ml_dtypes.bfloat16
DTYPES = (np.float32, BF16, np.float16)
SHAPES = {
    "convolution": ((2, 9, 8, 4), (3, 2, 2, 6)),
    "conv_transpose": ((2, 4, 3, 6), (3, 2, 2, 6)),
}
ATTRIBUTES = {"strides": (2, 1), "pads_begin": (1, 0), "groups": 2}

each_op = pytest.mark.parametrize("name", SHAPES)


def arrays(name, dtype, limit=4):
    """src, weights, bias, residual."""
    src, weights = (integers(s, seed, np.float32, limit) for seed, s in enumerate(SHAPES[name]))
    out = jax.eval_shape(lambda: getattr(jaxconv, name)(src, weights, **ATTRIBUTES)).shape
    bias, residual = integers(out[-1:], 2, np.float32, 9), integers(out, 3, np.float32, 99)
    return [x.astype(dtype) for x in (src, weights, bias, residual)]


def apply(name, activation, src, weights, bias=None, residual=None, **more):
    return getattr(jaxconv, name)(
        src, weights, bias, residual=residual, activation=activation, alpha=ALPHA.get(activation),
        **ATTRIBUTES, **more,
    )  # fmt: skip


def sums(name, src, weights, bias, residual):
    found = getattr(oracle, name)(src, weights, bias, **ATTRIBUTES)
    return found + np.asarray(residual, np.float64)


@each_op
@pytest.mark.parametrize("dtype", DTYPES)
def test_integers_are_exact(name, dtype):
    """In 16 bits, a sum that is rounded before what follows differs from a sum that is not."""
    given = arrays(name, dtype, limit=24)
    exact = sums(name, *given)
    ways = [(f, wider) for f in EXACT for wider in (None, np.float32)]
    found = jax.jit(
        lambda *x: [apply(name, f, *x, preferred_element_type=wider) for f, wider in ways]
    )(*given)
    for (activation, wider), result in zip(ways, found, strict=True):
        expected = round_to(FORMULAS[activation](exact), wider or dtype)
        np.testing.assert_array_equal(result, expected, strict=True)


def at_points(activations, x, dtype):
    """By name, activations of chosen sums, as one program: convolutions by the number 1."""

    @jax.jit
    def run(x):
        x, one = x.reshape(1, -1, 1), np.ones((1, 1, 1), dtype)
        return [
            jaxconv.convolution(x, one, activation=name, alpha=ALPHA.get(name)).reshape(-1)
            for name in activations
        ]

    return dict(zip(activations, run(jnp.asarray(x, dtype)), strict=True))


@pytest.mark.parametrize("dtype", DTYPES)
def test_smooth_functions(dtype):
    """Half a unit of the result's type, and a few of float32's, in which they are computed."""
    x = POINTS.astype(dtype).astype(np.float64)
    bound = float(ml_dtypes.finfo(dtype).eps) / 2 + 16 * 2**-24
    tiny = float(ml_dtypes.finfo(dtype).smallest_subnormal) + 8 * 2**-24 * np.maximum(abs(x), 1)
    for activation, found in at_points(SMOOTH, x, dtype).items():
        exact = FORMULAS[activation](x)
        error = abs(np.asarray(found, np.float64) - exact)
        assert (error <= bound * abs(exact) + tiny).all(), activation


#: What becomes of minus infinity and infinity; NaN where the formula has infinity times zero.
LIMITS = {
    None: (-np.inf, np.inf), "relu": (0, np.inf), "relu6": (0, 6), "leaky_relu": (-np.inf, np.inf),
    "elu": (-1, np.inf), "tanh": (-1, 1), "sigmoid": (0, 1), "gelu_erf": (np.nan, np.inf),
    "gelu_tanh": (np.nan, np.inf), "silu": (np.nan, np.inf),
}  # fmt: skip


@pytest.mark.parametrize("dtype", DTYPES)
def test_infinity_and_nan(dtype):
    """NaN stays NaN: an activation must not hide that a training diverges."""
    assert {*LIMITS} == {*FORMULAS} == {None, *FUNCTIONS}
    assert all(f'``"{name}"``' in jaxconv.__doc__ for name in FUNCTIONS)
    for activation, found in at_points(LIMITS, [-np.inf, np.inf, np.nan], dtype).items():
        expected = [*LIMITS[activation], np.nan]
        np.testing.assert_array_equal(np.float32(found), expected, str(activation))


def slope(activation, x):
    """The derivative of a formula, by a central difference; a kink is asked from the left."""
    if activation in EXACT:
        left, step = x - 2**-10, 2**-11
        return (FORMULAS[activation](left + step) - FORMULAS[activation](left - step)) / (2 * step)
    h = 1e-5
    return (FORMULAS[activation](x + h) - FORMULAS[activation](x - h)) / (2 * h)


@pytest.mark.parametrize(
    ("name", "activations"), [("convolution", FORMULAS), ("conv_transpose", ("relu", "silu"))]
)
def test_derivatives(name, activations):
    """Gradients are the Backward operations of the cotangent times the derivative."""
    given = []
    for activation in activations:
        scale = np.float32(1 if activation in EXACT else 1 / 64)  # sums where the function bends
        src, weights, bias, residual = (np.float32(x) for x in arrays(name, np.float32))
        given.append((src * scale, weights, bias * scale, residual / 64))
    cotangent = integers(residual.shape, 5)

    @jax.jit
    def differentiate(given):
        return [
            jax.vjp(partial(apply, name, activation), *x)[1](cotangent)
            for activation, x in zip(activations, given, strict=True)
        ]

    for activation, x, found in zip(activations, given, differentiate(given), strict=True):
        src, weights, _, _ = x
        through = cotangent * slope(activation, sums(name, *x))
        shape = {"dst_shape": src.shape} if name == "convolution" else {}
        expected = (
            getattr(oracle, f"{name}_backward_data")(through, weights, **shape, **ATTRIBUTES),
            getattr(oracle, f"{name}_backward_weights")(src, through, weights.shape, **ATTRIBUTES),
            through.sum((0, 1, 2)),
            through,
        )
        for got, exact in zip(found, expected, strict=True):
            largest = abs(exact).max()
            np.testing.assert_allclose(got, exact, rtol=1e-4, atol=1e-4 * largest)


def test_the_derivative_at_a_kink_is_that_of_the_left():
    for name, left in {"relu": 0, "relu6": 0, "leaky_relu": 0.375, "elu": 1}.items():
        slope = jax.grad(lambda x, name=name: at_points([name], x, np.float32)[name].sum())
        found = slope(jnp.float32([0, 6]))
        assert found[0] == left, name
        assert found[1] == float(name != "relu6"), name


def test_a_derivative_that_is_zero_stops_an_infinite_cotangent():
    _, pull = jax.vjp(lambda x: at_points(["relu"], x, np.float32)["relu"], jnp.array([-1.0, 1.0]))
    assert pull(jnp.array([np.inf, 3.0]))[0].tolist() == [0, 3]


def test_what_is_kept_for_the_derivative():
    """One factor of the type of dst, or a mask and JAX's zeros; nothing of the sums' type."""
    for activation in FORMULAS:
        types = jax.eval_shape(
            lambda *x, name=activation: jax.vjp(partial(apply, "convolution", name), *x),
            *arrays("convolution", BF16),
        )
        out, pull = types
        kept = [x for x in jax.tree.leaves(pull) if x.shape == out.shape]
        assert all(x.dtype in (jnp.bfloat16, bool) for x in kept), activation
        wanted = [] if activation is None else [BF16]
        assert [x.dtype for x in kept if x.dtype != bool] == wanted, activation


@pytest.mark.parametrize(
    ("activation", "near"), [("silu", -1.28125), ("gelu_tanh", -0.75), ("gelu_erf", -0.75)]
)
def test_a_bfloat16_derivative_is_taken_at_the_sum(activation, near):
    """Near a minimum, where the derivative at the rounded sum, `near`, is far off."""
    step = 2**-9 if near < -1 else -(2**-10)
    src, weights = jnp.asarray([[[near, step]]], BF16), jnp.ones((1, 2, 1), BF16)
    assert jaxconv.convolution(src, weights).item() == near
    slope_of = jax.grad(lambda x: jaxconv.convolution(x, weights, activation=activation).sum())
    found = slope_of(src)[0, 0, 0]
    at, h = FORMULAS[activation], 1e-6
    exact = (at(near + step + h) - at(near + step - h)) / (2 * h)
    np.testing.assert_allclose(np.float64(found), exact, rtol=2**-6)


@pytest.mark.parametrize("activation", ["relu", "tanh", "silu"])
def test_any_order(activation):
    """Forward over reverse, as of the same function written out."""
    function = {"relu": jax.nn.relu, "tanh": jnp.tanh, "silu": jax.nn.silu}[activation]
    src, weights, bias, residual = (jnp.asarray(x) / 8 for x in arrays("convolution", np.float32))

    def whole(x):
        return apply("convolution", activation, x, weights, bias, residual)

    def written_out(x):
        return function(jaxconv.convolution(x, weights, bias, **ATTRIBUTES) + residual)

    @partial(jax.jit, static_argnums=0)
    def second(f):
        return jax.jvp(jax.grad(lambda x: (f(x) ** 3).sum()), (src,), (src,))[1]

    expected = second(written_out)
    np.testing.assert_allclose(second(whole), expected, rtol=1e-4, atol=1e-4 * abs(expected).max())


@each_op
def test_additions_alone_are_linear_but_for_constants(name):
    """jax.linear_transpose by src or residual, and Taylor series, as of the sum alone."""
    src, weights, bias, residual = (jnp.asarray(x) for x in arrays(name, np.float32))
    out, pull = jax.vjp(lambda x, r: apply(name, None, x, weights, bias, r), src, residual)
    cotangent = integers(out.shape, 5)
    by_src = jax.linear_transpose(lambda x: apply(name, None, x, weights, bias, residual), src)
    by_residual = jax.linear_transpose(lambda r: apply(name, None, src, weights, bias, r), residual)
    found = *by_src(cotangent), *by_residual(cotangent)
    jax.tree.map(np.testing.assert_array_equal, found, pull(cotangent))

    def series(*added):
        def operation(x, w):
            return apply(name, None, x, w, *added)

        return jet.jet(operation, (src, weights), [[src, 2 * src], [2 * weights, -2 * weights]])

    value, terms = series(bias, residual)
    np.testing.assert_array_equal(value, out)
    jax.tree.map(np.testing.assert_array_equal, terms, series()[1])
    with pytest.raises(NotImplementedError, match="with an activation is not linear"):
        jax.linear_transpose(lambda x: apply(name, "relu", x, weights), src)(cotangent)


@each_op
def test_transformed(name):
    """vmap over every tensor, scan, remat and jax.export give what a call gives."""
    src, weights, bias, residual = given = [jnp.asarray(x) for x in arrays(name, np.float32)]
    expected = apply(name, "leaky_relu", *given)

    def call(*tensors):
        return apply(name, "leaky_relu", *tensors)

    mapped = jax.vmap(call, (0, None, 0, 0))(*(jnp.stack([x, -x]) if x is not weights else x
                                               for x in given))  # fmt: skip
    np.testing.assert_array_equal(mapped[0], expected)
    np.testing.assert_array_equal(mapped[1], call(-src, weights, -bias, -residual))
    shared = jax.vmap(call, (None, 0, None, None))(
        src, jnp.stack([weights, -weights]), bias, residual
    )
    np.testing.assert_array_equal(shared[1], call(src, -weights, bias, residual))
    _, scanned = lax.scan(lambda c, x: (c, call(x, weights, bias, residual)), 0, src[None])
    np.testing.assert_array_equal(scanned[0], expected)
    exported = export.export(jax.jit(call))(*given)
    np.testing.assert_array_equal(exported.call(*given), expected)
    gradient = jax.grad(lambda *x: (call(*x) ** 2).sum(), (0, 1, 2, 3))
    again = jax.grad(lambda *x: (jax.checkpoint(call)(*x) ** 2).sum(), (0, 1, 2, 3))
    both = jax.jit(lambda *x: (gradient(*x), again(*x)))(*given)
    jax.tree.map(np.testing.assert_array_equal, *both)
    ahead = jax.jacfwd(call, (0, 1, 2, 3))(*given)  # maps tangents alone
    jax.tree.map(np.testing.assert_array_equal, ahead, jax.jacrev(call, (0, 1, 2, 3))(*given))


@each_op
def test_on_meshes(name):
    """A residual that is split otherwise keeps the result's sharding; shard_map sums gradients."""
    given = [jnp.asarray(x) for x in arrays(name, np.float32)]
    expected = apply(name, "relu", *given)
    gradient = jax.jit(jax.grad(lambda *x: (apply(name, "relu", *x) ** 2).sum(), (0, 1, 2, 3)))
    mesh = jax.make_mesh((2,), ("d",), axis_types=(AxisType.Explicit,))
    with jax.set_mesh(mesh):
        src = jax.device_put(given[0], NamedSharding(mesh, P("d")))
        other = jax.device_put(given[3], NamedSharding(mesh, P(None, None, None, "d")))
        found = apply(name, "relu", src, *given[1:3], other)
        assert jax.typeof(found).sharding.spec[0] == "d"
        np.testing.assert_array_equal(found, expected)
        grads = gradient(src, *given[1:])
    jax.tree.map(np.testing.assert_array_equal, grads, gradient(*given))
    mesh = jax.make_mesh((2,), ("d",), axis_types=(AxisType.Auto,))
    specs = (P("d"), P(), P(), P("d"))

    def local(*tensors):
        return jax.lax.psum((apply(name, "relu", *tensors) ** 2).sum(), "d")

    mapped = jax.shard_map(local, mesh=mesh, in_specs=specs, out_specs=P())
    again = jax.jit(jax.grad(mapped, (0, 1, 2, 3)))(*given)
    jax.tree.map(np.testing.assert_array_equal, again, grads)
