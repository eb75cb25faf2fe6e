"""A convolutional autoencoder of Haiku, on scikit-learn's digits: its decoder is transposed.

pip install '.[examples]' && python examples/haiku_autoencoder.py
"""

import haiku as hk
import jax
import optax
from common import before_and_after, digits, run


def reconstructed(x, widths):
    for width in widths:
        x = jax.nn.relu(hk.Conv2D(width, 3, stride=2)(x))
        x = jax.nn.relu(hk.DepthwiseConv2D(1, 5)(x))
    for width in (*widths[-2::-1], 1):
        x = hk.Conv2DTranspose(width, 4, stride=2)(jax.nn.relu(x))
    return x


def main(steps=30, batch=32, widths=(32, 64), enlarged=4):
    images, _ = digits(8 * batch, enlarged)
    batches = [(images[n::8],) for n in range(8)]
    model = hk.without_apply_rng(hk.transform(lambda x: reconstructed(x, widths)))
    optimizer = optax.adam(3e-3)

    @jax.jit
    def step(carried, x):
        params, moments = carried

        def loss(params):
            return ((model.apply(params, x) - x) ** 2).mean()

        value, slopes = jax.value_and_grad(loss)(params)
        updates, moments = optimizer.update(slopes, moments)
        return (optax.apply_updates(params, updates), moments), value

    def train():
        params = model.init(jax.random.key(0), images[:1])
        return run(step, (params, optimizer.init(params)), batches, steps)

    return before_and_after(train)


if __name__ == "__main__":
    main()
