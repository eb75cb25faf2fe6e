"""A MobileNet-like net of Keras on the JAX backend, on scikit-learn's digits, by one line more.

pip install '.[examples]' && python examples/keras_mobile.py
"""

import os

os.environ["KERAS_BACKEND"] = "jax"  # before keras is imported
import keras
from common import before_and_after, digits, run
from keras import layers


def block(convolution):
    return [convolution, layers.BatchNormalization(), layers.ReLU()]


def net(widths, groups):
    """For each width a depthwise, a pointwise and a grouped convolution."""
    blocks = block(layers.Conv2D(widths[0], 3, strides=2, padding="same"))
    for width in widths:
        blocks += block(layers.DepthwiseConv2D(3, padding="same"))
        blocks += block(layers.Conv2D(width, 1))
        blocks += block(layers.Conv2D(width, 3, groups=groups, padding="same"))
    return keras.Sequential([*blocks, layers.GlobalAveragePooling2D(), layers.Dense(10)])


def main(steps=12, batch=32, widths=(32, 64), groups=16, enlarged=4):
    images, labels = digits(8 * batch, enlarged)
    batches = [(images[n::8], labels[n::8]) for n in range(8)]

    def step(model, x, y):
        loss = model.train_on_batch(x, y)
        model.reset_metrics()  # else the loss is the mean of all steps
        return model, loss

    def train():
        keras.utils.set_random_seed(0)
        model = net(widths, groups)
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile(keras.optimizers.Adam(3e-3), loss)
        return run(step, model, batches, steps)

    return before_and_after(train)


if __name__ == "__main__":
    main()
