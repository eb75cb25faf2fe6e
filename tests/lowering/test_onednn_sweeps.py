"""oneDNN's calls: weights gradients in blocks, only vector code, what follows a sum; all exact."""

import os
import re
from collections import Counter
from functools import partial

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np
import pytest

import jaxconv
from jaxconv._checks.qualify import HEAP_CHECK
from jaxconv._lowering import onednn_here
from jaxconv._lowering.cpu import to_coarse
from jaxconv._lowering.forms import onednn, onednn_weights
from tests.support import oracle
from tests.support.activations import ALPHA, EXACT, FORMULAS, POINTS, SMOOTH
from tests.support.forms import integers
from tests.support.oracle import round_to
from tests.support.plugin import HERE, prints

BF16 = ml_dtypes.bfloat16


@HERE
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
@pytest.mark.parametrize("dilations", [1, (1, 2)])
@pytest.mark.parametrize(("batch", "rows"), [(1, 20), (5, 16), (6, 15), (8, 15)])
def test_a_weights_gradient_reads_bands_and_blocks(batch, rows, dilations, dtype, patched):
    """Bands of one image; of five, three and then two, of six, three at a time, of eight, four,
    which stay bfloat16; and some rows of each, of 17 two, and then the last. A NaN of the fine
    tensor reaches the taps that read it, and one of the coarse tensor the results of its channel.
    """
    patched(onednn_weights, "MAX_WHOLE_BYTES", 1 << 10)
    patched(onednn_weights, "MAX_COARSE_BYTES", 1 << 13)
    patched(onednn_weights, "IMAGES", 4)
    patched(onednn_weights, "MANY_IMAGES", 4)
    rng, attributes = np.random.default_rng(4), {"strides": 2, "dilations": dilations}
    attributes |= {"pads_begin": (1, 2), "pads_end": (2, 3)}
    shape = (batch, 2 * rows, 19, 16)
    src = rng.integers(-3, 4, shape).astype(np.float32)
    dst = jax.eval_shape(partial(jaxconv.convolution, **attributes), src, np.ones((3, 4, 16, 24)))
    diff = rng.integers(-3, 4, dst.shape).astype(np.float32)

    def gradient(src, diff):
        more = attributes | {"preferred_element_type": np.float32}
        src, diff = src.astype(dtype), diff.astype(dtype)
        return jaxconv.convolution_backward_weights(src, diff, (3, 4, 16, 24), **more)

    with jaxconv.forced("onednn-weights"):
        assert "stablehlo.while" in jax.jit(gradient).lower(src, diff).as_text()
        compiled = jax.jit(gradient)
        expected = oracle.convolution_backward_weights(src, diff, (3, 4, 16, 24), **attributes)
        np.testing.assert_array_equal(compiled(src, diff), expected)
        src[0, 0, 9, 5] = np.nan  # no window's third row reads the first
        found = np.asarray(compiled(src, diff))
        pixel, ones = np.isnan(src).astype(float), np.ones_like(diff)
        reads = oracle.convolution_backward_weights(pixel, ones, found.shape, **attributes) > 0
        np.testing.assert_array_equal(np.isnan(found), reads)
        src[0, 0, 9, 5], diff[0, 0, 0, 7] = 0, np.nan
        bad = np.isnan(np.asarray(compiled(src, diff)))
        assert bad[..., 7].any()
        assert not bad[..., np.arange(24) != 7].any()


@HERE
@pytest.mark.parametrize("channels", [(1, 1), (1, 2), (2, 1), (2, 2)], ids=str)
def test_an_image_slides_in_blocks_of_rows(channels, patched):
    """A depthwise weights gradient, also for each pair of channels of a small group."""
    patched(onednn, "MAX_TESTED_TAPS", 40)
    patched(to_coarse, "MIN_ONEDNN_WORK", 0)
    (i, o), groups, rng = channels, 64, np.random.default_rng(5)
    src = rng.integers(-3, 4, (2, groups * i, 21, 16)).astype(np.float32)
    diff = rng.integers(-3, 4, (2, groups * o, 8, 10)).astype(np.float32)
    attributes = {"strides": (3, 2), "dilations": (1, 2), "pads_begin": (2, 3), "pads_end": (2, 4)}
    attributes |= {"groups": groups, "data_format": "NCX", "weights_format": "OIX"}

    def gradient(src, diff):
        return jaxconv.convolution_backward_weights(src, diff, (groups * o, i, 3, 3), **attributes)

    with jaxconv.forced("slide"):
        assert onednn.TARGET in jax.jit(gradient).lower(src, diff).as_text()
        found = gradient(src, diff)
    expected = oracle.convolution_backward_weights(src, diff, (groups * o, i, 3, 3), **attributes)
    np.testing.assert_array_equal(found, expected)


