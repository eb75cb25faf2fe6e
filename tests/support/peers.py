"""What the comparisons with other frameworks share."""

import importlib
import os

import numpy as np
import pytest


def peer(name):
    """The module of another framework; a run that must not skip it (CI) fails without it."""
    if os.environ.get("JAXCONV_REQUIRE_PEERS") == "1":
        return importlib.import_module(name)
    return pytest.importorskip(name)


def integers(rng, shape, dtype=np.float32, most=30):
    """Integers of either sign; at most 30, a test's sums are exact in float32, in any order."""
    return rng.integers(-most, most, shape, endpoint=True).astype(dtype)


def bytes_of(rng, shape, dtype=None):
    """Any 8-bit integers, of either type if none is given."""
    ends = np.iinfo(rng.choice(["int8", "uint8"]) if dtype is None else dtype)
    return np.asarray(rng.integers(ends.min, ends.max, shape, ends.dtype, endpoint=True))
