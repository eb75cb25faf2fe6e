"""JAX's strict and debugging modes change nothing; threads do not disturb each other."""

import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from threading import Barrier

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support.forms import (
    DENSE,
    FORWARD,
    GROUPED,
    OPS,
    assert_equal,
    each_op,
    gradients,
    operands,
    with_gradients,
)


def test_the_suite_is_strict():
    """That promotion of types or ranks is an error, and a warning too, holds for every test."""
    with pytest.raises(ValueError, match="promotion path"):
        jnp.zeros(1, jnp.float32) + jnp.zeros(1, jnp.bfloat16)
    with pytest.raises(ValueError, match="rank_promotion"):
        jnp.zeros((1, 1)) + jnp.zeros(1)
    with pytest.raises(UserWarning, match="an error"):
        warnings.warn("an error", stacklevel=1)


MODES = {
    "debugging": lambda: (jax.debug_nans(True), jax.debug_infs(True), jax.checking_leaks()),
    "not compiled": lambda: (jax.disable_jit(),),
    "lenient": lambda: (jax.numpy_dtype_promotion("standard"), jax.numpy_rank_promotion("allow")),
    "wide": lambda: (jax.enable_x64(True), jax.default_matmul_precision("highest")),
}


@pytest.mark.parametrize("name", FORWARD)
@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_modes_change_nothing(mode, name):
    """An operation and its gradients, called eagerly."""
    a, b, t = operands(DENSE, name)
    op = DENSE.op(name)
    with ExitStack() as modes:
        for context in mode():
            modes.enter_context(context)
        found = with_gradients(op, a, b, t)
    assert {x.dtype for x in found} == {np.dtype(np.float32)}
    assert_equal(found, DENSE.exact_with_gradients(name, a, b, t))


@pytest.mark.parametrize("name", FORWARD)
def test_debug_nans_finds_one(name):
    """JAX then runs again without jit, step by step, to say where."""
    a, b, t = operands(DENSE, name)
    op = DENSE.op(name)
    with jax.debug_nans(True):
        with pytest.raises(FloatingPointError):
            op(np.full_like(a, np.nan), b)
        with pytest.raises(FloatingPointError):
            gradients(op, a, b, np.full_like(t, np.nan))


def test_threads():
    """Eight at once: all start with the same call, not compiled before, then go their ways."""
    form = replace(DENSE, batch=2, channels=(6, 3), groups=3)
    threads = 8
    start = Barrier(threads)
    steps = {name: jax.jit(partial(gradients, form.op(name))) for name in OPS}

    def call(name):
        a, b, t = operands(form, name)
        return [np.asarray(x) for x in (form.op(name)(a, b), *steps[name](a, b, t))]

    def run(thread):
        start.wait()
        first = thread // 2  # the first call of two threads each is the same
        return [(name, call(name)) for name in (OPS + OPS)[first : first + len(OPS)]]

    with ThreadPoolExecutor(threads) as pool:
        found = [pair for pairs in pool.map(run, range(threads)) for pair in pairs]
    assert len(found) == threads * len(OPS)
    for name, results in found:
        a, b, t = operands(form, name)
        assert_equal(results, form.exact_with_gradients(name, a, b, t))


@each_op
def test_eager_calls_compile_once(name):
    """A second eager call traces and compiles nothing, with its attributes in a list or not."""
    a, b, _ = operands(GROUPED, name)
    op = GROUPED.op(name)
    op(a, b)
    with compilations() as events:
        op.func(a, b, **{**op.keywords, "strides": list(op.keywords["strides"])})
        assert not events
        op.func(a, b, **{**op.keywords, "precision": "highest"})
        assert events, "what else would show that nothing was compiled"


@contextmanager
def compilations():
    """The events of tracing and compiling that JAX reports meanwhile."""
    events, active = [], [True]

    def listen(event, *_, **__):
        if active[0] and event.startswith("/jax/core/compile"):
            events.append(event)

    # JAX takes listeners back all together only, which are not all ours: this one goes deaf.
    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield events
    finally:
        active[0] = False