# What runs. On one core even oneDNN's fallback comes to an end, and can be counted.
def sweep(seed, count, held_to, named):
    """How often each implementation of oneDNN's ran, over random problems, all of them exact.

    With `named`, also over those of the self-test.
    """
    held = {"ONEDNN_MAX_CPU_ISA": held_to} if held_to else {}
    code = f"from tests.support import sweep; sweep.run({seed}, {count}, {named})"
    quick = os.environ.get("XLA_FLAGS", "") + " --xla_backend_optimization_level=0"
    out, _ = prints(code, ONEDNN_VERBOSE="1", XLA_FLAGS=quick, **HEAP_CHECK, **held)
    ran = re.findall(r"^onednn_verbose.*,exec,cpu,convolution,([^,]*),", out, re.MULTILINE)
    return Counter(ran)


#: On a processor without AVX-512 both would be the same.
each_held = pytest.mark.parametrize(
    "held_to", [None, "AVX2"] if "avx512f" in onednn_here.features() else [None], ids=str
)


@HERE
@each_held
@pytest.mark.parametrize(
    ("seed", "count"), [(11, 30), pytest.param(100, 90, marks=pytest.mark.slow)]
)
def test_only_vector_code_runs(seed, count, held_to):
    """At length, also in the self-test's problems."""
    counts = sweep(seed, count, held_to, named=count > 30)
    assert sum(counts.values()) > count  # most problems call it at least twice
    assert not [name for name in counts if re.search("(?<!br)gemm|ref", name)], counts
    if held_to == "AVX2":
        assert not [name for name in counts if "avx512" in name], counts


@HERE
def test_a_single_window_is_exact():
    """As many taps as strides: oneDNN would fold the steps into the channels, and pad these."""
    sizes = [(k, c) for k in (2, 4, 6, 8, 16) for c in range(2, 34, 2)]
    given = [(integers((3, k, c), 1, BF16), integers((k, c, 16), 2, BF16)) for k, c in sizes]
    with jaxconv.forced("onednn"):
        found = jax.jit(lambda given: [jaxconv.convolution(*x) for x in given])(given)
    for size, operands, one in zip(sizes, given, found, strict=True):
        exact = np.einsum("nkc,kco->no", *(x.astype(float) for x in operands))
        np.testing.assert_array_equal(one[:, 0], round_to(exact, BF16), str(size))


@HERE
def test_eight_threads_neither_wait_forever_nor_differ():
    """Independent branches, a loop and a gradient; a hang runs into the time limit."""
    code = "from jaxconv._checks import qualify as q; q.THREADS_SECONDS = 4; q.stress()"
    assert int(prints(code)[0]) >= 8


DTYPES = (np.float32, BF16, np.float16)
#: name -> op, src and weights shapes, attributes; and what the call adds: a residual,
#: no more than a bias, or nothing.
CALLS = {
    "dense": ("convolution", (2, 9, 8, 32), (3, 3, 32, 32), {"pads_begin": 1}, "residual"),
    "strided, channels first": (
        "convolution", (2, 16, 9, 8), (32, 16, 3, 3),
        {"strides": 2, "data_format": "NCX", "weights_format": "OIX"}, "bias"),
    "grouped": ("convolution", (2, 9, 8, 32), (3, 3, 16, 32), {"groups": 2}, "residual"),
    "depthwise": ("convolution", (2, 9, 8, 64), (3, 3, 1, 64), {"groups": 64}, "residual"),
    "depthwise signal": ("convolution", (2, 99, 64), (5, 1, 64), {"groups": 64}, "residual"),
    "multiplier": ("convolution", (2, 9, 8, 64), (3, 3, 1, 128), {"groups": 64}, "residual"),
    "one tap": ("convolution", (2, 32, 32, 16), (1, 1, 16, 64), {}, "residual"),
    "one row": ("convolution", (2, 1, 64, 16), (1, 3, 16, 32), {}, "residual"),
    "padding alone": ("convolution", (2, 6, 6, 16), (3, 3, 16, 32), {"pads_begin": 4}, None),
    "transposed": ("conv_transpose", (2, 9, 8, 16), (3, 3, 32, 16), {}, "residual"),
    "transposed, strided": ("conv_transpose", (2, 9, 8, 16), (3, 3, 32, 16), {"strides": 2}, None),
}  # fmt: skip


