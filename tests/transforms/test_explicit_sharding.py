"""Meshes with explicit axes: shardings are part of the types, of results and gradients too."""

from dataclasses import replace

import jax
import numpy as np
import pytest
from jax.sharding import AbstractMesh, AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxconv
from tests.support import forms
from tests.support.programs import collectives

EXPLICIT = jax.make_mesh((4, 2), ("d", "m"), axis_types=(AxisType.Explicit,) * 2)


@pytest.fixture(autouse=True)
def mesh():
    with jax.set_mesh(EXPLICIT):
        yield EXPLICIT


def spec_of(x):
    """The spec in the type of x, as long as its axes."""
    spec = jax.typeof(x).sharding.spec
    return (*spec, *[None] * (x.ndim - len(spec)))


def padded(spec, ndim):
    return (*spec, *[None] * (ndim - len(spec)))


def place(x, spec):
    return jax.device_put(x, NamedSharding(EXPLICIT, P(*spec)))


def split(form, slot, letters):
    """A spec with mesh axes on the axes of these letters."""
    spec = [None] * 4
    for letter, mesh_axis in letters.items():
        spec[form.axis(slot, letter)] = mesh_axis
    return spec


@forms.alternately(forms.OF_SLOTS)
@pytest.mark.usefixtures("however_little")
def test_batch_and_coarse_channels(form, name):
    """Batch over d and coarse channels over m: each result has the axes of what it comes from."""
    form = replace(form, batch=8)
    whole_groups = {"C": "m"} if form.groups > 1 else {}
    specs = {
        "fine": split(form, "fine", {"N": "d"} | whole_groups),
        "kernel": split(form, "kernel", {"O": "m"}),
        "coarse": split(form, "coarse", {"N": "d", "C": "m"}),
    }
    arguments = forms.operands(form, name)
    op = form.op(name)
    a, b, t = (place(x, specs[slot]) for x, slot in zip(arguments, forms.ROLES[name], strict=True))

    seen = []

    @jax.jit
    def run(a, b, t):
        results = forms.with_gradients(op, a, b, t)
        seen.extend(map(spec_of, results))
        return results

    results = run(a, b, t)
    first, second, result = (tuple(specs[slot]) for slot in forms.ROLES[name])
    assert seen == [result, first, second]  # inside jit, as types
    assert [*map(spec_of, results)] == seen
    forms.assert_equal(results, form.exact_with_gradients(name, *arguments))


def whole(x):
    return place(np.asarray(x), [None] * x.ndim)


def test_what_is_split_by_one_operand_alone_and_what_does_not_divide():
    """Whole groups of the data; and six rows, of eight over four devices, are whole on each."""
    name, form = "convolution_backward_data", replace(forms.GROUPED, groups=2)
    dst, weights, _ = forms.operands(form, name)
    spec = split(form, "coarse", {"C": "m"})
    found = form.op(name)(place(dst, spec), whole(weights))
    assert spec_of(found) == tuple(split(form, "fine", {"C": "m"}))
    np.testing.assert_array_equal(found, form.exact(name, dst, weights))
    rows = forms.integers((1, 8, 8, 4), 1), forms.integers((3, 3, 4, 4), 2)
    out = jaxconv.convolution(place(rows[0], [None, "d"]), whole(rows[1]))
    assert spec_of(out) == (None,) * 4
    np.testing.assert_array_equal(out, jaxconv.convolution(*map(whole, rows)))


@forms.each_slot
def test_out_sharding(name):
    """The result as asked for, a gradient as its argument; also where that is not the default."""
    form = replace(forms.GROUPED, batch=8)
    slot = forms.ROLES[name][2]
    a, b, t = (whole(x) for x in forms.operands(form, name))
    asked = split(form, slot, {"O": "m"} if slot == "kernel" else {"N": ("d", "m")})
    op = form.op(name, out_sharding=P(*asked))
    for f in (op, jax.jit(op)):
        out = f(a, b)
        assert spec_of(out) == tuple(asked)
        np.testing.assert_array_equal(out, form.exact(name, a, b))
    named = form.op(name, out_sharding=NamedSharding(EXPLICIT, P(*asked)))
    assert spec_of(named(a, b)) == tuple(asked)
    pulled = forms.gradients(op, a, b, place(t, asked))
    assert [*map(spec_of, pulled)] == [(None,) * 4] * 2
    forms.assert_equal(pulled, form.exact_gradients(name, a, b, t))


