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

import jaxconv
from tests.support import forms


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


@pytest.mark.parametrize("name", forms.FORWARD)
@pytest.mark.parametrize("mode", MODES.values(), ids=MODES)
def test_modes_change_nothing(mode, name):
    """An operation and its gradients, called eagerly."""
    a, b, t = forms.operands(forms.DENSE, name)
    op = forms.DENSE.op(name)
    with ExitStack() as modes:
        for context in mode():
            modes.enter_context(context)
        found = forms.with_gradients(op, a, b, t)
    assert {x.dtype for x in found} == {np.dtype(np.float32)}
    forms.assert_equal(found, forms.DENSE.exact_with_gradients(name, a, b, t))


@pytest.mark.parametrize("function", [
    lambda x: jaxconv.convolution(x, x, data_format="NCX", weights_format="OIX"),
    lambda x: jax.lax.conv(x, x, (1, 1), "SAME"),
    lambda x: jax.lax.conv(*[x.astype(np.float32)] * 2, (1, 1), "SAME", None, np.float64),
    lambda x: jax.lax.reduce_window(x, -np.inf, jax.lax.max, (1, 1, 2, 2), (1,) * 4, "VALID"),
])  # fmt: skip
def test_what_was_traced_in_float64_is_lowered_where_float64_is_off(function):
    with jax.enable_x64(True):
        x = jax.numpy.arange(1e3, 1064).reshape(2, 2, 4, 4)  # float32 does not hold the results
        step = jax.grad(lambda x: (function(x) ** 2).sum())
        expected, traced = step(x), jax.jit(step).trace(x)
    with jaxconv.installed():
        compiled = traced.lower().compile()
    np.testing.assert_array_equal(compiled(x), expected)


@pytest.mark.parametrize("name", forms.FORWARD)
def test_debug_nans_finds_one(name):
    """JAX then runs again without jit, step by step, to say where."""
    a, b, t = forms.operands(forms.DENSE, name)
    op = forms.DENSE.op(name)
    with jax.debug_nans(True):
        with pytest.raises(FloatingPointError):
            op(np.full_like(a, np.nan), b)
        with pytest.raises(FloatingPointError):
            forms.gradients(op, a, b, np.full_like(t, np.nan))


def test_threads():
    """Eight at once: all start with the same call, not compiled before, then go their ways."""
    form = replace(forms.DENSE, batch=2, channels=(6, 3), groups=3)
    threads = 8
    start = Barrier(threads)
    steps = {name: jax.jit(partial(forms.gradients, form.op(name))) for name in forms.OPS}

    def call(name):
        a, b, t = forms.operands(form, name)
        return [np.asarray(x) for x in (form.op(name)(a, b), *steps[name](a, b, t))]

    def run(thread):
        start.wait()
        first = thread // 2  # the first call of two threads each is the same
        return [
            (name, call(name)) for name in (forms.OPS + forms.OPS)[first : first + len(forms.OPS)]
        ]

    with ThreadPoolExecutor(threads) as pool:
        found = [pair for pairs in pool.map(run, range(threads)) for pair in pairs]
    assert len(found) == threads * len(forms.OPS)
    for name, results in found:
        a, b, t = forms.operands(form, name)
        forms.assert_equal(results, form.exact_with_gradients(name, a, b, t))


@forms.each_op
def test_eager_calls_compile_once(name):
    """A second eager call traces and compiles nothing, with its attributes in a list or not."""
    a, b, _ = forms.operands(forms.GROUPED, name)
    op = forms.GROUPED.op(name)
    op(a, b)
    with compilations() as events:
        op.func(a, b, **{**op.keywords, "strides": list(op.keywords["strides"])})
        assert not events
        op.func(a, b, **{**op.keywords, "precision": "highest"})
        assert events, "what else would show that nothing was compiled"


def test_spellings_that_come_to_the_same_compile_once():
    src, weights = np.ones((4, 10, 3), np.float32), np.ones((2, 3, 5), np.float32)
    jaxconv.convolution(src, weights, strides=3, auto_pad="same_lower")
    with compilations() as events:
        jaxconv.convolution(src, weights, strides=[3], pads_begin=1)
    assert not events


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