def calls(text):
    """The calls of oneDNN in a program, and those that compute more than the sum."""
    lines = [line for line in text.splitlines() if "onednn$convolution" in line]
    return len(lines), sum("fusions" in line for line in lines)


@pytest.mark.parametrize("layer", CALLS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_in_the_call(layer, dtype, patched):
    """Exact on integers, and in the call where that is faster: all of bfloat16, a bias alone."""
    patched(to_coarse, "MIN_ONEDNN_WORK", 2e4)
    name, src, weights, attributes, whole = CALLS[layer]
    src, weights = integers(src, 1, np.float32), integers(weights, 2, np.float32)
    operation = getattr(jaxconv, name)
    exact = getattr(oracle, name)(src, weights, **attributes)
    channel = 1 if attributes.get("data_format") == "NCX" else -1
    bias = integers((exact.shape[channel],), 3, np.float32, 9)
    residual = integers(exact.shape, 4, np.float32, 99)
    exact_bias = exact + (bias.reshape(-1, 1, 1) if channel == 1 else bias)
    native = onednn_here.why_unavailable() is None and onednn_here.multiplies(jnp.dtype(dtype))
    given = [jnp.asarray(x, dtype) for x in (src, weights, bias, residual)]

    def run(activation, add):
        def one(*x):
            more = {"activation": activation, "alpha": ALPHA.get(activation), **attributes}
            return operation(*x[:3], residual=x[3] if add else None, **more)

        return one

    tried = EXACT if layer == "dense" else (None, "leaky_relu")
    ways = [(activation, add) for add in (False, True) for activation in tried]
    found = jax.jit(lambda *x: [run(*way)(*x) for way in ways])(*given)
    for (activation, add), one in zip(ways, found, strict=True):
        sums = exact_bias + residual if add else exact_bias
        np.testing.assert_array_equal(one, round_to(FORMULAS[activation](sums), dtype))
        gains = dtype == BF16 or (activation is None and not add)
        gains = gains and whole in ("residual", "residual" if add else "bias")
        text = jax.jit(run(activation, add)).lower(*given).as_text() if native else None
        assert text is None or (calls(text)[1] > 0) == gains, (activation, add)
    if dtype == BF16:
        wide = operation(*given[:3], residual=residual + np.float32(2**-9), **attributes,
                         preferred_element_type=np.float32)  # fmt: skip
        np.testing.assert_array_equal(wide, (exact_bias + residual + 2**-9).astype(np.float32))


@pytest.mark.parametrize("activation", ["relu", "relu6", "leaky_relu"])
def test_a_training_that_diverges_shows(activation):
    """A NaN passes oneDNN's call."""
    src, weights = jnp.ones((1, 8, 8, 16), BF16), jnp.ones((3, 3, 16, 32), BF16)
    more = {"activation": activation, "alpha": ALPHA.get(activation)}
    out = jaxconv.convolution(src.at[0, 3, 3, 3].set(np.nan), weights, jnp.ones(32, BF16), **more)
    assert np.isnan(np.asarray(out, np.float32)).sum() == 9 * 32


@pytest.mark.parametrize("activation", SMOOTH)
def test_smooth_functions_in_the_call(activation):
    """Within a unit of bfloat16, and NaN stays NaN."""
    x = np.concatenate([POINTS, [0.0] * 11]).reshape(-1, 16, 1) * np.ones(32)
    x = jnp.asarray(x, BF16)[None]
    one = jnp.zeros((3, 3, 32, 32), BF16).at[1, 1].set(np.eye(32, dtype=BF16))
    zeros, more = jnp.zeros(32, BF16), {"activation": activation, "alpha": ALPHA.get(activation)}

    @jax.jit
    def apply(x):
        return jaxconv.convolution(x, one, zeros, pads_begin=1, pads_end=1, **more)

    exact = FORMULAS[activation](np.asarray(x, np.float64))
    error = abs(np.asarray(apply(x), np.float64) - exact)
    assert (error <= 2**-8 * abs(exact) + 2**-20 * np.maximum(abs(np.float64(x)), 1)).all()
    spoilt = apply(x.at[0, 3, 5, 7].set(np.nan))
    assert np.isnan(spoilt[0, 3, 5]).all()
    assert np.isnan(spoilt).sum() == 9 * 32
    if onednn_here.why_unavailable() is None and onednn_here.multiplies(jnp.dtype(BF16)):
        named = onednn.FUSED.get(activation, "BIAS")
        assert named in apply.lower(x).as_text()
