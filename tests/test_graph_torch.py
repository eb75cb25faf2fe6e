"""Graphs beside PyTorch: patterns of a convolution, element-wise kinds, and quantisation."""

import jax
import numpy as np
import pytest

from jaxconv import onednn
from tests.support.peers import integers, peer

torch = peer("torch")
F = torch.nn.functional

SRC, WEIGHTS, DST = (2, 6, 9, 8), (9, 2, 3, 2), (2, 9, 5, 9)
WINDOW = {
    "strides": [2, 1],
    "pads_begin": [1, 1],
    "pads_end": [1, 1],
    "dilations": [1, 1],
    "groups": 3,
    "data_format": "NCX",
    "weights_format": "OIX",
}


def convolved(src, weights, bias=None):
    return F.conv2d(*map(torch.from_numpy, (src, weights)), bias, (2, 1), (1, 1), groups=3)


def test_a_convolution_with_a_bias_a_sum_and_relu():
    rng = np.random.default_rng(0)
    src, weights, bias, other = (integers(rng, s) for s in (SRC, WEIGHTS, (9,), DST))
    made = onednn.write_graph("Convolution", SRC, WEIGHTS, WINDOW, then=["BiasAdd", "Add", "ReLU"])
    [found] = jax.jit(lambda x: onednn.run_graph(made, x))([src, weights, bias, other]).values()
    expected = convolved(src, weights, torch.from_numpy(bias)) + torch.from_numpy(other)
    np.testing.assert_array_equal(found, torch.relu(expected).numpy(), strict=True)


def test_the_gradients_of_a_graph():
    rng = np.random.default_rng(1)
    arrays = [integers(rng, s, most=5) for s in (SRC, WEIGHTS, (9,))]
    then = ["BiasAdd", ("LeakyReLU", {"alpha": 0.5}), "Square"]
    made = onednn.write_graph("Convolution", SRC, WEIGHTS, WINDOW, then=then)

    @jax.jit
    @jax.grad
    def slopes(arrays):
        [found] = onednn.run_graph(made, arrays).values()
        return found.sum()

    tensors = [torch.tensor(x, requires_grad=True) for x in arrays]
    src, weights, bias = tensors
    dst = F.conv2d(src, weights, bias, (2, 1), (1, 1), groups=3)
    F.leaky_relu(dst, 0.5).square().sum().backward()
    for found, expected in zip(slopes(arrays), tensors, strict=True):
        np.testing.assert_array_equal(found, expected.grad.numpy(), strict=True)


@pytest.mark.parametrize("int8", ["per_tensor", "per_channel"])
def test_an_int8_convolution(int8):
    rng = np.random.default_rng(4)
    src = rng.integers(0, 256, SRC).astype(np.uint8)
    weights = rng.integers(-128, 128, WEIGHTS).astype(np.int8)
    made = onednn.write_graph("Convolution", SRC, WEIGHTS, WINDOW, int8=int8, then=["ReLU"])
    [found] = jax.jit(lambda x: onednn.run_graph(made, x))([src, weights]).values()

    first, second, *_, last = (
        {n: a["value"] for n, a in node["attrs"].items()} for node in made["graph"]
    )
    scale, zp = last["scales"][0], last["zps"][0]
    number = (torch.from_numpy(src).float() - first["zps"][0]) * first["scales"][0]
    scales = torch.tensor(second["scales"]).reshape(-1, 1, 1, 1)
    dst = F.conv2d(number, torch.from_numpy(weights) * scales, None, (2, 1), (1, 1), groups=3)
    near = torch.fake_quantize_per_tensor_affine(torch.relu(dst), scale, zp, 0, 255)
    np.testing.assert_array_equal(found, (near / scale + zp).numpy().astype(np.uint8), strict=True)
