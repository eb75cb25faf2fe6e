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


@pytest.mark.parametrize(
    ("kind", "per_channel", "dtype"),
    [
        ("Convolution", False, "f32"), ("Convolution", True, "f32"),
        ("ConvTranspose", False, "f32"), ("ConvTranspose", True, "f32"),
        ("Convolution", True, "bf16"),
    ],
)  # fmt: skip
def test_int8(kind, per_channel, dtype):
    """u8 and s8 to u8: exact, as scales are powers of two and sums stay below 2**24.

    Both fit into bf16, where a bias is added, and sums stay in f32 until they are quantised.
    """
    first, second, attributes, _ = graphs.KINDS[kind]
    axis = attributes["weights_format"].index("O")
    scales = [2.0 ** -(4 + o % 3) for o in range(second[axis])] if per_channel else [2**-5]
    biases = [graphs.integers(6, seed=3).astype(jnp.bfloat16)] * (dtype == "bf16")
    then = [graphs.BIAS] * len(biases) + [graphs.RELU]
    made = graphs.written(kind, int8=scales, dtype=dtype, then=then)
    x = graphs.integers(*first, seed=1, least=0, most=255, dtype=np.uint8)
    w = graphs.integers(*second, seed=2, least=-128, most=127, dtype=np.int8)
    [found] = jax.jit(lambda x: onednn.run_graph(made, x))([x, w, *biases]).values()
    scales = np.reshape(scales, [-1 if a == axis else 1 for a in range(4)])
    sums = graphs.exact(kind, (np.float64(x) - 128) * graphs.SRC_SCALE, np.float64(w) * scales)
    sums = sum((np.float64(bias).reshape(6, 1, 1) for bias in biases), sums)
    expected = np.rint(np.maximum(sums, 0) / graphs.DST_SCALE + 128)
    np.testing.assert_array_equal(found, np.clip(expected, 0, 255).astype(np.uint8), strict=True)
    assert 0 < np.sum(expected < 255) < expected.size  # some saturate, and some do not
