"""vmap of either argument or both folds into one contraction, wherever the axis stands."""

from dataclasses import replace
from functools import partial
from itertools import chain, product

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

import jaxconv
from benchmarks import machine
from tests.support import forms
from tests.support.lax_oracle import conv
from tests.support.programs import collectives, contractions, primitives, run_sharded
from tests.support.timing import takes_at_most

each_form = pytest.mark.parametrize("form", forms.FORMS.values(), ids=forms.FORMS)

# For the first argument, the second and the result: every argument alone and both, with the
# axis at both ends and in each place between.
PLACES = [(0, None, 0), (1, None, -1), (None, 0, 2), (None, 3, 1), (2, 1, 0), (-1, -2, -1)]


#: What `jax.device_count` would be, the same function for all tests, for JAX to know it again.
COUNTS = {1: lambda: 1, 8: lambda: 8}


@pytest.fixture(
    params=[(forms.DENSE, 1), (forms.GROUPED, 8)], ids=["dense, one device", "grouped, several"]
)
def form(request, patched):
    """Both orders in which a mapped axis merges with the batch; see `batching.py`."""
    form, devices = request.param
    patched(jax, "device_count", COUNTS[devices])
    return form


def mapped(form, name, places, size, seed=0):
    """Arguments with an axis of `size` more where `places` says."""
    pair = forms.operands(form, name)[:2]
    return tuple(
        x if place is None else np.moveaxis(forms.integers((size, *x.shape), seed + k), 0, place)
        for k, (x, place) in enumerate(zip(pair, places, strict=False))
    )


def loop(form, name, places, *arguments):
    """What vmap means, by the oracle."""
    size = next(x.shape[p] for x, p in zip(arguments, places, strict=False) if p is not None)
    slices = (
        [x if p is None else np.take(x, i, p) for x, p in zip(arguments, places, strict=False)]
        for i in range(size)
    )
    return np.stack([form.exact(name, *s) for s in slices], places[2])


@forms.each_slot
def test_any_argument_and_axis(form, name):
    # A function of its own: a trace made for the other number of devices must not serve.
    op = form.op(name)
    cases = [mapped(form, name, places, size=2) for places in PLACES]
    found = jax.jit(
        lambda cases: [
            jax.vmap(lambda a, b: op(a, b), places[:2], places[2])(*case)
            for places, case in zip(PLACES, cases, strict=True)
        ]
    )(cases)
    for places, case, result in zip(PLACES, cases, found, strict=True):
        np.testing.assert_array_equal(result, loop(form, name, places, *case))


@forms.each_slot
def test_one_contraction_whatever_the_size(name):
    """No loop and no copies of the operation: as many equations for 5 as for 2."""
    for places in PLACES[::2]:
        sizes = []
        for size in (2, 5):
            jaxpr = jax.make_jaxpr(jax.vmap(forms.GROUPED.op(name), places[:2], places[2]))(
                *mapped(forms.GROUPED, name, places, size)
            )
            assert len(contractions(jaxpr)) == 1
            assert not {"while", "scan", "concatenate"} & set(primitives(jaxpr))
            sizes.append(len(primitives(jaxpr)))
        assert sizes[0] == sizes[1]


@forms.each_slot
def test_empty(name):
    """Nothing to map over, or batches that no device has a share of: right shapes and types."""
    a, b = mapped(forms.DENSE, name, (0, 1, 0), size=0)
    found = jax.vmap(forms.DENSE.op(name), (0, 1))(a, b)
    assert found.shape == (0, *forms.operands(forms.DENSE, name)[2].shape)
    assert found.dtype == a.dtype
    form = replace(forms.DENSE, batch=0)
    a, b, t = forms.operands(form, name)
    found = jax.vmap(form.op(name), (0, None))(np.stack([a, a]), b)
    np.testing.assert_array_equal(found, np.zeros((2, *t.shape)))


