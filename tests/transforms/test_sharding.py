"""Sharded arrays under jit, with automatic axes: the same numbers, and what is communicated."""

import re
from dataclasses import replace
from functools import partial
from math import prod

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

from tests.support import forms, oracle
from tests.support.programs import collectives, run_sharded

pytestmark = pytest.mark.usefixtures("however_little")

MESH = jax.make_mesh((8,), ("d",), axis_types=(AxisType.Auto,))

FORMS = {
    "dense": replace(forms.DENSE, batch=8),
    "grouped": replace(forms.GROUPED, batch=8),
    "depthwise": replace(forms.DENSE, batch=8, channels=(6, 6), groups=6),
    "divided": replace(forms.DIVIDED, batch=8),
    # more than a fused sum of shifted products holds
    "wide groups": replace(forms.DENSE, batch=8, channels=(64, 96), groups=2, kernel=(3, 3)),
    "dense, channels first": replace(forms.GROUPED, batch=8, groups=1),
    "pointwise": replace(forms.GROUPED, batch=8, groups=1, kernel=(1, 1), dilations=(1, 1)),
    "large strides": replace(forms.GROUPED, batch=8, fine=(23, 19), kernel=(7, 4), strides=(5, 4)),
    "1-D": forms.Form((11,), (4,), (3,), (2,), (2,), (1,), (4, 6), 2, batch=8),
    "3-D": forms.Form(
        (4, 5, 3), (2, 3, 2), (2, 1, 1), (1, 1, 2), (0, 2, 1), (1, 0, 0), (4, 6), 2, batch=8
    ),
}  # fmt: skip


def operate(form, name, specs, dtype=np.float32):
    """An operation and its gradients on sharded arguments: exact; the results and collectives."""
    arguments = forms.operands(form, name, dtype, limit=4 if dtype == np.float32 else 2)

    run = partial(forms.with_gradients, form.op(name))
    found, text = run_sharded(MESH, specs, run, *arguments)
    assert {x.dtype for x in found} == {np.dtype(dtype)}
    expected = form.exact_with_gradients(name, *arguments)
    forms.assert_equal(found, [oracle.round_to(x, dtype) for x in expected])
    return found, collectives(text)


def along(form, slot_axes):
    """A sharding for the tensor in each slot: of the axis that `slot_axes` names, if any."""

    def spec(slot):
        letter = slot_axes.get(slot)
        return P() if letter is None else P(*[None] * form.axis(slot, letter), "d")

    return spec


@forms.alternately(FORMS)
def test_batch_sharded(form, name):
    """No gather anywhere; a kernel's gradient, which sums over the batch, reduces once."""
    spec = along(form, {"fine": "N", "coarse": "N"})
    first, second, result = forms.ROLES[name]
    specs = [spec(slot) for slot in forms.ROLES[name]]
    if form in (FORMS["dense"], FORMS["grouped"]):
        # What is summed over devices is float32, and rounded once.
        assert operate(form, name, specs, jnp.bfloat16)[1] == {"all-reduce": 1}
    found, communication = operate(form, name, specs)
    assert communication == {"all-reduce": 1}
    for x, slot in zip(found, (result, first, second), strict=True):
        if slot != "kernel":
            assert x.sharding.is_equivalent_to(NamedSharding(MESH, spec(slot)), x.ndim)


WIDE = {
    "dense": replace(forms.DENSE, channels=(8, 16)),
    "windows that tile": forms.Form((8, 8), (2, 2), (2, 2), (1, 1), (0, 0), (0, 0), (8, 16)),
    "grouped": replace(forms.GROUPED, channels=(16, 32), groups=8),
}

CHANNELS = [
    pytest.param({"kernel": "O", "coarse": "C"}, id="coarse channels"),
    pytest.param({"kernel": "I", "fine": "C"}, id="fine channels"),
]


@pytest.mark.parametrize("split", CHANNELS)
@forms.alternately(WIDE)
def test_channel_sharded(form, split, name):
    """One reduction, of the one result that sums over them; none where whole groups are split."""
    if form.groups > 1 and "fine" in split:
        split = {"fine": "C"}  # the kernel's fine axis is that of one group
    spec = along(form, split)
    _, communication = operate(form, name, [spec(slot) for slot in forms.ROLES[name]])
    assert communication == ({"all-reduce": 1} if form.groups == 1 else {})


