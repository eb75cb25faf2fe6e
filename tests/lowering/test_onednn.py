"""oneDNN's call: where it is used, that it is exact, and that only its vector code runs."""

import re
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxconv
from jaxconv._base import environment
from jaxconv._lowering import onednn_here
from jaxconv._lowering.cpu import to_coarse
from jaxconv._lowering.forms import onednn
from jaxconv._lowering.plan import choose_plan
from tests.support.forms import integers
from tests.support.plugin import HERE, forget, prints
from tests.support.problems import example

CALL = onednn.TARGET

SHAPES = (4, 13, 12, 8), (3, 3, 8, 16)


def types(dtype=jnp.float32):
    return [jax.ShapeDtypeStruct(shape, dtype) for shape in SHAPES]


def calls(function, *args):
    return CALL in jax.jit(function).lower(*args).as_text()


@HERE
def test_on_by_default_and_off_by_name():
    assert calls(jaxconv.convolution, *types())
    with jaxconv.forced("portable"):
        assert not calls(jaxconv.convolution, *types())


REASON = "from jaxconv import _lowering; print(_lowering.why_unavailable())"


def test_the_environment_turns_it_off():
    assert prints(REASON, JAXCONV_ONEDNN="0")[0] == "JAXCONV_ONEDNN=0 is set\n"


def test_an_odd_value_of_the_environment_warns_once(monkeypatch):
    monkeypatch.setenv("JAXCONV_ONEDNN", "yes")
    environment._check.cache_clear()
    text = "JAXCONV_ONEDNN must be 0, 1 or always; got 'yes', which counts as not set"
    with pytest.warns(UserWarning, match=text):
        # Sizes of this test alone: JAX keeps what it has compiled.
        jaxconv.convolution(jnp.ones((1, 37, 3)), jnp.ones((1, 3, 41)))
    found = onednn_here.why_unavailable()  # a second warning would be an error
    monkeypatch.delenv("JAXCONV_ONEDNN")
    assert onednn_here.why_unavailable() == found


@HERE
def test_an_instruction_set_without_avx2_turns_it_off():
    assert prints(REASON, ONEDNN_MAX_CPU_ISA="AVX2", DNNL_MAX_CPU_ISA="SSE41")[0] == "None\n"
    assert "has no AVX2" in prints(REASON, ONEDNN_MAX_CPU_ISA="SSE41")[0]
    assert "has no AVX2" in prints(REASON, ONEDNN_MAX_CPU_ISA="", DNNL_MAX_CPU_ISA="SSE41")[0]


@pytest.fixture
def asked_anew():
    """What is remembered of this process is forgotten, before and after."""
    forget()
    yield
    forget()


@pytest.mark.parametrize(
    ("name", "value", "reason"),
    [
        ("version", lambda name: "0.13.0", "not tested for jaxlib 0.13.0"),
        ("features", lambda: frozenset({"sse4_1", "avx"}), "has no AVX2"),
    ],
)
def test_elsewhere_it_is_off(name, value, reason, asked_anew, monkeypatch):
    monkeypatch.delenv("JAXCONV_ONEDNN", raising=False)
    monkeypatch.setattr(onednn_here, name, value)
    assert reason in onednn_here.why_unavailable() or sys.platform != "linux"


@pytest.mark.parametrize("held_to", ["AVX2", "avx2_vnni_2", "AVX512_CORE"])
def test_bfloat16_wants_instructions_of_its_own(held_to, asked_anew, monkeypatch):
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", held_to)
    assert not onednn_here.multiplies(jnp.dtype(jnp.bfloat16))
    assert onednn_here.multiplies(jnp.dtype(jnp.float32))
    assert not onednn_here.multiplies(jnp.dtype(jnp.float16))


def test_with_avx512_one_tap_of_few_pixels_is_a_dot(patched):
    """Of all images together; not where a stride leaves many to copy."""
    patched(onednn_here, "has_avx512", lambda: True)
    few, more = (example("coarse", (n, n), (96, 576), 1) for n in (3, 5))
    strided = example("coarse", (6, 6), (64, 576), 1, stride=2)
    found = [choose_plan(p, "cpu").form.name for p in (few, more, strided)]
    assert found == ["dot", "onednn", "onednn"]


