"""Every test runs with JAX at its strictest, on eight simulated devices.

No implicit promotion of types or ranks. The devices must be asked for before JAX starts;
a test that names no sharding runs on the first one, as it would with a single device.
"""

import os
import re
from contextlib import ExitStack
from functools import cache
from importlib.metadata import version

import pytest

DEVICES = "--xla_force_host_platform_device_count=8"
EMITTERS = "--xla_cpu_use_fusion_emitters=false"
DEFAULT = "not slow and not timed"


def pytest_configure(config):
    """What XLA must be told before JAX starts, unless XLA_FLAGS say otherwise.

    The default tests use the older code generator of jaxlib until 0.11.0, which takes a third
    of the time to compile; later ones have the newer alone, and no such flag.
    """
    older = tuple(map(int, re.findall(r"\d+", version("jaxlib"))[:3])) <= (0, 11, 0)
    os.environ.pop("JAXCONV_INSTALL", None)  # most tests compare with lax
    os.environ["JAXCONV_STRICT"] = "1"  # lax hides no error of the library
    for flag in [DEVICES, *[EMITTERS] * (older and config.option.markexpr == DEFAULT)]:
        given = os.environ.get("XLA_FLAGS", "")
        if flag.split("=")[0] not in given:
            os.environ["XLA_FLAGS"] = f"{given} {flag}".strip()


@pytest.fixture(autouse=True, scope="session")
def strict_jax():
    import jax

    jax.config.update("jax_numpy_dtype_promotion", "strict")
    jax.config.update("jax_numpy_rank_promotion", "raise")


@pytest.fixture(autouse=True)
def optimised_where_timed(request, monkeypatch):
    """Only tests that compare times ask LLVM to optimise, and the others compile faster.

    XLA's own passes are the same: so are the compiled programs, as `as_text` shows them.
    """
    import jax

    timed = request.node.get_closest_marker("timed") is not None
    if timed:
        jax.clear_caches()  # of programs that other tests compiled
    monkeypatch.setenv("JAX_DISABLE_MOST_OPTIMIZATIONS", str(int(not timed)))  # subprocesses
    jax.config.update("jax_disable_most_optimizations", not timed)


@cache
def remembered_by():
    """A context that is part of the key of all that JAX traces and compiles."""
    import jax

    return jax.make_user_context(())


@pytest.fixture
def patched(monkeypatch):
    """`monkeypatch.setattr` for what decides how a contraction is computed.

    JAX would go on with programs from before, and other tests with those of this one; so would
    the planner with its plans.
    """
    from jaxconv._lowering.plan import _plan

    done = ()
    with ExitStack() as stack:
        stack.callback(_plan.cache_clear)

        def patch(of, name, value):
            nonlocal done
            monkeypatch.setattr(of, name, value)
            _plan.cache_clear()
            done = (*done, (of, name, value))
            stack.enter_context(remembered_by()(done))

        yield patch


@pytest.fixture
def however_little(patched):
    """For the little data of tests, too, isolate forms."""
    from jaxconv._lowering.forms import blocks

    patched(blocks, "MIN_ELEMENTS", 0)
