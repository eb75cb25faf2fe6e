"""Engine: models of `keras.applications`, unmodified, on the backend that KERAS_BACKEND names."""

import importlib
import time
from functools import partial

import keras
import numpy as np

from benchmarks.engines import Timed

RATE = 1e-4
CLASSES = 10


def versions() -> dict[str, str]:
    """What ran."""
    backend = keras.backend.backend()
    package = importlib.import_module(backend)
    return {"keras": keras.__version__, backend: package.__version__, "platform": "cpu"}


def prepare(job: dict, operands: list[np.ndarray]) -> dict[str, Timed]:
    """A training step, or an inference, of one batch."""
    images, labels = operands
    model = build(job["network"], images.shape[1:])
    if job["kind"] == "step":
        sgd = keras.optimizers.SGD(RATE)
        model.compile(sgd, keras.losses.SparseCategoricalCrossentropy(from_logits=True))
        call = partial(model.train_on_batch, images, labels)
    else:
        call = partial(model.predict_on_batch, images)
    start = time.perf_counter()
    np.asarray(call())  # Keras compiles in its first call
    facts = {"compile_s": time.perf_counter() - start}
    return {"": Timed(call, np.asarray, lambda result: [np.asarray(result)], facts)}


def build(name: str, shape: tuple[int, ...]) -> keras.Model:
    """A model whose weights are the same on every backend, and that drops nothing at random."""
    make = getattr(keras.applications, name)
    model = make(weights=None, classes=CLASSES, input_shape=shape, classifier_activation=None)
    for layer in model._flatten_layers():
        if isinstance(layer, keras.layers.Dropout):
            layer.rate = 0.0
    rng = np.random.default_rng(0)
    model.set_weights([_drawn(x, rng) for x in model.get_weights()])
    return model


def _drawn(x: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Kernels at random; what has one axis, such as a bias, as it is."""
    if x.ndim < 2:
        return x
    scale = np.sqrt(2 / np.prod(x.shape[:-1]))
    return (scale * rng.standard_normal(x.shape)).astype(x.dtype)
