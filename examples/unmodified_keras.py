"""Training steps of Keras's MobileNetV3, in a program that knows nothing of this library.

pip install '.[examples]'
python examples/unmodified_keras.py
JAXCONV_INSTALL=1 python examples/unmodified_keras.py
"""

import os
import time

os.environ["KERAS_BACKEND"] = "jax"  # before keras is imported
import keras
import numpy as np


def main(steps=10, batch=8, size=96):
    keras.utils.set_random_seed(0)
    images = np.random.default_rng(0).random((batch, size, size, 3), np.float32)
    labels = np.arange(batch)
    model = keras.applications.MobileNetV3Small(
        input_shape=images.shape[1:], weights=None, classes=batch, include_preprocessing=False
    )
    model.compile("sgd", "sparse_categorical_crossentropy")
    losses, seconds = [], []
    for _ in range(steps):
        start = time.perf_counter()
        losses.append(float(model.train_on_batch(images, labels)))
        seconds.append(time.perf_counter() - start)
    ms = 1e3 * np.median(seconds[1:])  # the first one compiles
    print(f"loss {losses[0]:.4f} to {losses[-1]:.4f}, {ms:.1f} ms a step")


if __name__ == "__main__":
    main()
