"""Compiled ahead of time: jax.export for three platforms, symbolic batches, the cache on disk."""

import os
import subprocess
import sys
from dataclasses import replace

import jax
import numpy as np
import pytest
from jax import export

from tests.support.forms import DENSE, DIVIDED, EACH_SLOT, GROUPED, OPS, ROLES, operands
from tests.support.programs import primitives

each_slot = pytest.mark.parametrize("name", EACH_SLOT)
each_op = pytest.mark.parametrize("name", OPS)

PLATFORMS = ("cpu", "cuda", "tpu")


def described(form, name, batch):
    """The types of an operation's arguments, with this batch."""
    return [
        jax.ShapeDtypeStruct(
            (batch, *shape[1:]) if slot != "kernel" else shape, np.dtype(np.float32)
        )
        for slot in ROLES[name][:2]
        for shape in [form.shapes[slot]]
    ]


@pytest.mark.parametrize(
    ("name", "form"), list(zip(EACH_SLOT, (GROUPED, DIVIDED, DENSE), strict=True)), ids=EACH_SLOT
)
def test_symbolic_batch(form, name):
    """Exported once, for any batch."""
    (batch,) = export.symbolic_shape("batch")
    save_and_load(form, name, batch)


def test_one_batch():
    """That it is known may change what is lowered."""
    save_and_load(GROUPED, "convolution", GROUPED.batch)


def save_and_load(form, name, batch):
    """Lowered once for three platforms, with gradients; saved, loaded, called."""
    exported = export.export(jax.jit(form.op(name)), platforms=PLATFORMS)(
        *described(form, name, batch)
    )
    assert exported.platforms == PLATFORMS
    loaded = export.deserialize(exported.serialize(vjp_order=1))
    rows = str(batch) if ROLES[name][2] != "kernel" else str(form.shapes["kernel"][0])
    assert str(loaded.out_avals[0].shape[0]) == rows

    a, b, _ = operands(form if batch == form.batch else replace(form, batch=2), name)
    np.testing.assert_array_equal(jax.jit(loaded.call)(a, b), form.op(name)(a, b))
    a, b, t = operands(form, name)
    found = jax.jit(lambda a, b, t: jax.vjp(loaded.call, a, b)[1](t))(a, b, t)
    for gradient, expected in zip(found, jax.vjp(form.op(name), a, b)[1](t), strict=True):
        np.testing.assert_array_equal(gradient, expected)


def test_symbolic_batch_of_a_gradient():
    """A training step is exported as one function: the derivative is inside."""
    (batch,) = export.symbolic_shape("batch")
    form, name = GROUPED, "convolution"

    def step(a, b):
        return jax.grad(lambda a, b: (form.op(name)(a, b) ** 2).sum() / 2, (0, 1))(a, b)

    exported = export.export(jax.jit(step), platforms=PLATFORMS)(*described(form, name, batch))
    loaded = export.deserialize(exported.serialize())
    a, b, _ = operands(replace(form, batch=2), name)
    for found, expected in zip(loaded.call(a, b), step(a, b), strict=True):
        np.testing.assert_array_equal(found, expected)


@each_slot
def test_vmap_of_a_symbolic_batch(name):
    """Folding an axis into a batch needs no number for it."""
    (batch,) = export.symbolic_shape("batch")
    op = GROUPED.op(name)
    first, second = described(GROUPED, name, batch)
    first = jax.ShapeDtypeStruct((2, *first.shape), first.dtype)
    exported = export.export(jax.jit(jax.vmap(op, (0, None))))(first, second)
    a, b, _ = operands(replace(GROUPED, batch=3), name)
    a = np.stack([a, a[::-1]])
    np.testing.assert_array_equal(exported.call(a, b), np.stack([op(x, b) for x in a]))


@each_op
def test_shapes_without_running(name):
    a, b, t = operands(GROUPED, name)
    types = (jax.ShapeDtypeStruct(x.shape, x.dtype) for x in (a, b))
    out = jax.eval_shape(GROUPED.op(name), *types)
    assert (out.shape, out.dtype) == (t.shape, t.dtype)
    jaxpr = jax.make_jaxpr(GROUPED.op(name))(a, b)
    assert jaxpr.out_avals[0].shape == t.shape
    assert f"contract_to_{ROLES[name][2]}" in primitives(jaxpr)
    assert f"name={name}" in str(jaxpr)  # as profiles will show it


PROGRAM = """
import jax, jax.monitoring
import numpy as np
from jaxconv._lowering import isolate
from tests.support.forms import EACH_SLOT, GROUPED, operands

isolate.MIN_ELEMENTS = 0  # in functions of their own, as for real sizes
events = []
jax.monitoring.register_event_listener(lambda event, **_: events.append(event))
for name in EACH_SLOT:
    a, b, t = operands(GROUPED, name)
    op = GROUPED.op(name)
    step = jax.jit(lambda a, b, t: (op(a, b), *jax.vjp(op, a, b)[1](t)))
    print(*(np.asarray(x, np.float64).sum() for x in step(a, b, t)))
for outcome in ("cache_hits", "cache_misses"):
    print(outcome, events.count(f"/jax/compilation_cache/{outcome}"))
"""


def test_persistent_compilation_cache(tmp_path):
    """A second process compiles nothing: what is compiled has the same key in both.

    (XLA cannot serialise programs that call oneDNN.)
    """
    environment = os.environ | {
        "JAX_DISABLE_MOST_OPTIMIZATIONS": "0",  # of which JAX keeps nothing on disk
        "JAXCONV_ONEDNN": "0",
        "JAX_COMPILATION_CACHE_DIR": str(tmp_path),
        "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0",
        "JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES": "-1",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    lines = [
        subprocess.run(
            [sys.executable, "-c", PROGRAM],
            env=environment,
            check=True,
            capture_output=True,
            text=True,
        ).stdout.splitlines()
        for _ in range(2)
    ]
    (*first, hits, misses), (*second, hits_again, misses_again) = lines
    assert first == second
    assert hits == "cache_hits 0"
    assert int(misses.split()[1]) >= len(EACH_SLOT)
    assert hits_again == misses.replace("misses", "hits")
    assert misses_again == "cache_misses 0"
