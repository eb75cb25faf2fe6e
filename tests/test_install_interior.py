"""jaxconv.install on convolutions of tensors between whose elements `lax.pad` has written zeros.

Values are compared with lax's own, exactly, on small integers.
"""

import random
from collections import Counter
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export, lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxconv
from jaxconv._lax import install, probe
from tests.support import lax_oracle
from tests.support.forms import integers, slow_if
from tests.support.programs import equations
from tests.support.timing import takes_at_most

CONVOLUTION = lax.conv_general_dilated_p.name
EACH = 6  # calls in one program
X, K = integers((4, 5, 6, 7), 1), integers((3, 5, 4, 3), 2)


def pad(x, *spatial):
    """Pad the last axes."""
    config = [*[(0, 0, 0)] * (x.ndim - len(spatial)), *spatial]
    return lax.pad(x, jnp.array(0, x.dtype), config)


def layer(x, k, spatial=((1, 0, 1), (-1, 2, 2))):
    """A transposed convolution of an image without a batch, as a library may write it."""
    padded = pad(x, *spatial)
    return lax.conv_general_dilated(padded[None], k, (1, 1), [(1, 2), (0, 1)])[0]


def batched(x, k, **more):
    return jax.vmap(partial(layer, **more), (0, None))(x, k)


def step(x, k, apply=batched):
    return jax.value_and_grad(lambda x, k: (apply(x, k) ** 2).sum(), (0, 1))(x, k)


SEEN = {"coarse": "stride 2x3", "fine": "lhs_dilation 2x3", "kernel": "lhs_dilation 2x3"}


def same(function, *args):
    """Where the library is installed, a function gives the same; and how it is computed there."""
    expected = jax.tree.leaves(jax.jit(function)(*args))
    with jaxconv.installed(), jaxconv.profile() as report:
        got = jax.tree.leaves(jax.jit(function)(*args))
    for one, other in zip(got, expected, strict=True):
        assert np.array_equal(one, other)
    return report.rows


def windows(rows):
    return {str(row.to): row.window for row in rows}


# Values.


def drawn(seed):
    """A call of lax's in which either operand has zeros inside, or parts of the result go unread.

    Edges may be negative and uneven. Half of the calls have strides and dilations of their own.
    """
    call = lax_oracle.drawn(seed)
    lhs, rhs, arguments = integers(call.lhs, 1), integers(call.rhs, 2), dict(call.arguments)
    specs = lax.conv_dimension_numbers(call.lhs, call.rhs, arguments["dimension_numbers"])
    draw = random.Random(seed)
    if draw.random() < 0.8:
        arguments |= {"lhs_dilation": None, "window_strides": (1,) * (lhs.ndim - 2)}
    while True:
        which = draw.choice(["lhs", "lhs", "rhs", "result", "result", "lhs and result"])
        run = partial(call_with_zeros, which, draw.random(), specs, arguments)
        try:
            if min(jax.eval_shape(run, lhs, rhs).shape) > 0:
                return run, lhs, rhs
        except (TypeError, ValueError):  # too large a window
            pass


def call_with_zeros(which, seed, specs, arguments, lhs, rhs):
    draw = random.Random(seed)

    def padded(x, spec, value, *interiors):
        config = [(0, 0, 0)] * x.ndim
        for axis in spec[2:]:
            config[axis] = draw.randint(-2, 3), draw.randint(-2, 3), draw.choice(interiors)
        out = lax.pad(x, jnp.array(value, x.dtype), config)
        if not out.size:
            raise ValueError("nothing is left")
        return out

    if "lhs" in which:
        lhs = padded(lhs, specs.lhs_spec, 0, 1, 1, 2)
    if "rhs" in which:
        rhs = padded(rhs, specs.rhs_spec, 0, 0, 1, 2)
    out = lax.conv_general_dilated(lhs, rhs, **arguments)
    if "result" in which and out.size:
        out = padded(out, specs.out_spec, 1, 0)
        starts, strides = [0] * out.ndim, [1] * out.ndim
        for axis in specs.out_spec[2:]:
            starts[axis], strides[axis] = draw.randrange(out.shape[axis]), draw.choice([1, 2, 3])
        out = lax.slice(out, starts, out.shape, strides)
    return out


@pytest.mark.parametrize("block", [pytest.param(n, marks=slow_if(n >= 1)) for n in range(10)])
def test_calls_drawn_at_random(block):
    calls = [drawn(EACH * block + n) for n in range(EACH)]

    def run(data):
        results = []
        for (call, _, _), (lhs, rhs) in zip(calls, data, strict=True):
            out, pull = jax.vjp(call, lhs, rhs)
            results.append((out, *pull(out)))
        return results

    data = [of for _, *of in calls]
    rows = same(run, data)
    written = (e for e in equations(jax.make_jaxpr(run)(data)) if e.primitive.name == CONVOLUTION)
    written = Counter(" ".join(v.aval.str_short() for v in e.invars) for e in written)
    computed = Counter(row.operands for row in rows for _ in range(row.count))
    assert computed.total() == written.total() == 3 * EACH
    assert (computed - written).total() >= 2


