"""What the examples share: scikit-learn's digits, and the same training before and after."""

import time

import jax
import numpy as np
from sklearn.datasets import load_digits

import jaxconv


def digits(count=256, enlarged=4):
    """Images (count, 8*enlarged, 8*enlarged, 1) in 0..1, and their labels."""
    images, labels = load_digits(return_X_y=True)
    images = np.float32(images[:count]).reshape(-1, 8, 8, 1) / 16
    return images.repeat(enlarged, 1).repeat(enlarged, 2), np.int32(labels[:count])


def run(step, state, batches, steps):
    """Train: `step(state, *batch)` gives the next state and the loss. The losses, and ms a step."""
    losses, seconds = [], []
    for n in range(steps):
        start = time.perf_counter()
        state, loss = step(state, *batches[n % len(batches)])
        losses.append(float(jax.block_until_ready(loss)))
        seconds.append(time.perf_counter() - start)
    return losses, 1e3 * float(np.median(seconds[1:]))  # the first one compiles


def before_and_after(train):
    """Print how `train()` goes by lax alone, and once jaxconv is installed."""
    found = []
    jaxconv.uninstall()  # what JAXCONV_INSTALL may have installed
    try:
        for name in ("lax", "jaxconv"):
            if name == "jaxconv":
                jaxconv.install()  # the one line
            losses, ms = train()
            print(f"{name}: loss {losses[0]:.3f} to {losses[-1]:.3f}, {ms:.1f} ms a step")
            found.append(losses)
    finally:
        jaxconv.uninstall()
    return found