# Beside shardings. A mapped axis and the batch merge into one; the sharded of the two must
# be the major one, or the merge gathers the other's parts.
AUTO = jax.make_mesh((8,), ("d",), axis_types=(AxisType.Auto,))


#: The first argument alone, the second alone, and both.
MAPPED = [(0, None, 0), (None, 0, 0), (0, 0, 0)]


@pytest.mark.parametrize("name", forms.EACH_SLOT)
@each_form
def test_beside_a_sharded_batch(form, name):
    """vmap over an axis on every device, the batch being split: nothing is communicated.

    Of the data, or of the weights, with the data or without. Weights gradients are summed once.
    """
    form, split, one = replace(form, batch=8), P("d"), P(None, "d")
    if forms.ROLES[name][2] == "kernel":
        cases = [((0, 0, 0), [one, one])]
    else:
        cases = [((0, None, 0), [one, P()]), ((None, 0, 0), [split, P()]), ((0, 0, 0), [one, P()])]
    every, specs = zip(*cases, strict=True)
    given = [x for places in every for x in mapped(form, name, places, size=3)]

    def run(*given):
        pairs = zip(every, given[::2], given[1::2], strict=True)
        return [jax.vmap(form.op(name), places[:2])(a, b) for places, a, b in pairs]

    found, text = run_sharded(AUTO, [*chain(*specs)], run, *given)
    assert collectives(text) == ({"all-reduce": 1} if forms.ROLES[name][2] == "kernel" else {})
    for places, a, b, result in zip(every, given[::2], given[1::2], found, strict=True):
        np.testing.assert_array_equal(result, loop(form, name, places, a, b))


@pytest.mark.parametrize(
    ("places", "form", "name"),
    [
        *product(MAPPED, [forms.GROUPED], forms.EACH_SLOT),
        *(
            (places, forms.DENSE, name)
            for places, name in zip(MAPPED, forms.EACH_SLOT, strict=True)
        ),
    ],
    ids=str,
)
def test_over_a_sharded_axis(places, form, name):
    """With spmd_axis_name: the mapped axis is the split one, and stays so, wherever it folds."""
    a, b = mapped(form, name, places, size=8)
    op = form.op(name)
    with jax.set_mesh(AUTO):
        vmapped = jax.vmap(lambda a, b: op(a, b), places[:2], spmd_axis_name="d")
        specs = [P() if place is None else P("d") for place in places[:2]]
        found, text = run_sharded(AUTO, specs, vmapped, a, b)
    assert collectives(text) == {}
    assert found.sharding.spec[0] == "d"
    np.testing.assert_array_equal(found, loop(form, name, places, a, b))


@forms.alternately(forms.FORMS)
def test_per_example_gradients_of_sharded_examples(form, name):
    """Each device has those of its own examples."""
    form = replace(form, batch=1)
    a, b, t = forms.operands(replace(form, batch=8), name)
    op = form.op(name)

    def gradient(x, t):
        return jax.vjp(lambda b: op(x[None], b), b)[1](t[None])[0]

    vmapped = jax.vmap(gradient, spmd_axis_name="d")
    found, text = run_sharded(AUTO, [P("d")] * 2, vmapped, a, t)
    assert collectives(text) == {}
    assert found.sharding.spec[0] == "d"
    np.testing.assert_array_equal(
        found,
        np.stack(
            [form.exact_gradients(name, x[None], b, y[None])[1] for x, y in zip(a, t, strict=True)]
        ),
    )


# Timed: per-example weight gradients of a small network, against what one would write in lax.
BATCH = 32
SHAPES = ((3, 3, 3, 16), (3, 3, 8, 32), (3, 3, 32, 32))
STRIDES, GROUPS = (1, 2, 2), (1, 2, 1)


def network(convolution, weights, x):
    """Three layers, the last two strided; the middle one has two groups."""
    for w, stride, groups in zip(weights, STRIDES, GROUPS, strict=True):
        x = jnp.tanh(convolution(x, w, stride, groups))
    return (x**2).sum()