# Where zeros are seen.


def scanned(x, k, apply=layer):
    return lax.scan(lambda _, x: (None, apply(x, k)), None, x)[1]


def split(x, k):
    """The gradients of parts of the batch."""
    mesh = jax.make_mesh((4,), ("d",), axis_types=(AxisType.Auto,))

    def gradients(x, k):
        _, (x, k) = step(x, lax.pcast(k, "d", to="varying"))
        return x, k[None]

    return jax.shard_map(gradients, mesh=mesh, in_specs=(P("d"), P()), out_specs=P("d"))(x, k)


def wider(x, k):
    padded = pad(x.astype(np.float16), (1, 1, 2), (0, 0, 1)).astype(x.dtype)
    return lax.conv(padded, k, (1, 1), "VALID")


def other_axes(x, k):
    return jax.vmap(layer, (3, None), 2)(jnp.moveaxis(x, 0, 3), k)


def kernel(x, k):
    return lax.conv(x, pad(k[..., :2, :2], (1, 0, 1), (-1, 2, 2)), (1, 1), "VALID")


def not_in_one_jaxpr(x, k):
    return jax.jit(lambda x: lax.conv(x, k, (1, 1), "VALID"))(pad(x, (0, 0, 1), (0, 0, 1)))


def other_numbers(x, k):
    ones = lax.pad(x, np.ones((), x.dtype), [(0, 0, 0)] * 2 + [(0, 0, 1)] * 2)
    return lax.conv(ones, k, (1, 1), "VALID")


def strided(x, k):
    return lax.conv(x, k, (1, 1), "VALID")[..., ::2, ::2]


def read_twice(x, k):
    out = lax.conv(x, k, (1, 1), "VALID")
    return out[..., ::2].sum() + out[..., 1:, :].sum()


def returned(x, k):
    out = lax.conv(x, k, (1, 1), "VALID")
    return out, out[..., ::2]


CASES = {
    "vmap": (step, SEEN),  # writes reshapes and sums between the pads and the convolutions
    "one image": (partial(step, apply=lambda x, k: layer(x[0], k)), SEEN),
    "checkpoint": (partial(step, apply=jax.checkpoint(batched)), SEEN),
    # One loop hands the padded tensor to the other.
    "scan": (partial(step, apply=scanned), SEEN | {"kernel": ""}),
    "scan of checkpoint": (
        partial(step, apply=partial(scanned, apply=jax.checkpoint(layer))),
        SEEN,
    ),
    "shard_map": (split, SEEN),
    "other axes": (other_axes, {"fine": "lhs_dilation 2x3"}),
    "wider": (wider, {"fine": "lhs_dilation 3x2"}),
    "square": (
        partial(step, apply=partial(batched, spatial=((1, 0, 1), (2, 3, 0)))),
        {"coarse": "stride 2x1", "fine": "lhs_dilation 2x1", "kernel": "lhs_dilation 2x1"},
    ),
    "kernel": (kernel, {"coarse": "rhs_dilation 2x3"}),
    "strided": (strided, {"coarse": "stride 2"}),
    "read twice": (read_twice, {"coarse": ""}),
    "returned": (returned, {"coarse": ""}),
    "two jaxprs": (not_in_one_jaxpr, {"coarse": ""}),
    "other numbers": (other_numbers, {"coarse": ""}),
}


@pytest.mark.parametrize("case", CASES)
def test_where_zeros_are_seen(case):
    function, seen = CASES[case]
    assert windows(same(function, X, K)) == seen


def test_the_list_of_a_program():
    listed = jaxconv.explain_jaxpr(step, X, K).listed
    assert [c.result for c in listed] == ["fine", "kernel", "coarse"]
    assert listed[0].operands[0] == "float32[4,5,6,6]"  # an edge of -1


def test_automatic_sharding_is_left_alone():
    mesh = jax.make_mesh((4,), ("d",), axis_types=(AxisType.Auto,))
    x = jax.device_put(X, NamedSharding(mesh, P("d")))
    assert {row.window for row in same(step, x, K)} == {""}


def test_explicit_sharding_is_left_alone():
    mesh = jax.make_mesh((1,), ("d",), axis_types=(AxisType.Explicit,))
    with jax.set_mesh(mesh):
        x = jax.device_put(X, NamedSharding(mesh, P("d")))
        assert {row.window for row in same(batched, x, K)} == {""}


