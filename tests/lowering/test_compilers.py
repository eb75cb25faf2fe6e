"""What XLA's compilers for GPU and TPU make of the operations: without a device, and nothing runs.

`benchmarks/compilers.py` says what to install. The tests of a compiler that is missing are skipped.
"""

import re
from dataclasses import replace
from math import prod

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

import jaxconv
from benchmarks import compilers
from tests.support.classes import CLASSES, OPERATIONS, each_slot
from tests.support.compilers import (
    BF16,
    REQUIRED,
    TARGET,
    each_platform,
    facts,
    on_gpu,
    on_tpu,
    split_over_eight,
)
from tests.support.forms import CHANNELS_FIRST, ROLES, Form
from tests.support.lax_oracle import conv
from tests.support.programs import collectives

if not REQUIRED and not any(map(compilers.is_here, TARGET)):
    pytest.skip("XLA's compilers for GPU and TPU are missing", allow_module_level=True)


@pytest.fixture(autouse=True)
def as_users_compile(optimised_where_timed):
    """Programs are judged as optimised."""
    jax.config.update("jax_disable_most_optimizations", False)


#: By class, cuDNN's functions to coarse, to fine and to the kernel: F for forward, D and W for
#: backward data and filter.
CALLS = {
    "dense": ("F", "D", "F"), "strided": ("F", "D", "W"), "one tap, strided": ("F", "D", "W"),
    "dilated": ("F", "F", "F"), "dilated, one tap on that axis": ("F", "D", "W"),
    "dilated and strided": ("F", "F", "F"), "grouped": ("F", "F", "W"),
    "grouped, strided": ("F", "F", "W"), "grouped, strided evenly": ("F", "F", "W"),
    "depthwise, strided": ("F", "F", "W"), "uneven": ("F", "D", "F"),
    "uneven, dilated": ("F", "F", "F"), "causal": ("F", "F", "F"),
    "negative, strided": ("F", "D", "W"), "1-D bf16, strided and dilated": ("F", "D", "F"),
    "3-D, depthwise": ("F", "F", "W"), "4-D": ("FF", "FFFF", "WW"), "f64": ("F", "D", "W"),
    "channels-first, grouped": ("F", "F", "W"),
}  # fmt: skip
LETTERS = {
    "convForward": "F", "convBiasActivationForward": "F", "convBackwardInput": "D",
    "convBackwardFilter": "W",
}  # fmt: skip


@on_gpu
@each_slot
@pytest.mark.parametrize("name", CALLS)
def test_each_class_is_calls_of_cudnn(name, slot):
    of = CLASSES[name]
    with jax.enable_x64(of.dtype is np.float64):
        found = facts("cuda", of.filling(slot), *of.types(slot))
    called = re.findall(r'custom_call_target="__cudnn\$(\w+)"', found["text"])
    assert "".join(LETTERS[name] for name in called) == CALLS[name][[*OPERATIONS].index(slot)]
    assert found["naive"] == found["loops"] == found["dots"] == 0


UNEVEN = replace(CLASSES["uneven"], channels=(4, 24))


@on_gpu
@pytest.mark.parametrize(
    ("of", "slot", "most"),
    [
        (CLASSES["strided"], "coarse", 0.75),  # even padding
        (CLASSES["uneven, dilated"], "coarse", 0.75),  # padding apart from the convolution
        (CLASSES["uneven, dilated"], "fine", 0.75),  # by the reversed kernel
        (CLASSES["grouped, strided evenly"], "fine", 0.75),  # no zeros between pixels
        (CLASSES["3-D, depthwise"], "fine", 0.75),
        (CLASSES["dilated and strided"], "fine", 0.75),
        (CLASSES["dilated, one tap on that axis"], "kernel", 0.75),  # no dilation of one tap
        (UNEVEN, "coarse", 1),  # the smaller tensor is copied
    ],
)
def test_what_lax_writes_to_memory_stays_unwritten(of, slot, most):
    ours = facts("cuda", of.filling(slot), *of.types(slot))
    with jaxconv.forced("reference"):
        lax_s = facts("cuda", of.filling(slot), *of.types(slot))
    assert ours["temp_bytes"] <= most * lax_s["temp_bytes"]


@on_gpu
def test_a_bias_does_not_widen_a_16_bit_convolution():
    of = CLASSES["bf16"]
    bias = jax.ShapeDtypeStruct((4,), BF16)
    text = facts("cuda", of.filling("fine"), *of.types("fine"), bias)["text"]
    (line,) = [line for line in text.splitlines() if "__cudnn$conv" in line]
    assert " = (bf16[" in line
    assert "f32[" not in line.partition("custom_call_target")[0]


