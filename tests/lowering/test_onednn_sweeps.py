"""oneDNN's weights gradients in blocks; and only its vector code runs, in random problems."""

import os
import re
from collections import Counter
from functools import partial

import jax
import numpy as np
import pytest

import jaxconv
from jaxconv._checks.qualify import HEAP_CHECK
from jaxconv._lowering import onednn_here
from jaxconv._lowering.forms import onednn, onednn_weights
from tests.support import oracle
from tests.support.plugin import HERE, prints


@HERE
@pytest.mark.parametrize("dilations", [1, (1, 2)])
@pytest.mark.parametrize(("batch", "rows"), [(1, 20), (6, 15)])
def test_a_weights_gradient_reads_bands_and_blocks(batch, rows, dilations, patched):
    """Bands of one image; of six, three at a time, and some rows of each. A NaN of the fine tensor
    reaches the taps that read it, and one of the coarse tensor the results of its channel."""
    patched(onednn_weights, "MAX_WHOLE_BYTES", 1 << 10)
    patched(onednn_weights, "MAX_COARSE_BYTES", 1 << 12)
    patched(onednn_weights, "IMAGES", 4)
    patched(onednn_weights, "MANY_IMAGES", 4)
    rng, attributes = np.random.default_rng(4), {"strides": 2, "dilations": dilations}
    attributes |= {"pads_begin": (1, 2), "pads_end": (2, 3)}
    shape = (batch, 2 * rows, 19, 16)
    src = rng.integers(-3, 4, shape).astype(np.float32)
    dst = jax.eval_shape(partial(jaxconv.convolution, **attributes), src, np.ones((3, 4, 16, 24)))
    diff = rng.integers(-3, 4, dst.shape).astype(np.float32)

    def gradient(src, diff):
        weights = 3, 4, 16, 24
        return jaxconv.convolution_backward_weights(src, diff, weights, **attributes)

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
    patched(onednn, "MAX_TAPS", 40)
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


def sweep(seed, count, held_to, named=False):
    """How often each implementation of oneDNN's ran, over random problems, all of them exact.

    With `named`, also over those of the self-test.
    """
    held = {"ONEDNN_MAX_CPU_ISA": held_to} if held_to else {}
    code = f"from tests.support import sweep; sweep.run({seed}, {count}, {named})"
    quick = os.environ.get("XLA_FLAGS", "") + " --xla_backend_optimization_level=0"
    out, _ = prints(code, ONEDNN_VERBOSE="1", XLA_FLAGS=quick, **HEAP_CHECK, **held)
    ran = re.findall(r"^onednn_verbose.*,exec,cpu,convolution,([^,]*),", out, re.MULTILINE)
    return Counter(ran)


def demand_vector_code(counts, count, held_to):
    assert sum(counts.values()) > count  # most problems call it at least twice
    assert not [name for name in counts if "gemm" in name or "ref" in name], counts
    if held_to == "AVX2":
        assert not [name for name in counts if "avx512" in name], counts


#: On a processor without AVX-512 both would be the same.
each_held = pytest.mark.parametrize(
    "held_to", [None, "AVX2"] if "avx512f" in onednn_here.features() else [None], ids=str
)


@HERE
@each_held
def test_only_vector_code_runs(held_to):
    demand_vector_code(sweep(11, 30, held_to), 30, held_to)


@HERE
@pytest.mark.slow
@each_held
def test_only_vector_code_runs_at_length(held_to):
    demand_vector_code(sweep(100, 90, held_to, named=True), 90, held_to)


@HERE
def test_eight_threads_neither_wait_forever_nor_differ():
    """Independent branches, a loop and a gradient; a hang runs into the time limit."""
    code = "from jaxconv._checks import qualify as q; q.THREADS_SECONDS = 4; q.stress()"
    assert int(prints(code)[0]) >= 8
