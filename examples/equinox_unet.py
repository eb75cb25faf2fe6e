"""A U-Net of Equinox that takes noise off digits, up by a layer built on jaxconv.conv_transpose.

The layer has groups and output padding, in PyTorch's layouts. Everything else is Equinox's own,
and comes through `jaxconv.install()`.

    pip install '.[examples]' && python examples/equinox_unet.py
"""

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import optax
from common import before_and_after, digits, run

import jaxconv


class Up(eqx.Module):
    """Twice the extents, from (channels, H, W): 3x3 taps, in groups."""

    weights: jax.Array  # IOX: (inputs, outputs / groups, 3, 3)
    groups: int = eqx.field(static=True)

    def __init__(self, inputs, outputs, groups, key):
        scale = np.sqrt(groups / (2 * inputs))
        self.weights = scale * jax.random.normal(key, (inputs, outputs // groups, 3, 3))
        self.groups = groups

    def __call__(self, x):
        attributes = {"strides": 2, "pads_begin": 1, "pads_end": 1, "output_padding": 1}
        formats = {"data_format": "NCX", "weights_format": "IOX"}
        return jaxconv.conv_transpose(
            x[None], self.weights, groups=self.groups, **attributes, **formats
        )[0]


class UNet(eqx.Module):
    enter: eqx.nn.Conv2d
    down: eqx.nn.Conv2d
    middle: eqx.nn.Conv2d
    up: Up
    leave: eqx.nn.Conv2d

    def __init__(self, width, key):
        keys = jax.random.split(key, 5)
        self.enter = eqx.nn.Conv2d(1, width, 3, padding=1, key=keys[0])
        self.down = eqx.nn.Conv2d(width, 2 * width, 3, 2, padding=1, key=keys[1])
        self.middle = eqx.nn.Conv2d(2 * width, 2 * width, 3, padding=1, groups=8, key=keys[2])
        self.up = Up(2 * width, width, 4, keys[3])
        self.leave = eqx.nn.Conv2d(2 * width, 1, 3, padding=1, key=keys[4])

    def __call__(self, x):
        fine = jax.nn.relu(self.enter(x))
        coarse = jax.nn.relu(self.middle(jax.nn.relu(self.down(fine))))
        return self.leave(jnp.concatenate([jax.nn.relu(self.up(coarse)), fine]))


def main(steps=20, batch=16, width=32, enlarged=4):
    images = digits(8 * batch, enlarged)[0].transpose(0, 3, 1, 2)
    noisy = images + 0.3 * np.float32(np.random.default_rng(0).standard_normal(images.shape))
    batches = [(noisy[n::8], images[n::8]) for n in range(8)]
    optimizer = optax.adam(3e-3)

    @eqx.filter_jit
    def step(carried, x, y):
        model, moments = carried
        value, slopes = eqx.filter_value_and_grad(
            lambda model: ((jax.vmap(model)(x) - y) ** 2).mean()
        )(model)
        updates, moments = optimizer.update(slopes, moments)
        return (eqx.apply_updates(model, updates), moments), value

    def train():
        model = UNet(width, jax.random.key(0))
        return run(step, (model, optimizer.init(eqx.filter(model, eqx.is_array))), batches, steps)

    return before_and_after(train)


if __name__ == "__main__":
    main()