MANY = {
    "a kernel larger than the image": forms.Form(
        (4, 4), (7, 7), (1, 1), (1, 1), (3, 3), (3, 3), (8, 8), 8
    ),
    "crowded channels": forms.Form((5, 5), (5, 5), (1, 1), (1, 1), (2, 2), (2, 2), (512, 512), 512),
    "many taps": forms.Form((9, 9), (11, 11), (1, 1), (1, 1), (4, 4), (4, 4), (256, 256), 256),
}


@forms.each("form", MANY)
def test_depthwise_channels_sharded(form):
    """Nothing is communicated, where other programs move channels about."""
    spec = along(form, {"kernel": "O", "coarse": "C", "fine": "C"})
    specs = [spec(slot) for slot in forms.ROLES["convolution"]]
    assert operate(form, "convolution", specs)[1] == {}


@pytest.mark.parametrize(
    ("slot_axes", "name"),
    [
        ({"kernel": "I"}, "convolution"), ({"fine": "C"}, "conv_transpose"),
        ({"coarse": "C"}, "convolution"),
    ], ids=str,
)  # fmt: skip
def test_channels_split_within_groups(slot_axes, name):
    """More devices than groups: right, whatever is communicated."""
    form = replace(forms.GROUPED, channels=(16, 24))
    spec = along(form, slot_axes)
    assert operate(form, name, [spec(slot) for slot in forms.ROLES[name]])[1]  # something was split


SPATIAL = forms.Form((32, 6), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), (4, 6))
DEPTHWISE = replace(SPATIAL, channels=(6, 6), groups=6)
VOLUME = forms.Form((32, 4, 3), (3, 3, 3), (1, 1, 1), (1, 1, 1), (1, 1, 1), (1, 1, 1), (4, 6))
SPATIAL_FORMS = {
    "dense": SPATIAL,
    "depthwise": DEPTHWISE,
    "wide groups": replace(SPATIAL, channels=(32, 64), groups=2),
    "uneven halos": replace(DEPTHWISE, kernel=(4, 3), pads_begin=(2, 0)),
    "a halo at one end": replace(DEPTHWISE, pads_begin=(0, 1), pads_end=(2, 1)),
    "dilated": replace(
        DEPTHWISE, fine=(64, 6), dilations=(2, 1), pads_begin=(2, 1), pads_end=(2, 1)
    ),
    "taps": replace(DEPTHWISE, fine=(88, 6), kernel=(11, 11), pads_begin=(5, 5), pads_end=(5, 5)),
    "1-D": forms.Form((32,), (3,), (1,), (1,), (1,), (1,), (6, 6), 6),
    "3-D": VOLUME,
    "3-D, grouped": replace(VOLUME, groups=2),
    "channels first": replace(SPATIAL, formats=forms.CHANNELS_FIRST),
    "depthwise, channels first": replace(DEPTHWISE, formats=forms.CHANNELS_FIRST),
}  # fmt: skip


SLOW = ("a halo at one end", "many taps", "1-D", "3-D, grouped", "depthwise, channels first")


