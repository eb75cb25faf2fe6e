"""A small network, trained: the same loss curve as on plain lax."""

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import jaxconv

STEPS = 100
RATE = 0.1


def initial(key):
    """Weights of an encoder (dense, then grouped and strided) and its decoder (transposed)."""
    shapes = {"first": (3, 3, 2, 8), "second": (3, 2, 2, 12), "up": (4, 3, 2, 12)}
    keys = jax.random.split(key, len(shapes))
    weights = {
        name: jax.random.normal(key, shape) / np.sqrt(np.prod(shape[:3]))
        for key, (name, shape) in zip(keys, shapes.items(), strict=True)
    }
    return weights | {"first_bias": jnp.zeros(8), "up_bias": jnp.zeros(2)}


def ours(p, x):
    x = jaxconv.convolution(x, p["first"], p["first_bias"], auto_pad="same_upper")
    x = jaxconv.convolution(
        jnp.tanh(x), p["second"], groups=4, strides=(2, 1), pads_begin=(1, 0), pads_end=(1, 1)
    )
    return jaxconv.conv_transpose(
        jnp.tanh(x), p["up"], p["up_bias"], strides=(2, 1), pads_begin=(1, 1), pads_end=(1, 1)
    )


def plain(p, x):
    """The same in lax; the transposed one as a convolution of the spread-out input."""
    numbers = ("NHWC", "HWIO", "NHWC")
    x = lax.conv_general_dilated(x, p["first"], (1, 1), "SAME", dimension_numbers=numbers)
    x = jnp.tanh(x + p["first_bias"].reshape(1, 1, 1, -1))
    x = lax.conv_general_dilated(
        x, p["second"], (2, 1), ((1, 1), (0, 1)), dimension_numbers=numbers, feature_group_count=4
    )
    flipped = jnp.flip(p["up"], (0, 1)).swapaxes(2, 3)
    x = lax.conv_general_dilated(
        jnp.tanh(x),
        flipped,
        (1, 1),
        ((2, 2), (1, 1)),
        lhs_dilation=(2, 1),
        dimension_numbers=numbers,
    )
    return x + p["up_bias"].reshape(1, 1, 1, -1)


def losses(network):
    """The loss at each step of momentum descent, to reproduce a fixed little data set."""
    key, *keys = jax.random.split(jax.random.key(3), 3)
    x = jax.random.normal(keys[0], (2, 8, 5, 2))
    target = jnp.tanh(x[:, ::-1] + x.sum(2, keepdims=True))

    def loss(p):
        return ((network(p, x) - target) ** 2).mean()

    def step(state, _):
        p, velocity = state
        value, gradient = jax.value_and_grad(loss)(p)
        velocity = jax.tree.map(lambda v, g: 0.9 * v - RATE * g, velocity, gradient)
        return (jax.tree.map(jnp.add, p, velocity), velocity), value

    p = initial(key)
    start = p, jax.tree.map(jnp.zeros_like, p)
    return np.asarray(jax.jit(lambda s: lax.scan(step, s, None, length=STEPS)[1])(start))


def test_loss_curve():
    found, expected = losses(ours), losses(plain)
    assert found[-1] < 0.02 * found[0]
    np.testing.assert_allclose(found, expected, rtol=1e-4)
