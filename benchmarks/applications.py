"""`python -m benchmarks.applications`: models of `keras.applications`, with and without the line.

A training step and an inference of each, by Keras on JAX, the same where `jaxconv.install()` holds,
and by Keras on PyTorch.
"""

from collections.abc import Sequence

import numpy as np

from benchmarks import flags, run
from benchmarks.verdicts import of_norm

#: One of each family that Keras has.
MODELS = (
    "MobileNetV3Small",
    "EfficientNetV2B0",
    "ConvNeXtTiny",
    "ResNet50V2",
    "Xception",
    "DenseNet121",
    "InceptionV3",
    "VGG16",
)
BATCH, SIZE = 8, 96  # images, and their pixels along an axis
ENGINES = "keras,keras+install,keras@torch"

#: Of the loss or of the norm of the logits; batch norm over a few pixels amplifies rounding.
TOLERANCE = 2e-3


def judge(job: dict, operands: list, results: dict, platforms: dict) -> dict[str, dict]:
    """Each engine's loss, or logits, against those of plain Keras on JAX."""
    if "keras/" not in results:
        return {key: {"ok": True, "unverified": True} for key in results}
    [first] = results["keras/"]
    notes = {}
    for key, [own] in results.items():
        notes[key] = of_norm(own, first, TOLERANCE, "keras")
        notes[key] |= {"loss": float(own)} if own.ndim == 0 else {}
    return notes


def main(argv: Sequence[str]) -> None:
    """Measure what the flags ask for, print a line per row and write the results."""
    what = "training steps and inferences of keras.applications"
    command = flags.measuring("benchmarks.applications", what)
    command.default({"burst": 0.5, "cap": 900.0, "engines": ENGINES, "repeats": 3})
    asked = flags.parse(command, argv)
    for label in asked.engines:
        backend = {"KERAS_BACKEND": "torch" if label.endswith("@torch") else "jax"}
        asked.env[label] = backend | asked.env[label]
    rng = np.random.default_rng(0)
    images = rng.standard_normal((BATCH, SIZE, SIZE, 3), np.float32)
    operands = [images, rng.integers(0, 10, BATCH)]
    names = [name for name in MODELS if run.wanted(asked, name)]
    jobs = [{"kind": op, "network": x, "dtype": "f32"} for x in names for op in run.CLASSES]
    asked.device = "cpu"
    draw = lambda job: operands  # noqa: E731
    run.collect(asked, jobs, draw, judge, run.describe, batch=BATCH, size=SIZE)


if __name__ == "__main__":
    flags.run(main)
