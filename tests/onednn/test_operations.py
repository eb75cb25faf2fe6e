"""The six operations as nodes of graphs, of 16 and of 8 bits, too.

Values of all are those of the NumPy oracle on integers, exactly; scales are powers of two.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxconv import onednn
from tests.support import graphs


@pytest.mark.parametrize("kind", graphs.KINDS)
def test_each_operation(kind):
    first, second, attributes, _ = graphs.KINDS[kind]
    made = graphs.written(kind)
    x, y = graphs.integers(*first, seed=1), graphs.integers(*second, seed=2)
    [found] = jax.jit(lambda x: onednn.run_graph(made, x))([x, y]).values()
    np.testing.assert_array_equal(found, graphs.exact(kind, x, y).astype(np.float32), strict=True)
    np.testing.assert_array_equal(found, onednn.apply(kind, [x, y], attributes))


@pytest.mark.parametrize("kind", ["Convolution", "ConvTranspose"])
@pytest.mark.parametrize("per_channel", [False, True])
def test_int8(kind, per_channel):
    """u8 and s8 to u8: exact, as scales are powers of two and sums stay below 2**24."""
    first, second, attributes, _ = graphs.KINDS[kind]
    axis = attributes["weights_format"].index("O")
    scales = [2.0 ** -(4 + o % 3) for o in range(second[axis])] if per_channel else [2**-5]
    made = graphs.written(kind, int8=scales, then=[graphs.RELU])
    x = graphs.integers(*first, seed=1, least=0, most=255, dtype=np.uint8)
    w = graphs.integers(*second, seed=2, least=-128, most=127, dtype=np.int8)
    [found] = jax.jit(lambda x: onednn.run_graph(made, x))([x, w]).values()
    scales = np.reshape(scales, [-1 if a == axis else 1 for a in range(4)])
    sums = graphs.exact(kind, (np.float64(x) - 128) * graphs.SRC_SCALE, np.float64(w) * scales)
    expected = np.rint(np.maximum(sums, 0) / graphs.DST_SCALE + 128)
    np.testing.assert_array_equal(found, np.clip(expected, 0, 255).astype(np.uint8), strict=True)
    assert 0 < np.sum(expected < 255) < expected.size  # some saturate, and some do not


def test_int8_of_mixed_precision():
    scales = [2**-4, 2**-5, 2**-6] * 2
    made = graphs.written("Convolution", int8=scales, dtype="bf16", then=[graphs.BIAS])
    x = graphs.integers(*graphs.FINE, seed=1, least=0, most=255, dtype=np.uint8)
    w = graphs.integers(*graphs.TAPS, seed=2, least=-128, most=127, dtype=np.int8)
    bias = graphs.integers(6, seed=3).astype(jnp.bfloat16)
    [found] = jax.jit(lambda x: onednn.run_graph(made, x))([x, w, bias]).values()
    # both fit into bf16, and sums stay in f32 until they are quantised
    scales = np.reshape(scales, (6, 1, 1, 1))
    sums = graphs.exact(
        "Convolution", (np.float64(x) - 128) * graphs.SRC_SCALE, np.float64(w) * scales
    )
    expected = np.rint((sums + np.float64(bias).reshape(6, 1, 1)) / graphs.DST_SCALE + 128)
    np.testing.assert_array_equal(found, np.clip(expected, 0, 255).astype(np.uint8), strict=True)
