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