@HERE
def test_exported_symbolic_and_float64_programs_are_portable():
    exported = jax.export.export(jax.jit(jaxconv.convolution))(*types())
    assert CALL not in exported.mlir_module()
    (batch,) = jax.export.symbolic_shape("n")
    some = jax.ShapeDtypeStruct((batch, *SHAPES[0][1:]), jnp.float32)
    assert (
        CALL not in jax.export.export(jax.jit(jaxconv.convolution))(some, types()[1]).mlir_module()
    )
    with jax.enable_x64(True):
        assert not calls(jaxconv.convolution, *types(jnp.float64))


@HERE
def test_programs_that_xla_splits_are_portable_and_local_ones_are_not():
    mesh = jax.make_mesh((2,), ("d",), axis_types=(AxisType.Auto,))
    src, weights = (integers(shape, 0) for shape in SHAPES)
    split = jax.device_put(src, NamedSharding(mesh, P("d")))
    assert not calls(jaxconv.convolution, split, weights)
    local = jax.shard_map(jaxconv.convolution, mesh=mesh, in_specs=(P("d"), P()), out_specs=P("d"))
    assert calls(local, split, weights)
    np.testing.assert_array_equal(jax.jit(local)(split, weights), jaxconv.convolution(src, weights))


@HERE
def test_one_sum_an_image_is_a_dot():
    """Newer releases of oneDNN multiply weights of many taps in a wrong order of the axes."""
    x, w = integers((64, 6, 6, 128), 1), integers((6, 6, 128, 1), 2)
    assert not calls(jaxconv.convolution, x, w)
    found = jax.jit(jaxconv.convolution)(x, w)
    np.testing.assert_array_equal(found[:, 0, 0], x.reshape(64, -1) @ w.reshape(-1, 1))


@HERE
def test_a_16_bit_result_is_written_in_16_bits():
    """Where the processor computes in them: no float32 result is rounded afterwards."""
    text = jax.jit(jaxconv.convolution).lower(*types(jnp.bfloat16)).as_text()
    assert ("f32" in text) != onednn_here.multiplies(jnp.dtype(jnp.bfloat16))


# A width of 12 with 3 zeros before it and stride 5: the last window ends 3 pixels before the end.
UNREAD = {"strides": 5, "pads_begin": 3}
SIGNAL = {"strides": 2, "groups": 2}


def line(width, groups=1):
    return (1, width, 8 * groups), (7, 8, 8 * groups)


@HERE
@pytest.mark.parametrize(
    ("shapes", "attributes", "widened"),
    [
        # oneDNN sums one channel wrongly, for a few sizes.
        (((8, 12, 12, 1), (3, 3, 1, 16)), {}, True),
        (((8, 12, 12, 2), (3, 3, 2, 16)), {}, False),
        (line(12), UNREAD, True),  # oneDNN writes beyond a buffer
        (line(13), UNREAD, False),
        (line(21, 2), SIGNAL | {"dilations": 2}, True),  # the fallback
        (line(21), {"strides": 2, "dilations": 2}, False),
        (line(21, 2), {"dilations": 2, "groups": 2}, False),
        (line(9, 2), SIGNAL | {"pads_begin": 4}, True),
        (line(9, 2), SIGNAL | {"pads_begin": 3, "pads_end": 3}, False),
        # oneDNN would generate code forever for some rows of many depthwise taps.
        (((4, 141, 16), (14, 1, 16)), {"groups": 16}, False),
        (((4, 141, 16), (15, 1, 16)), {"groups": 16}, True),
        (((4, 141, 16), (15, 1, 16)), {"groups": 16, "strides": 2}, False),
    ],
)
def test_bfloat16_is_widened_where_onednn_fails_in_it(shapes, attributes, widened):
    operands = [jax.ShapeDtypeStruct(shape, jnp.bfloat16) for shape in shapes]
    with jaxconv.forced("onednn"):
        text = jax.jit(lambda *x: jaxconv.convolution(*x, **attributes)).lower(*operands).as_text()
    [taken] = re.findall(rf"@{re.escape(CALL)}.* : \((.*)\) ->", text)
    wide = widened or not onednn_here.multiplies(jnp.dtype(jnp.bfloat16))
    assert re.findall(r"x(b?f\d+)>", taken) == 2 * ["f32" if wide else "bf16"]


