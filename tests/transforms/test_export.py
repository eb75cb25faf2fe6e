"""Compiled ahead of time: jax.export for three platforms and symbolic batches."""

from dataclasses import replace
from functools import partial

import jax
import numpy as np
import pytest
from jax import export

import jaxconv
from tests.support import forms

PLATFORMS = ("cpu", "cuda", "tpu")


def described(form, name, batch):
    """The types of an operation's arguments, with this batch."""
    return [
        jax.ShapeDtypeStruct((batch, *shape[1:]) if slot != "kernel" else shape, np.float32)
        for slot in forms.ROLES[name][:2]
        for shape in [form.shapes[slot]]
    ]


@pytest.mark.parametrize("known", [False, True])
@forms.each_slot_in_a_form
def test_saved_and_loaded(form, name, known):
    """Lowered once for three platforms, with gradients; saved, loaded, called."""
    batch = form.batch if known else export.symbolic_shape("batch")[0]
    exported = export.export(jax.jit(form.op(name)), platforms=PLATFORMS)(
        *described(form, name, batch)
    )
    assert exported.platforms == PLATFORMS
    loaded = export.deserialize(exported.serialize(vjp_order=1))
    rows = str(batch) if forms.ROLES[name][2] != "kernel" else str(form.shapes["kernel"][0])
    assert str(loaded.out_avals[0].shape[0]) == rows

    a, b, _ = forms.operands(form if batch == form.batch else replace(form, batch=2), name)
    np.testing.assert_array_equal(jax.jit(loaded.call)(a, b), form.exact(name, a, b))
    a, b, t = forms.operands(form, name)
    found = jax.jit(partial(forms.gradients, loaded.call))(a, b, t)
    forms.assert_equal(found, form.exact_gradients(name, a, b, t))


@forms.each_slot
def test_vmap_of_a_symbolic_batch(name):
    """Folding an axis into a batch needs no number for it."""
    (batch,) = export.symbolic_shape("batch")
    op = forms.GROUPED.op(name)
    first, second = described(forms.GROUPED, name, batch)
    first = jax.ShapeDtypeStruct((2, *first.shape), first.dtype)
    exported = export.export(jax.jit(jax.vmap(op, (0, None))))(first, second)
    a, b, _ = forms.operands(replace(forms.GROUPED, batch=3), name)
    a = np.stack([a, a[::-1]])
    np.testing.assert_array_equal(exported.call(a, b), [forms.GROUPED.exact(name, x, b) for x in a])


def test_vmap_of_symbolic_channels():
    """Here the mapped axis, of no known size, folds into the channels of the result."""
    first, second = described(forms.GROUPED, "convolution", forms.GROUPED.batch)
    second = jax.ShapeDtypeStruct((*export.symbolic_shape("n"), *second.shape), second.dtype)
    op = forms.GROUPED.op("convolution")
    exported = export.export(jax.jit(jax.vmap(op, (None, 0))))(first, second)
    a, b, _ = forms.operands(forms.GROUPED, "convolution")
    found = exported.call(a, np.stack([b, -b]))
    np.testing.assert_array_equal(found[1], forms.GROUPED.exact("convolution", a, -b))
    with jaxconv.forced("swap"), pytest.raises(ValueError, match="must be one that can compute"):
        export.export(jax.jit(jax.vmap(op, (None, 0))))(first, second)
    first = first.update(shape=(second.shape[0], *first.shape))
    with pytest.raises(NotImplementedError, match="feature_group_count"):  # so does lax
        export.export(jax.jit(jax.vmap(op)))(first, second)
