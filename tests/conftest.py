"""Every test runs with JAX at its strictest: no implicit promotion of types or ranks."""

import jax
import pytest


@pytest.fixture(autouse=True, scope="session")
def strict_jax():
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    jax.config.update("jax_numpy_rank_promotion", "raise")