@forms.each_slot_in_a_form
def test_vmap_over_a_split_axis(form, name):
    """Of either argument and of both, in the type of the result and of the gradients."""
    op = form.op(name)
    a, b, _ = forms.operands(form, name)
    many = [place(forms.integers((4, *x.shape), 8 + i), ["d"]) for i, x in enumerate((a, b))]
    a, b = whole(a), whole(b)
    for arguments, axes in (
        ((many[0], b), (0, None)),
        ((a, many[1]), (None, 0)),
        ((many[0], many[1]), (0, 0)),
    ):
        out = jax.jit(jax.vmap(op, axes))(*arguments)
        assert spec_of(out) == padded(["d"], 5)
        host = [np.asarray(x) for x in arguments]
        for i in range(4):
            one = (x[i] if axis == 0 else x for x, axis in zip(host, axes, strict=True))
            np.testing.assert_array_equal(np.asarray(out)[i], form.exact(name, *one))

    found = jax.jit(jax.vmap(jax.grad(lambda a, b: (op(a, b) ** 2).sum() / 2, (0, 1)), (0, None)))(
        many[0], b
    )
    for i, x in enumerate(np.asarray(many[0])):
        expected = form.exact_gradients(name, x, b, form.exact(name, x, b))
        for gradient, y in zip(found, expected, strict=True):
            assert spec_of(gradient) == padded(["d"], 5)
            np.testing.assert_array_equal(np.asarray(gradient)[i], y)


@pytest.mark.parametrize("name", forms.FORWARD)
def test_vmap_beside_a_split_batch(name):
    """The mapped axis is whole, the batch is not: it stays so."""
    form = replace(forms.GROUPED, batch=8)
    op = form.op(name)
    a, b, _ = forms.operands(form, name)
    many = forms.integers((3, *a.shape), 8)
    expected = np.stack([form.exact(name, x, b) for x in many])
    for axis, spec in ((0, [None, "d"]), (1, ["d", None])):
        out = jax.jit(jax.vmap(op, (axis, None), axis))(
            place(np.moveaxis(many, 0, axis), spec), whole(b)
        )
        assert spec_of(out) == padded(spec, 5)
        np.testing.assert_array_equal(out, np.moveaxis(expected, 0, axis))


@forms.each_slot
def test_vmap_with_out_sharding(name):
    """`out_sharding` speaks of what the function sees; the mapped axis keeps its own."""
    form = replace(forms.DENSE, batch=8)
    slot = forms.ROLES[name][2]
    asked = split(form, slot, {"O": "m"} if slot == "kernel" else {"N": "m"})
    op = form.op(name, out_sharding=P(*asked))
    a, b, _ = forms.operands(form, name)
    many = place(forms.integers((4, *a.shape), 8), ["d"])
    out = jax.jit(jax.vmap(op, (0, None)))(many, whole(b))
    assert spec_of(out) == ("d", *asked)
    np.testing.assert_array_equal(out, [form.exact(name, x, b) for x in np.asarray(many)])


@pytest.mark.parametrize(
    ("bias_spec", "asked"),
    [
        (["m"], ("d", None, None, None)), (["d"], ("d", "m", None, None)),
        ([None], ("d", "m", None, None)), (["m"], (None,) * 4),
    ], ids=str,
)  # fmt: skip
def test_out_sharding_with_a_bias(bias_spec, asked):
    """The bias goes where the result's channels are, on whichever axis it was split."""
    form = replace(forms.GROUPED, batch=8, channels=(4, 8))
    x, w, t = (whole(x) for x in forms.operands(form, "convolution"))
    bias = place(forms.integers((8,), 5), bias_spec)
    op = form.op("convolution", out_sharding=P(*asked))
    out, pull = jax.vjp(op, x, w, bias)
    assert spec_of(out) == asked
    np.testing.assert_array_equal(out, form.exact("convolution", x, w, bias))
    gradient = pull(place(t, asked))[2]
    assert spec_of(gradient) == tuple(bias_spec)
    np.testing.assert_array_equal(gradient, np.asarray(t).sum((0, 2, 3)))
    # Not asked for, it is the sharding of the sum without a bias.
    for split, channels in ([], None), (["m"], "m"):
        out = form.op("convolution")(place(x, ["d"]), place(w, split), bias)
        assert spec_of(out) == ("d", channels, None, None)


SPLIT = {
    # Where the split channels are summed the result is whole; else it keeps them.
    "fine channels": (forms.DENSE, {"fine": {"C": "d"}, "kernel": {"I": "d"}}),
    "whole groups": (
        replace(forms.GROUPED, channels=(8, 12), groups=4),
        {"fine": {"C": "d"}, "kernel": {"O": "d"}, "coarse": {"C": "d"}},
    ),
    # Both extents can be divided; the weights' gradient sums over them.
    "spatial axes": (
        forms.Form((8, 6), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), (4, 6)),
        {"fine": [None, "d", "m", None], "coarse": [None, "d", "m", None]},
    ),
}