def test_export():
    """For a symbolic batch, and for several platforms."""
    (batch,) = export.symbolic_shape("b")
    types = [jax.ShapeDtypeStruct(s, np.float32) for s in ((batch, *X.shape[1:]), K.shape)]
    expected = step(X, K)
    for arguments, platforms in ((types, ["cpu"]), ((X, K), ["cpu", "cuda"])):
        with jaxconv.installed(), jaxconv.profile() as report:
            program = export.export(jax.jit(step), platforms=platforms)(*arguments)
        assert windows(row for row in report.rows if row.to) == SEEN
        for one, other in zip(*map(jax.tree.leaves, (program.call(X, K), expected)), strict=True):
            assert np.array_equal(one, other)


# JAX keeps what a rule has made for equal convolutions.

WHOLE = integers((4, 5, 12, 19), 4)


def dense(x, k):
    return lax.conv(x, k, (1, 1), "VALID")


def padded_first(x, whole, k):
    return dense(pad(x, (0, 1, 1), (0, 0, 2)), k), dense(whole, k)


def padded_last(x, whole, k):
    plain = dense(whole, k)
    return dense(pad(x, (0, 1, 1), (0, 0, 2)), k), plain


def slices_first(x, whole, k):
    return dense(whole, k)[..., ::2], dense(whole + 1, k)


def in_functions(x, whole, k):
    first = jax.jit(lambda x: dense(pad(x, (0, 1, 1), (0, 0, 2)), k))(x)
    return first, jax.jit(lambda x: dense(x, k))(whole), lax.map(lambda x: dense(x[None], k), whole)


def on_devices(x, whole, k):
    mesh = jax.make_mesh((4,), ("d",), axis_types=(AxisType.Auto,))
    split = partial(jax.shard_map, mesh=mesh, in_specs=(P("d"), P("d"), P()), out_specs=P("d"))
    return split(padded_first)(x, whole, k), split(padded_last)(x, whole, k)


def in_a_loop(x, whole, k):
    return lax.map(lambda of: padded_first(of[0][None], of[1][None], k), (x, whole))


EQUAL = [padded_first, padded_last, slices_first, in_functions, on_devices, in_a_loop]


@pytest.mark.parametrize("function", EQUAL)
def test_equal_convolutions_of_other_tensors(function):
    """Without a profile, for which JAX would lower each."""
    expected = jax.tree.leaves(jax.jit(function)(X, WHOLE, K))
    with jaxconv.installed():
        got = jax.jit(function)(X, WHOLE, K)
        exported = export.export(jax.jit(function), platforms=["cpu", "cuda"])(X, WHOLE, K)
    if function is not on_devices:
        expected, got = expected * 2, [got, exported.call(X, WHOLE, K)]
    for one, other in zip(jax.tree.leaves(got), expected, strict=True):
        assert np.array_equal(one, other)


@pytest.fixture
def another_jax(patched):
    """A JAX with a cache that `skip_lowering_cache` does not know."""
    for module in (install, probe):
        patched(module, "skip_lowering_cache", lambda ctx: None)
    probe.cache_is_known.cache_clear()
    yield
    probe.cache_is_known.cache_clear()


@pytest.mark.usefixtures("another_jax")
def test_a_cache_that_is_not_known(caplog):
    test_equal_convolutions_of_other_tensors(padded_first)
    test_equal_convolutions_of_other_tensors(slices_first)
    (record,) = caplog.records
    assert record.name == "jaxconv"
    assert record.message.startswith("install: convolutions of tensors with interior zeros are ")


@pytest.mark.usefixtures("another_jax")
def test_a_probe_that_fails(patched):
    patched(probe.probe_p, "bind", None)
    assert not probe.cache_is_known()


def test_frames_that_are_not_known(patched):
    patched(install, "find_step_being_lowered", lambda ctx, params: None)
    assert {row.window for row in same(step, X, K)} == {""}


def test_a_profile_does_not_hear_the_probe():
    """Which is lowered after the first convolution of this program."""
    probe.cache_is_known.cache_clear()

    def program(*operands):  # of this test alone: JAX keeps what it has lowered
        return padded_last(*operands)

    with jaxconv.installed(), jaxconv.profile() as report:
        jax.jit(program).lower(X, WHOLE, K)
    assert report.programs == {"jit(program)"}


@pytest.mark.timed
def test_zeros_cost_nothing():
    """Compared with lhs_dilation; as written, a step takes three times as long."""
    x, k = integers((8, 128, 16, 16), 1), integers((64, 128, 4, 4), 2)

    def by_pad(x, k):
        return lax.conv(pad(x, (2, 2, 1), (2, 2, 1)), k, (1, 1), "VALID")

    def by_dilation(x, k):
        return lax.conv_general_dilated(x, k, (1, 1), [(2, 2)] * 2, (2, 2))

    with jaxconv.installed():
        for program in (lambda apply: apply, lambda apply: partial(step, apply=apply)):
            ours, theirs = (
                jax.jit(program(apply)).lower(x, k).compile() for apply in (by_pad, by_dilation)
            )
            assert takes_at_most(
                1.3,
                lambda f=ours: jax.block_until_ready(f(x, k)),
                lambda f=theirs: jax.block_until_ready(f(x, k)),
            )
