"""Every test runs with JAX at its strictest, on eight simulated devices.

No implicit promotion of types or ranks. The devices must be asked for before JAX starts;
a test that names no sharding runs on the first one, as it would with a single device.
"""

import os

import pytest

DEVICES = "--xla_force_host_platform_device_count=8"
if "xla_force_host_platform_device_count" not in os.environ.get("XLA_FLAGS", ""):
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {DEVICES}".strip()


@pytest.fixture(autouse=True, scope="session")
def strict_jax():
    import jax

    jax.config.update("jax_numpy_dtype_promotion", "strict")
    jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture
def however_little(monkeypatch):
    """For the little data of tests, too, keep spellings apart and on all cores."""
    from jaxconv._lowering import apart, cores

    monkeypatch.setattr(apart, "LITTLE", 0)
    monkeypatch.setattr(cores, "LITTLE", 0)
