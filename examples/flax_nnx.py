"""A net of Flax nnx like MobileNet, on scikit-learn's digits: `jaxconv.install()` is all.

pip install '.[examples]' && python examples/flax_nnx.py
"""

from itertools import pairwise

import jax
import optax
from common import before_and_after, digits, run
from flax import nnx


class Block(nnx.Module):
    """A depthwise convolution and a pointwise one."""

    def __init__(self, inputs, outputs, stride, rngs):
        self.depthwise = nnx.Conv(
            inputs, inputs, (3, 3), stride, feature_group_count=inputs, rngs=rngs
        )
        self.pointwise = nnx.Conv(inputs, outputs, (1, 1), rngs=rngs)
        self.norm = nnx.GroupNorm(outputs, 8, rngs=rngs)

    def __call__(self, x):
        return nnx.relu(self.norm(self.pointwise(nnx.relu(self.depthwise(x)))))


class Net(nnx.Module):
    def __init__(self, widths, rngs):
        self.stem = nnx.Conv(1, widths[0], (3, 3), rngs=rngs)
        self.blocks = nnx.List([Block(a, b, 2, rngs) for a, b in pairwise(widths)])
        self.head = nnx.Linear(widths[-1], 10, rngs=rngs)

    def __call__(self, x):
        x = nnx.relu(self.stem(x))
        for block in self.blocks:
            x = block(x)
        return self.head(x.mean((1, 2)))


def main(steps=30, batch=32, widths=(32, 64, 128), enlarged=4):
    images, labels = digits(8 * batch, enlarged)
    batches = [(images[n::8], labels[n::8]) for n in range(8)]

    def train():
        graph, state = nnx.split(Net(widths, nnx.Rngs(0)))
        optimizer = optax.adam(3e-3)

        @jax.jit
        def step(carried, x, y):
            state, moments = carried

            def loss(state):
                logits = nnx.merge(graph, state)(x)
                return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

            value, slopes = jax.value_and_grad(loss)(state)
            updates, moments = optimizer.update(slopes, moments)
            return (optax.apply_updates(state, updates), moments), value

        return run(step, (state, optimizer.init(state)), batches, steps)

    return before_and_after(train)


if __name__ == "__main__":
    main()