@on_gpu
@pytest.mark.parametrize("dtype", [jnp.float32, BF16, jnp.float16])
def test_bias_residual_and_relu_join_cudnns_call(dtype):
    src, weights, bias = ((8, 28, 28, 64), (3, 3, 64, 64), (64,))
    types = [jax.ShapeDtypeStruct(shape, dtype) for shape in (src, weights, bias, src)]

    def block(src, weights, bias, residual):
        more = {"residual": residual, "activation": "relu", "pads_begin": 1, "pads_end": 1}
        return jaxconv.convolution(src, weights, bias, **more)

    text = facts("cuda", block, *types)["text"]
    (line,) = [line for line in text.splitlines() if "__cudnn$conv" in line]
    assert "convBiasActivationForward" in line
    assert '"activation_mode":"kRelu"' in line


# TPU: a line of the table is worth its keep by the compiler's estimate.
PLANE = Form((28, 28), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), (64, 64), batch=8)
PATCHES = replace(
    PLANE, fine=(224, 224), kernel=(16, 16), strides=(16, 16), pads_begin=(0, 0), pads_end=(0, 0),
    channels=(3, 64),
)  # fmt: skip
POINT = {"kernel": (1, 1), "pads_begin": (0, 0), "pads_end": (0, 0), "channels": (64, 128)}

FEW_IMAGES = {"fine": (64, 64), "batch": 4, "channels": (32, 32)}

#: Estimated cycles over lax's, at most.
CYCLES = {
    "groups of 4, to coarse": (replace(PLANE, groups=16), "coarse", 0.67),
    "groups of 4, to fine": (replace(PLANE, groups=16), "fine", 0.67),
    "groups of 4, to the kernel": (replace(PLANE, groups=16), "kernel", 0.75),
    "patches": (PATCHES, "coarse", 0.67),
    "patches, to fine": (PATCHES, "fine", 0.67),
    "one tap": (replace(PLANE, **POINT, batch=2), "coarse", 0.67),
    "one tap, to fine": (replace(PLANE, **POINT, batch=2), "fine", 0.67),
    "few images": (replace(PLANE, **FEW_IMAGES), "coarse", 0.67),
    "few images, to fine": (replace(PLANE, **FEW_IMAGES), "fine", 0.67),
    "dense": (PLANE, "coarse", 1.02),
    "dense, to fine": (replace(PLANE, formats=CHANNELS_FIRST), "fine", 1.02),
    "dense, to the kernel": (PLANE, "kernel", 1.02),
    "depthwise": (replace(PLANE, groups=64), "fine", 1.02),
}


@on_tpu
@pytest.mark.parametrize("name", CYCLES)
def test_estimated_cycles(name):
    form, slot, most = CYCLES[name]
    op = form.op(OPERATIONS[slot])
    types = [jax.ShapeDtypeStruct(form.shapes[s], BF16) for s in ROLES[OPERATIONS[slot]][:2]]
    ours = facts("tpu", op, *types)
    with jaxconv.forced("reference"):
        lax_s = facts("tpu", op, *types)
    assert 0 < ours["cycles"] <= most * lax_s["cycles"]


@each_platform
def test_a_model_of_lax_gets_the_forms_by_install(platform):
    """Even padding on GPU, bundles on TPU."""
    mark = {"cuda": "__cudnn$conv", "tpu": " conditional("}[platform]

    def model(x, k):
        return conv(x, k, (2, 2), groups=8)

    types = [jax.ShapeDtypeStruct(s, BF16) for s in ((8, 28, 28, 32), (3, 3, 4, 32))]
    before = facts(platform, model, *types)
    jaxconv.install({"cuda": "gpu", "tpu": "tpu"}[platform])
    after = facts(platform, model, *types)
    jaxconv.uninstall()
    assert mark in after["text"]
    if platform == "cuda":
        assert after["temp_bytes"] < before["temp_bytes"]
    else:
        assert after["cycles"] < 0.67 * before["cycles"]


MANY = Form((16, 8), (3, 3), (1, 1), (1, 1), (1, 1), (1, 1), (32, 64), batch=8)
STRIDED = {"fine": (32, 16), "strides": (2, 2), "pads_end": (0, 0)}
GROUPED, DEPTHWISE = replace(MANY, groups=8), replace(MANY, channels=(32, 32), groups=32)
EIGHT = {
    "dense": MANY, "grouped": GROUPED, "depthwise": DEPTHWISE, "strided": replace(MANY, **STRIDED),
    "depthwise, strided": replace(DEPTHWISE, **STRIDED),
    "grouped, channels first": replace(GROUPED, formats=CHANNELS_FIRST),
}  # fmt: skip