@HERE
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
def test_within_everything_that_jax_has(dtype):
    src, weights = (jnp.asarray(integers(shape, 1), dtype) for shape in SHAPES)
    one = jaxconv.convolution(src, weights)
    srcs = jnp.stack([src, 2 * src])
    both = jnp.stack([one, 2 * one])

    def step(total, x):
        return total + jaxconv.convolution(x, weights), None

    def whole(srcs):
        loop = lax.scan(step, jnp.zeros_like(one), srcs)[0]
        until = lax.while_loop(
            lambda state: state[0] < 2,
            lambda state: (state[0] + 1, state[1] + jaxconv.convolution(srcs[state[0]], weights)),
            (0, jnp.zeros_like(one)),
        )[1]
        taken = lax.cond(srcs[0, 0, 0, 0, 0] > 99, jnp.zeros_like, lambda x: x, loop)
        mapped = jax.vmap(jaxconv.convolution, (0, None))(srcs, weights)
        again = jax.checkpoint(jaxconv.convolution)(srcs[1], weights)
        return loop, until, taken, mapped, again

    assert calls(whole, srcs)
    loop, until, taken, mapped, again = jax.jit(whole).lower(srcs).compile()(srcs)
    for found, expected in (
        (loop, 3 * one), (until, 3 * one), (taken, 3 * one), (mapped, both), (again, 2 * one),
    ):  # fmt: skip
        np.testing.assert_array_equal(found, expected)


@HERE
def test_what_is_not_finite_stays_in_its_image_and_group():
    src, weights = (np.ones(shape, np.float32) for shape in ((2, 6, 6, 16), (3, 3, 8, 16)))
    src[0, 0, 0, 0] = np.nan
    dst = np.array(jaxconv.convolution(src, weights, groups=2))
    assert np.isnan(dst[0, 0, 0, :8]).all()
    dst[0, 0, 0, :8] = 72
    assert (dst == 72).all()
    diff = np.ones((2, 4, 4, 16), np.float32)
    found = jaxconv.convolution_backward_weights(src, diff, weights.shape, groups=2)
    assert np.isfinite(np.asarray(found)[..., 8:]).all()
    assert np.isfinite(np.asarray(found)[:, :, 1:]).all()


#: Channel counts with which bfloat16 code takes in a neighbouring pixel, times zero: with AMX, and
#: with AVX-512 alone. docs/versions.md lists them.
LEAKS = {3, 8, 12, 15} if onednn_here.has_amx() else {3, 15, 17, 31, 33}


@HERE
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("taps", [(3, 3), (1, 3), (5, 5)], ids=str)
def test_a_nan_reaches_the_results_that_read_its_pixel(taps, dtype, patched):
    """In bfloat16, where the processor has code for it, but for the channel counts that leak."""
    patched(to_coarse, "MIN_ONEDNN_WORK", 0)
    code = onednn_here.multiplies(jnp.dtype(dtype))
    leaks = LEAKS if code and dtype == jnp.bfloat16 else set()
    rng = np.random.default_rng(5)
    pads = {"pads_begin": [k // 2 for k in taps], "pads_end": [k // 2 for k in taps]}
    tried = {1, 3, 8, 15, 17, 33}
    if taps == (3, 3):
        tried |= {2, 4, 6, 12, 16, 20, 24, 31, 32, 48, 64}
    for channels in sorted(tried - leaks):
        src = rng.integers(-3, 4, (2, 12, 12, channels))
        weights = rng.integers(-3, 4, (*taps, channels, 24))
        src, weights = (jnp.asarray(x, dtype) for x in (src, weights))
        assert calls(partial(jaxconv.convolution, **pads), src, weights)
        layer = jax.jit(partial(jaxconv.convolution, **pads))
        for _ in range(12):
            n, y, x, c = (int(rng.integers(size)) for size in src.shape)
            out = np.isnan(np.asarray(layer(src.at[n, y, x, c].set(jnp.nan), weights), np.float32))
            reads, (up, left) = np.zeros(out.shape, bool), (k // 2 for k in taps)
            reads[n, max(y - up, 0) : y + up + 1, max(x - left, 0) : x + left + 1] = True
            assert (out == reads).all(), (channels, n, y, x, c)


@HERE
@pytest.mark.parametrize("taps", [200, 2048])
def test_long_signals_of_one_channel(taps):
    """oneDNN's bfloat16 code would end the process for 2,048 taps."""
    code = f"""
import jax.numpy as jnp, jaxconv
for dtype in (jnp.bfloat16, jnp.float16, jnp.float32):
    found = jaxconv.convolution(jnp.ones((1, {taps}, 1), dtype), jnp.ones(({taps}, 1, 1), dtype))
    assert found.item() == {taps}, found
"""
    prints(code)
