"""A ResNeXt-like net of Flax linen, in 16 groups, on scikit-learn's digits, by one line more.

pip install '.[examples]' && python examples/flax_linen.py
"""

import flax.linen as nn
import jax
import optax
from common import before_and_after, digits, run


class Net(nn.Module):
    """Two blocks, each of a grouped 3x3 convolution between two pointwise ones."""

    width: int
    groups: int

    @nn.compact
    def __call__(self, x):
        x = nn.relu(nn.Conv(self.width, (3, 3), 2)(x))
        for _ in range(2):
            y = nn.relu(nn.Conv(self.width, (1, 1))(x))
            y = nn.Conv(self.width, (3, 3), feature_group_count=self.groups)(y)
            y = nn.Conv(self.width, (1, 1))(nn.relu(nn.GroupNorm(8)(y)))
            x = nn.relu(x + y)
        return nn.Dense(10)(x.mean((1, 2)))


def main(steps=12, batch=32, width=64, groups=16, enlarged=4):
    images, labels = digits(8 * batch, enlarged)
    batches = [(images[n::8], labels[n::8]) for n in range(8)]
    model, optimizer = Net(width, groups), optax.adam(3e-3)

    @jax.jit
    def step(carried, x, y):
        params, moments = carried

        def loss(params):
            logits = model.apply(params, x)
            return optax.softmax_cross_entropy_with_integer_labels(logits, y).mean()

        value, slopes = jax.value_and_grad(loss)(params)
        updates, moments = optimizer.update(slopes, moments)
        return (optax.apply_updates(params, updates), moments), value

    def train():
        params = model.init(jax.random.key(0), images[:1])
        return run(step, (params, optimizer.init(params)), batches, steps)

    return before_and_after(train)


if __name__ == "__main__":
    main()