@forms.each_slot
@forms.each("of", SPLIT)
def test_axes_keep_theirs(of, name):
    """In results and in gradients."""
    form, axes = of
    specs = {slot: axes.get(slot, {}) for slot in ("fine", "kernel", "coarse")}
    specs = {slot: split(form, slot, x) if isinstance(x, dict) else x for slot, x in specs.items()}
    arguments = forms.operands(form, name)
    a, b, t = (place(x, specs[slot]) for x, slot in zip(arguments, forms.ROLES[name], strict=True))
    compiled = jax.jit(form.op(name)).lower(a, b).compile()
    if form.groups > 1:
        assert collectives(compiled.as_text()) == {}
    for out in (compiled(a, b), form.op(name)(a, b)):
        assert spec_of(out) == tuple(specs[forms.ROLES[name][2]])
        np.testing.assert_array_equal(out, form.exact(name, *arguments[:2]))
    pulled = forms.gradients(form.op(name), a, b, t)
    assert [*map(spec_of, pulled)] == [spec_of(a), spec_of(b)]
    forms.assert_equal(pulled, form.exact_gradients(name, *arguments))


@pytest.mark.parametrize("name", ["convolution", "convolution_backward_weights"])
def test_beside_automatic_axes(name):
    """A mesh of both kinds: only the explicit axis is typed."""
    mesh = jax.make_mesh((4, 2), ("d", "m"), axis_types=(AxisType.Explicit, AxisType.Auto))
    form = replace(forms.GROUPED, batch=8, channels=(4, 8))
    slot = forms.ROLES[name][2]
    specs = {"fine": P("d"), "kernel": P(), "coarse": P("d")}
    arguments = forms.operands(form, name)
    with jax.set_mesh(mesh):
        a, b, t = (
            jax.device_put(x, NamedSharding(mesh, specs[slot]))
            for x, slot in zip(arguments, forms.ROLES[name], strict=True)
        )
        out = jax.jit(form.op(name))(a, b)
        assert spec_of(out) == padded(specs[forms.ROLES[name][2]], 4)
        pulled = jax.jit(lambda a, b, t: forms.gradients(form.op(name), a, b, t))(a, b, t)
        asked = split(form, slot, {"O": "d"} if slot == "kernel" else {"N": "d"})
        placed = form.op(name, out_sharding=P(*asked))(*arguments[:2])  # arrays of no mesh
        assert spec_of(placed) == tuple(asked)
        shards = {tuple(shard.data.shape) for shard in placed.addressable_shards}
        assert shards == {placed.sharding.shard_shape(placed.shape)} != {placed.shape}
    np.testing.assert_array_equal(placed, out)
    np.testing.assert_array_equal(out, form.exact(name, *arguments[:2]))
    assert [*map(spec_of, pulled)] == [spec_of(a), spec_of(b)]
    forms.assert_equal(pulled, form.exact_gradients(name, *arguments))


OTHER = jax.make_mesh((8,), ("other",), axis_types=(AxisType.Explicit,))


def test_arrays_on_two_meshes_are_refused():
    form = replace(forms.GROUPED, batch=8, channels=(4, 8))
    x, w, _ = forms.operands(form, "convolution")
    bias = np.ones(8, np.float32)

    def there(x, spec):
        return jax.device_put(x, NamedSharding(OTHER, P(*spec)))

    here = EXPLICIT.abstract_mesh
    for arguments, last in [
        ((place(x, ["d"]), there(w, ["other"])), "weights"),
        ((place(x, ["d"]), there(w, [])), "weights"),
        ((place(x, ["d"]), w, there(bias, ["other"])), "bias"),
    ]:
        for op in (form.op("convolution"), jax.jit(form.op("convolution"))):
            with pytest.raises(ValueError, match="mesh") as caught:
                op(*arguments)
            assert str(caught.value).startswith(
                f"convolution: all arrays must be on one mesh; got `src` on {here}, "
                f"`{last}` on {OTHER.abstract_mesh}. "
            )
    with pytest.raises(ValueError, match=r"conv: all .* got `lhs` on .*, `rhs` on "):
        jaxconv.lax.conv(place(x, ["d"]), there(x, ["other"]), (1, 1), "SAME")


@pytest.mark.parametrize(
    ("context", "whose"),
    [(EXPLICIT.abstract_mesh, "in context"), (AbstractMesh((), ()), "of the arrays")],
    ids=["set", "not set"],
)
def test_out_sharding_on_another_mesh_is_refused(context, whose):
    form = replace(forms.GROUPED, batch=8)
    x, w, _ = forms.operands(form, "convolution")
    x, w = place(x, ["d"]), place(w, [])
    op = form.op("convolution", out_sharding=NamedSharding(OTHER, P("other")))
    with jax.sharding.use_abstract_mesh(context), pytest.raises(ValueError, match="mesh") as caught:
        op(x, w)
    assert str(caught.value).startswith(
        f"convolution: `out_sharding` must be on the mesh {whose}, "
        f"{EXPLICIT.abstract_mesh}; got {OTHER.abstract_mesh}. "
    )
