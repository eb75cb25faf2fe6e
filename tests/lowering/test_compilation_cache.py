"""JAX's persistent compilation cache: what it holds, and that nothing in it calls oneDNN."""

import json

import jax
import jax.numpy as jnp
import pytest

import jaxconv
from jaxconv._lowering import onednn_here
from tests.support.plugin import HERE, prints

SHAPES = (4, 13, 12, 8), (3, 3, 8, 16)
CALL = "__onednn$convolution"

PROGRAM = """
import json, logging, sys, warnings
import jax, jax.numpy as jnp, numpy as np
import jaxconv
from jaxconv._lowering.forms import blocks

blocks.MIN_ELEMENTS = 0  # in functions of their own, as for real sizes
warnings.simplefilter("error")
events = []
jax.monitoring.register_event_listener(lambda event, **_: events.append(event.split("/")[-1]))
src = np.arange(4 * 13 * 12 * 8, dtype=np.float32).reshape(4, 13, 12, 8) % 5
weights = np.arange(3 * 3 * 8 * 16, dtype=np.float32).reshape(3, 3, 8, 16) % 3

@jax.jit
def step(src, weights):
    dst, gradients = jax.vjp(jaxconv.convolution, src, weights)
    return dst, *gradients(dst)

found = step(src, weights)
print(json.dumps({
    "hits": events.count("cache_hits"),
    "misses": events.count("cache_misses"),
    "sums": [float(np.asarray(x, np.float64).sum()) for x in found],  # beyond 2^24
    "reason": jaxconv.explain("convolution", src, weights).no_onednn,
}))
"""


def run(**environment):
    out, said = prints(PROGRAM, **environment)
    return json.loads(out.splitlines()[-1]), said


@HERE
def test_a_second_process_finds_the_programs_of_the_first(tmp_path):
    plain, said = run()
    assert plain["reason"] is None
    assert "jaxconv" not in said
    cached = {
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path),
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "0",  # of which JAX keeps nothing on disk
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
    }
    first, said = run(**cached)
    assert said.count("jaxconv runs without oneDNN, more slowly: jax_compilation_cache_dir") == 1
    second, _ = run(**cached)
    assert (first["hits"], second["hits"], second["misses"]) == (0, first["misses"], 0)
    assert first["misses"] > 0
    assert first["sums"] == second["sums"] == plain["sums"]
    assert first["reason"] == onednn_here.CACHED


def text():
    operands = [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in SHAPES]
    jax.clear_caches()
    return jax.jit(jaxconv.convolution).lower(*operands).as_text()


@HERE
@pytest.mark.parametrize(
    ("folder", "enabled", "asked", "called"),
    [
        (None, True, "1", True), ("folder", True, "1", False), ("folder", False, "1", True),
        ("folder", True, "always", True), ("folder", True, "0", False),
    ],
)  # fmt: skip
def test_no_program_that_jax_would_cache_has_the_call(
    folder, enabled, asked, called, monkeypatch, tmp_path
):
    monkeypatch.setenv("JAXCONV_ONEDNN", asked)
    before = jax.config.jax_compilation_cache_dir, jax.config.jax_enable_compilation_cache
    try:
        jax.config.update("jax_compilation_cache_dir", folder and str(tmp_path / folder))
        jax.config.update("jax_enable_compilation_cache", enabled)
        assert (CALL in text()) == called
    finally:
        jax.config.update("jax_compilation_cache_dir", before[0])
        jax.config.update("jax_enable_compilation_cache", before[1])
        jax.clear_caches()
