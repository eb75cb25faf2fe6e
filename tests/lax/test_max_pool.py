"""The gradient of max pools where jaxconv is installed, against lax's own, exactly.

Operands are full of ties, NaN and infinities, and cotangents are integers.
"""

import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxconv
from jaxconv._lax import install, max_pool
from tests.support.forms import integers
from tests.support.timing import takes_at_most


def operand(shape, dtype=np.float32):
    rng = np.random.default_rng(len(shape))
    x = rng.integers(-2, 3, shape).astype(np.float64)
    for value, share in ((np.nan, 0.05), (-np.inf, 0.2), (np.inf, 0.02)):
        x[rng.random(shape) < share] = value
    return jnp.asarray(x, dtype)


def gradient(x, cotangent, window, strides, padding, select=lax.ge_p):
    return lax.select_and_scatter_add_p.bind(
        cotangent, x, select_prim=select, window_dimensions=window, window_strides=strides,
        padding=tuple(padding),
    )  # fmt: skip


def loss(x):
    """Of overlapping windows over the middle axes; lax's rule for ties shows in the gradient."""
    return (lax.reduce_window(x, -np.inf, lax.max, (1, 3, 3, 1), (1, 2, 1, 1), "SAME") ** 3).sum()


def draw(rng, rank):
    """A pool over some axes of an operand, with pads beyond its windows."""
    window, strides = (tuple(map(int, rng.integers(1, 5, rank))) for _ in range(2))
    padding = [tuple(map(int, rng.integers(0, 5, 2))) for _ in range(rank)]
    window = (*window[:-1], 1) if rng.random() < 0.5 else window
    shape = tuple(map(int, rng.integers(3, 9, rank)))
    ends = zip(shape, window, strides, padding, strict=True)
    return shape, window, strides, padding, [(n + sum(p) - k) // s + 1 for n, k, s, p in ends]


def draws(rng, rank, count):
    """Pools that are taken over whether their windows overlap or not."""
    cases = [draw(rng, rank) for _ in range(count)]
    return [case for case in cases if 2 * math.prod(case[1]) <= max_pool.MAX_TAPS]


def check(cases, dtype):
    cases = [c for c in cases if min(c[-1]) > 0]
    assert cases
    data = [(operand(c[0], dtype), jnp.asarray(integers(c[-1], 2), dtype)) for c in cases]

    def run(data):
        return [gradient(*d, *c[1:-1]) for d, c in zip(data, cases, strict=True)]

    expected = jax.jit(run)(data)
    with jaxconv.installed():
        assert "select_and_scatter" not in jax.jit(run).lower(data).as_text()
        results = jax.jit(run)(data)
    for got, exact, case in zip(results, expected, cases, strict=True):
        assert got.dtype == exact.dtype
        assert np.array_equal(got.astype(np.float32), exact.astype(np.float32)), case


@pytest.mark.parametrize(
    ("rank", "dtype"),
    [*((rank, "float32") for rank in (1, 2, 3, 4)), (3, "bfloat16"), (3, "float16"),
     (3, "float64")],
)  # fmt: skip
def test_any_windows(rank, dtype):
    with jax.enable_x64(dtype == "float64"):
        check(draws(np.random.default_rng(rank), rank, 8), dtype)


def test_narrow_floats_are_rounded_once():
    """lax rounds each sum of cotangents."""
    rng = np.random.default_rng(0)
    x, cotangent = (jnp.asarray(rng.normal(size=(2, 9, 9, 3)), jnp.bfloat16) for _ in range(2))
    rest = (1, 3, 3, 1), (1, 1, 1, 1), [(0, 0), (1, 1), (1, 1), (0, 0)]
    exact = gradient(x.astype(np.float32), cotangent.astype(np.float32), *rest)
    with jaxconv.installed():
        got = jax.jit(lambda x, cotangent: gradient(x, cotangent, *rest))(x, cotangent)
    assert np.array_equal(got, exact.astype(jnp.bfloat16))


X = jnp.asarray(np.random.default_rng(1).permutation(2 * 6 * 7 * 3).reshape(2, 6, 7, 3), np.float32)
MESH = jax.make_mesh((2,), ("d",), axis_types=(AxisType.Auto,))
TRANSFORMED = {
    "vmap": jax.vmap(jax.grad(loss), in_axes=4, out_axes=4),
    "second order": jax.grad(lambda x: (jax.grad(loss)(x) ** 2).sum()),
    "jvp": lambda x: jax.jvp(jax.grad(loss), (x,), (x[::-1],)),
    "shard_map": jax.shard_map(jax.grad(loss), mesh=MESH, in_specs=P("d"), out_specs=P("d")),
}


@pytest.mark.parametrize("name", ["vmap", "second order", "jvp", "shard_map"])
def test_transformations(name):
    function = TRANSFORMED[name] if name == "shard_map" else (lambda x: TRANSFORMED[name](x))
    x = jnp.stack([X, -X], 4) if name == "vmap" else X
    expected, before = jax.jit(function)(x), str(jax.make_jaxpr(function)(x))
    with jaxconv.installed():
        assert str(jax.make_jaxpr(function)(x)) == before
        assert "select_and_scatter" not in jax.jit(function).lower(x).as_text()
        got = jax.jit(function)(x)
    jax.tree.map(np.testing.assert_array_equal, got, expected)


def reason(function, *args):
    """Why the one pool of a program stays with lax."""
    with jaxconv.profile() as report:
        text = jax.jit(lambda *args: function(*args)).lower(*args).as_text()
    (row,) = report.rows
    assert (row.to, row.form) == (None, "lax")
    assert "select_and_scatter" in text
    return row.why


def of(window, select=lax.ge_p, dtype=np.float32, shape=(2, 90), strides=(1, 1)):
    """A pool's gradient, and its operands."""
    ends = zip(shape, window, strides, strict=True)
    out = [(n - k) // s + 1 for n, k, s in ends]
    run = lambda x, d: gradient(x, d, window, strides, [(0, 0)] * 2, select)  # noqa: E731
    return run, jnp.ones(shape, dtype), jnp.ones(out, dtype)


STAYS = {
    max_pool.MANY_TAPS: of((1, 33)),
    max_pool.EMPTY: of((1, 3), shape=(0, 9)),
    "a pool by le": of((1, 3), lax.le_p),
    "operands of type int32 and int32": of((1, 3), dtype=np.int32),
}


@pytest.mark.parametrize("why", STAYS)
def test_stays_with_lax(why):
    with jaxconv.installed():
        assert reason(*STAYS[why]) == why


def test_windows_that_are_not_drawn():
    """An axis with one window, in isolated loops; and large ones side by side are taken over."""
    check([((8, 5, 7, 40), (1, 4, 3, 1), (1, 9, 2, 1), [(0, 0)] * 4, (8, 1, 3, 40))], np.float32)
    check([((9, 70), (1, 64), (1, 64), [(0, 0)] * 2, (9, 1))], np.float32)
    check([((9, 99), (1, 33), (1, 33), [(0, 0)] * 2, (9, 3))], np.float32)


def test_windows_far_apart_stay_with_lax():
    types = jax.ShapeDtypeStruct((2, 2), np.float32), jax.ShapeDtypeStruct((2**16, 2**16), "f4")
    params = {"select_prim": lax.ge_p, "padding": [(0, 0)] * 2, "window_dimensions": (1, 1)}
    found = max_pool.as_max_pool(types, **params, window_strides=(2**15, 2**16))
    assert found == max_pool.FAR
    later = max_pool.as_max_pool(types, **params, window_strides=(1, 1), speed=3)
    assert later == "unknown parameter speed"


def test_several_devices_and_exported_programs_stay_with_lax():
    split = jax.device_put(X, NamedSharding(MESH, P("d")))
    expected = jax.grad(loss)(X)
    with jaxconv.installed():
        assert reason(jax.grad(loss), split) == max_pool.ONE_DEVICE
        assert np.array_equal(jax.jit(jax.grad(loss))(split), expected)
        exported = export.export(jax.jit(jax.grad(loss)))(X)
        batch = jax.ShapeDtypeStruct((*export.symbolic_shape("b"), *X.shape[1:]), X.dtype)
        symbolic = export.export(jax.jit(jax.grad(loss)))(batch)
    for program in (exported, symbolic):
        assert "select_and_scatter" in program.mlir_module()
        assert np.array_equal(program.call(X), expected)


@pytest.mark.parametrize("left_out", [{"only": "forward"}, {"without": "max pool gradient"}])
def test_pools_may_be_left_out(left_out):
    jaxconv.install(**left_out)
    try:
        ((argument, name),) = left_out.items()
        assert reason(jax.grad(loss), X) == f"left out by install({argument}={[name]})"
        jaxconv.install(only=["max pool gradient"])
        assert "select_and_scatter" not in jax.jit(jax.grad(loss)).lower(X).as_text()
    finally:
        jaxconv.uninstall()
    assert reason(jax.grad(loss), X) == install.NOT_INSTALLED


def test_profile_lists_pools_and_compares_them():
    with jaxconv.installed(), jaxconv.profile() as report:
        jax.jit(lambda x: jax.grad(loss)(x)).lower(X)
    (row,) = report.rows
    assert (row.count, row.written_by, row.to, row.flops) == (1, "lax", "pool", 0)
    assert (row.form, row.window) == ("max pool gradient", "window 1x3x3x1, stride 1x2x1x1")
    assert report.share == 1
    assert "pool" in str(report)
    (compared,) = report.compare().listed
    assert compared.difference == 0


@pytest.mark.timed
@pytest.mark.parametrize("spatial", [(1, 2), (2, 3)])
@pytest.mark.parametrize(("taps", "stride"), [(2, 2), (3, 2), (3, 1)])
def test_a_pool_takes_a_quarter_of_the_time_of_lax(spatial, taps, stride):
    window, strides = (
        tuple(n if axis in spatial else 1 for axis in range(4)) for n in (taps, stride)
    )
    shape = tuple(48 if axis in spatial else 16 for axis in range(4))
    x = jnp.asarray(np.random.default_rng(0).normal(size=shape), np.float32)
    out = tuple((n - k) // s + 1 for n, k, s in zip(shape, window, strides, strict=True))
    cotangent = jnp.ones(out, np.float32)
    run = jax.jit(lambda *args: gradient(*args, window, strides, [(0, 0)] * 4))
    calls = []
    for installed in (True, False):
        with jaxconv.installed(installed):
            compiled = run.lower(x, cotangent).compile()
        calls.append(lambda f=compiled: f(x, cotangent).block_until_ready())
    assert takes_at_most(1 / 4, *calls)