def assert_halos(text: str, form: forms.Form, data, parts: tuple[int, ...]):
    """Devices exchange no more at once than what windows reach into along an axis in parts."""
    sent = re.findall(r"\[([\d,]+)\]\S* collective-permute\(", text)
    shape = [f // n for f, n in zip(form.fine, parts, strict=True)]
    held = data.size // prod(form.fine) * prod(shape)
    reach = [d * (k - 1) for d, k in zip(form.dilations, form.kernel, strict=True)]
    split = [axis for axis, n in enumerate(parts) if n > 1]
    halo = max(held // shape[axis] * reach[axis] for axis in split)
    assert sent
    assert halo < held, "a device has no more than a halo"
    assert all(prod(map(int, shape.split(","))) <= halo for shape in sent)


@forms.alternately(SPATIAL_FORMS, slow=SLOW)
def test_spatially_sharded(form, name):
    """Rows over the devices: right, and for a stride of 1 no more than halos are exchanged."""
    a, b, t = forms.operands(form, name)
    rows = P(*[None] * form.axis("fine", "X"), "d")
    specs = [P() if slot == "kernel" else rows for slot in forms.ROLES[name]]
    found, text = run_sharded(MESH, specs[:2], form.op(name), a, b)
    np.testing.assert_array_equal(found, form.exact(name, a, b))
    assert set(collectives(text)) == {"collective-permute"}
    assert found.sharding.is_equivalent_to(NamedSharding(MESH, rows), a.ndim)
    assert_halos(text, form, a, (8, *[1] * (len(form.fine) - 1)))

    pulled, text = run_sharded(MESH, specs, partial(forms.gradients, form.op(name)), a, b, t)
    if form.groups == 1 or 1 < len(form.fine) < prod(form.kernel) < 64:
        # else a weights gradient may gather: long rows added up piecewise, or many taps
        assert set(collectives(text)) <= {"collective-permute", "all-reduce"}
    forms.assert_equal(pulled, form.exact_gradients(name, a, b, t))


def test_rows_on_a_mesh_with_another_axis():
    """Such a weights gradient as one convolution is split wrongly by XLA."""
    mesh = jax.make_mesh((4, 2), ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    form, name = replace(SPATIAL, batch=8), "convolution_backward_weights"
    a, b, _ = forms.operands(form, name)
    found, _ = run_sharded(mesh, [P(None, "x")] * 2, form.op(name), a, b)
    np.testing.assert_array_equal(found, form.exact(name, a, b))


COLUMNS = {name: SPATIAL_FORMS[name] for name in ("dense", "depthwise", "wide groups")}
COLUMNS |= {
    f"{name}, channels first": replace(form, formats=forms.CHANNELS_FIRST)
    for name, form in {
        **COLUMNS,
        "dilated": replace(DEPTHWISE, dilations=(1, 2)),
        "twelve columns": replace(DEPTHWISE, kernel=(3, 12)),
    }.items()
}


@forms.alternately(COLUMNS, slow=("dense, channels first", "wide groups"))
@pytest.mark.parametrize("both", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_columns_sharded(both, form, name):
    """Columns over the devices, alone or with rows: halos only, also if they divide the batch."""
    reach = form.dilations[1] * (form.kernel[1] - 1)
    form = replace(form, batch=8, fine=(32, 32 * reach), pads_begin=(1, 2), pads_end=(1, reach - 2))
    a, b, _ = forms.operands(form, name)
    parts = (4, 2) if both else (1, 8)
    mesh = jax.make_mesh(parts, ("x", "y"), axis_types=(AxisType.Auto,) * 2)
    split = P(*[None] * form.axis("fine", "X"), "x", "y")
    specs = [split if slot != "kernel" else P() for slot in forms.ROLES[name][:2]]
    result, text = run_sharded(mesh, specs, form.op(name), a, b)
    np.testing.assert_array_equal(result, form.exact(name, a, b))
    communication = set(collectives(text))
    if forms.ROLES[name][2] != "kernel":
        assert communication == {"collective-permute"}
        assert_halos(text, form, a, parts)
    elif not (both and form.groups == 6 and form.formats == forms.CHANNELS_FIRST):
        # there a weights gradient may gather
        assert communication <= {"collective-permute", "all-reduce"}


PLACES = [(32, 4, 4, 2, (0, 0)), (32, 8, 8, 2, (0, 0)), (16, 3, 1, 8, (0, 0)), (4, 4, 1, 2, (0, 0))]
PLACES += [(12, 1, 2, 1, (1, 2))]


@pytest.mark.parametrize("axes", [1, 2])
@pytest.mark.parametrize(("fine", "taps", "stride", "groups", "pads"), PLACES)
@forms.each_slot
def test_places_of_an_axis_in_parts(name, fine, taps, stride, groups, pads, axes):
    """XLA takes a wrong one for one with a stride, and ends the process if one is cropped."""
    one, none = (1,) * (axes - 1), (0,) * (axes - 1)
    low, high = ((*none, pad) for pad in pads)
    sizes = ((*one, n) for n in (fine, taps, stride, 1))
    form = forms.Form(*sizes, low, high, (8, 8), groups, batch=2)
    mesh = jax.make_mesh((4,), ("d",), axis_types=(AxisType.Auto,), devices=jax.devices()[:4])

    def spec(slot, x):
        at = form.axis(slot, "X") + axes - 1
        return P(*[None] * at, "d") if x.shape[at] % 4 == 0 else P()

    tensors = forms.operands(form, name)
    specs = map(spec, forms.ROLES[name], tensors)
    run = partial(forms.with_gradients, form.op(name))
    found, _ = run_sharded(mesh, list(specs), run, *tensors)
    forms.assert_equal(found, form.exact_with_gradients(name, *tensors))