def ours(x, w, stride, groups):
    return jaxconv.convolution(x, w, strides=stride, groups=groups, pads_begin=1, pads_end=1)


def plain(x, w, stride, groups):
    return conv(x, w, (stride, stride), ((1, 1), (1, 1)), groups)


def patches(x, w, stride, groups):
    """A sum over shifted slices, each a matrix product: batched by examples, no convolution."""
    x = jnp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    rows, columns = ((n - 3) // stride + 1 for n in x.shape[1:3])
    shifted = [
        x[:, i : i + stride * (rows - 1) + 1 : stride, j : j + stride * (columns - 1) + 1 : stride]
        for i in range(3)
        for j in range(3)
    ]
    taps = jnp.stack(shifted, -2).reshape(len(x), rows, columns, 9, groups, -1)
    w = w.reshape(9, w.shape[2], groups, -1)
    return jnp.einsum("nyxtgi,tigo->nyxgo", taps, w).reshape(*taps.shape[:3], -1)


def per_example(convolution, mapped=jax.vmap):
    gradient = jax.grad(partial(network, convolution))
    return lambda weights, x: mapped(lambda x: gradient(weights, x[None]))(x)


one_by_one = partial(per_example, mapped=lambda function: partial(lax.map, function))


@pytest.mark.timed
@pytest.mark.xfail(
    jax.__version_info__ < (0, 11) and "amx_tile" in machine.describe()["isa"],
    reason="on an Intel Xeon with AMX 1.14 to 1.57 times the best on JAX 0.10.2 and 1.0 on 0.12; "
    "on an AMD EPYC with AVX2 0.83 and 0.79, with AVX-512 0.95 and 0.79",
    strict=False,
)
def test_per_example_gradients_are_fast():
    """At most 1.2 times the best of three ways to write them without us.

    `vmap` of lax's own gradient is left out: it takes 50 times as long, for want of a good
    grouped convolution.
    """
    rng = np.random.default_rng(2)
    weights = [rng.standard_normal(s).astype(np.float32) / 12 for s in SHAPES]
    x = rng.standard_normal((BATCH, 28, 28, 3)).astype(np.float32)
    ways = {
        "ours": per_example(ours), "vmap of slices": per_example(patches),
        "map over lax": one_by_one(plain), "map over slices": one_by_one(patches),
    }  # fmt: skip
    compiled = {name: jax.jit(f).lower(weights, x).compile() for name, f in ways.items()}
    expected = compiled["vmap of slices"](weights, x)
    for f in compiled.values():
        for found, y in zip(f(weights, x), expected, strict=True):
            np.testing.assert_allclose(found, y, rtol=1e-3, atol=1e-4)
    run = {name: lambda f=f: jax.block_until_ready(f(weights, x)) for name, f in compiled.items()}
    of_ours = run.pop("ours")
    for name, other in run.items():
        assert takes_at_most(1.2, of_ours, other), name


@pytest.mark.usefixtures("however_little")
def test_compiling_does_not_grow_with_the_batch():
    """As many instructions for twice the examples: nothing is unrolled over them."""

    def instructions(batch, shapes, image):
        types = [jax.ShapeDtypeStruct(s, np.float32) for s in (*shapes, (batch, *image))]
        lowered = jax.jit(per_example(ours)).lower(types[:3], types[3])
        return lowered.as_text().count(" = ")

    tiny = ((3, 3, 3, 4), (3, 3, 2, 6), (3, 3, 6, 2)), (6, 7, 3)
    # Little work takes other forms, so that fewer examples may have more instructions.
    assert instructions(16384, *tiny) == instructions(8192, *tiny) <= instructions(4, *tiny)
    timed = SHAPES, (28, 28, 3)
    assert instructions(1024, *timed) == instructions(512, *timed)