def both_ways(op):
    """An operation's result and both of its gradients."""

    def run(a, b, t):
        out, pull = jax.vjp(op, a, b)
        return out, *pull(t)

    return run


SUM, ROWS = {"all-reduce"}, {"all-reduce", "collective-permute"}
TABLE = [
    ("dense", "batch", SUM), ("grouped", "batch", SUM), ("depthwise, strided", "batch", SUM),
    ("dense", "rows", ROWS), ("depthwise", "rows", ROWS), ("strided", "rows", ROWS),
    ("grouped, channels first", "groups", set()), ("depthwise", "groups", set()),
    ("dense", "channels of the coarse tensor", SUM),
    ("strided", "channels of the fine tensor", SUM),
]  # fmt: skip


@each_platform
@pytest.mark.parametrize(("name", "split", "expected"), TABLE)
def test_what_is_communicated(platform, name, split, expected):
    """Forward and both gradients together: one sum at most, and rows of neighbours."""
    form = EIGHT[name]
    text = split_over_eight(platform, form, split, both_ways(form.op("convolution"))).as_text()
    found = collectives(text)
    assert set(found) == expected
    assert found.get("all-reduce", 0) <= 1
    rows = max(prod(form.shapes[s]) // form.fine[0] * 2 for s in ("fine", "coarse"))
    sent = re.findall(r"\w+\[([\d,]+)\]\S* collective-permute(?:-start|-done)?\(", text)
    assert all(prod(map(int, shape.split(","))) <= rows for shape in sent)


@each_platform
@pytest.mark.parametrize(("name", "split"), [("dense", "batch"), ("depthwise", "rows")])
def test_explicit_axes_communicate_the_same(platform, name, split):
    op = both_ways(EIGHT[name].op("convolution"))
    automatic, explicit = (
        collectives(split_over_eight(platform, EIGHT[name], split, op, kind).as_text())
        for kind in (AxisType.Auto, AxisType.Explicit)
    )
    assert automatic == explicit


@each_platform
def test_shard_map_has_the_forms_of_one_device(platform):
    """Groups are not dots for each tap (GPU), and are bundled (TPU)."""
    op = GROUPED.op("convolution")
    specs = {"in_specs": (P("d"), P()), "out_specs": P("d")}
    slots = ("fine", "kernel")
    local, split = (
        split_over_eight(platform, GROUPED, "batch", of, more=slots).as_text()
        for of in (jax.shard_map(lambda x, k: op(x, k), **specs), op)
    )
    assert not collectives(local)
    mark = {"cuda": "__cudnn$conv", "tpu": " conditional("}[platform]
    assert mark in local
    assert mark not in split


# What the page on sharding says of today's compilers. If one of these fails, the page is too dark.
@on_gpu
def test_lax_gathers_the_batch_of_a_grouped_convolution():
    """So the GPU's table has a line for it."""

    def convolution(x, k):
        return conv(x, k, (1, 1), groups=8)

    slots = ("fine", "kernel")
    text = split_over_eight("cuda", GROUPED, "batch", convolution, more=slots).as_text()
    assert set(collectives(text)) == {"all-gather"}
    ours = split_over_eight("cuda", GROUPED, "batch", GROUPED.op("convolution"), more=slots)
    assert not collectives(ours.as_text())


@on_tpu
def test_rows_of_a_grouped_weights_gradient_are_gathered():
    op = GROUPED.op("convolution_backward_weights")
    text = split_over_eight("tpu", GROUPED, "rows", op, more=("fine", "coarse")).as_text()
    assert set(collectives(text)) == {"all-gather"}


@each_platform
@pytest.mark.parametrize(
    ("groups", "fine", "kernel"), [(1, 45, (2, 3)), (1, 5, (1, 1)), (3, 1, (2, 2)), (2, 40, (3, 3))]
)
def test_sums_of_8_bit_integers_compile(platform, groups, fine, kernel):
    """ConvInteger with zero points: XLA:GPU refuses some convolutions of integers."""

    def node(x, w, x_zero, w_zero):
        attributes = {"group": groups, "strides": [2, 1], "pads": [1, 2, 0, 1]}
        return jaxconv.onnx.apply("ConvInteger", attributes, [x, w, x_zero, w_zero])

    shapes = (2, groups * fine, 5, 4), (2 * groups, fine, *kernel), (), (2 * groups,)
    types = [
        jax.ShapeDtypeStruct(shape, dtype)
        for shape, dtype in zip(shapes, (np.uint8, np.int8) * 2, strict=True)
    ]
    text = facts(platform, node, *types)["text"]
    assert "s32[" in text
    assert "__cudnn$conv" not in text
