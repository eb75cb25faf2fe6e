"""What is lowered for GPU and TPU, looked at without one; and the GPU's forms computed on CPU.

`KINDS` says what XLA:GPU makes of each contraction of each class of layers. `stablehlo.py` has
the rules by which it is recognised.
"""

from dataclasses import dataclass, replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax
from jax.sharding import Mesh, NamedSharding, PartitionSpec

import jaxconv
from jaxconv._base.geometry import Axis
from jaxconv._lowering.forms import cudnn
from tests.support import exact, oracle
from tests.support.forms import CHANNELS_FIRST, ROLES, Form, integers, operands
from tests.support.grid import CASES
from tests.support.pretend import pretend
from tests.support.programs import collectives
from tests.support.stablehlo import Match, convolutions, match

pytestmark = pytest.mark.usefixtures("however_little")

BF16, F16, F32, F64 = jnp.bfloat16, np.float16, np.float32, np.float64

# What is lowered.


@dataclass(frozen=True)
class Lowered(Form):
    """A form in a type, by the transposed operations: one for each slot that is filled."""

    dtype: object = F32

    def filling(self, slot):
        """The operation that fills a slot, as a function of arrays in its order."""
        return self.op(OPERATIONS[slot])

    def types(self, slot):
        """The types of its two arrays."""
        operands = ROLES[OPERATIONS[slot]][:2]
        return [jax.ShapeDtypeStruct(self.shapes[s], self.dtype) for s in operands]

    def lowered(self, slot, platform):
        """The text of an operation for a platform that need not be here."""
        traced = jax.jit(self.filling(slot)).trace(*self.types(slot))
        text = traced.lower(lowering_platforms=(platform,)).as_text()
        assert "inlineable" not in text  # XLA may fuse what it likes
        return text


OPERATIONS = {
    "coarse": "conv_transpose_backward_data",
    "fine": "conv_transpose",
    "kernel": "conv_transpose_backward_weights",
}
PLAIN = Lowered((9, 7), (3, 4), (1, 1), (1, 1), (1, 2), (1, 2), (4, 6), batch=5)
STRIDED = replace(PLAIN, fine=(18, 21), strides=(2, 3))
DILATED = replace(PLAIN, fine=(9, 9), dilations=(2, 3), pads_begin=(2, 4), pads_end=(2, 4))
ONE_D = Lowered((10,), (4,), (1,), (1,), (1,), (1,), (4, 6), batch=5)
THREE_D = Lowered(
    (18, 8, 6), (2, 3, 4), (2, 1, 1), (1, 1, 1), (0, 1, 2), (0, 1, 2), (4, 6), batch=5
)
FOUR_D = Lowered(
    (10, 15, 6, 5), (2, 3, 2, 4), (1, 2, 1, 1), (1,) * 4, (0, 1, 1, 2), (0, 1, 1, 2), (4, 6),
    batch=5,
)  # fmt: skip
GROUPS = {"channels": (4, 6), "groups": 2}
DEPTHWISE = {"channels": (3, 6), "groups": 3}

FORWARD, DATA, FILTER = Match("forward"), Match("backward_data"), Match("backward_filter")
CROPPED = Match("backward_data", ("result",))
PADDED = Match("backward_filter", ("lhs",))
WRITTEN, WRITTEN_BOTH = Match("forward", ("lhs",)), Match("forward", ("lhs", "rhs"))
NONE = Match("none")

# By contraction, the convolutions that there are.
KINDS = {
    "dense": (PLAIN, [FORWARD], [DATA], [FILTER]),
    "strided": (STRIDED, [FORWARD], [DATA], [FILTER]),
    "stride beyond the kernel": (
        replace(STRIDED, fine=(34, 35), strides=(4, 5)), [FORWARD], [DATA], [FILTER],
    ),
    "one tap": (
        replace(PLAIN, kernel=(1, 1), pads_begin=(0, 0), pads_end=(0, 0)),
        [FORWARD], [DATA], [FILTER],
    ),
    "one tap, strided": (
        replace(STRIDED, fine=(17, 22), kernel=(1, 1), pads_begin=(0, 0), pads_end=(0, 0)),
        [FORWARD], [DATA], [FILTER],
    ),
    # Two convolutions of XLA's have no dilation: the data gradient is a forward convolution by
    # the reversed kernel, the weights gradient one whose kernel is the coarse tensor.
    "dilated": (DILATED, [FORWARD], [FORWARD], [FORWARD]),
    "dilated, one tap on that axis": (
        replace(PLAIN, kernel=(3, 1), dilations=(1, 2), pads_begin=(1, 0), pads_end=(1, 0)),
        [FORWARD], [DATA], [FILTER],
    ),
    "dilated and strided": (
        replace(DILATED, fine=(17, 9), strides=(2, 1)), [FORWARD], [FORWARD], [FORWARD],
    ),
    "dilated and strided, coprime": (
        replace(
            DILATED, fine=(9, 16), dilations=(1, 3), strides=(1, 2), pads_begin=(1, 4),
            pads_end=(1, 4),
        ),
        [FORWARD], [WRITTEN_BOTH], [FORWARD],
    ),
    # Nor has the data gradient groups: strided, XLA writes out the zeros between pixels.
    "grouped": (replace(PLAIN, **GROUPS), [FORWARD], [FORWARD], [FILTER]),
    "grouped, strided": (replace(STRIDED, **GROUPS), [FORWARD], [WRITTEN], [FILTER]),
    "grouped, dilated": (replace(DILATED, **GROUPS), [FORWARD], [FORWARD], [WRITTEN]),
    "depthwise": (replace(PLAIN, **DEPTHWISE), [FORWARD], [FORWARD], [FILTER]),
    "depthwise, strided": (replace(STRIDED, **DEPTHWISE), [FORWARD], [WRITTEN], [FILTER]),
    # One residue of a stride, or several that are alike, is one convolution without zeros.
    "grouped, strided evenly": (
        replace(STRIDED, fine=(18, 24), kernel=(2, 3), **GROUPS), [FORWARD], [FORWARD], [FILTER],
    ),
    # Padding that is not the same at both ends stays in cuDNN where it is forward.
    "uneven": (replace(PLAIN, pads_end=(2, 1)), [FORWARD], [CROPPED], [PADDED]),
    "uneven, strided": (
        replace(STRIDED, fine=(18, 22), pads_begin=(0, 1)),
        [FORWARD], [CROPPED], [PADDED],
    ),
    "uneven within a stride": (
        replace(STRIDED, fine=(18, 22), pads_end=(0, 1)), [FORWARD], [DATA], [FILTER],
    ),
    "uneven, dilated": (replace(DILATED, pads_begin=(3, 4)), [FORWARD], [FORWARD], [WRITTEN]),
    "causal": (
        replace(ONE_D, fine=(30,), dilations=(8,), pads_begin=(24,), pads_end=(0,)),
        [FORWARD], [FORWARD], [WRITTEN],
    ),
    "uneven, grouped": (replace(PLAIN, pads_end=(2, 1), **GROUPS), [FORWARD], [FORWARD], [PADDED]),
    "pads beyond the kernel": (
        replace(PLAIN, pads_begin=(4, 2), pads_end=(3, 5)), [FORWARD], [CROPPED], [PADDED],
    ),
    "pads beyond the kernel, dilated": (
        replace(DILATED, fine=(14, 8), pads_begin=(5, 4), pads_end=(7, 4)),
        [FORWARD], [FORWARD], [FORWARD],
    ),
    # What no window reads is cut off, which leaves a choice of padding as wide as the stride.
    "negative": (replace(PLAIN, fine=(12, 7), pads_end=(-2, 2)), [FORWARD], [CROPPED], [PADDED]),
    "negative, strided": (
        replace(STRIDED, fine=(22, 25), pads_end=(-3, -2)), [FORWARD], [CROPPED], [PADDED],
    ),
    "negative, grouped": (
        replace(PLAIN, fine=(12, 7), pads_end=(-2, 2), **GROUPS), [FORWARD], [FORWARD], [PADDED],
    ),
    "1-D": (ONE_D, [FORWARD], [DATA], [FILTER]),
    "1-D, strided": (replace(ONE_D, fine=(26,), strides=(3,)), [FORWARD], [DATA], [FILTER]),
    "1-D bf16": (replace(ONE_D, dtype=BF16), [FORWARD], [DATA], [FILTER]),
    "1-D bf16, strided": (
        replace(ONE_D, fine=(26,), strides=(3,), dtype=BF16), [FORWARD], [DATA], [FILTER],
    ),
    "1-D bf16, strided and dilated": (
        replace(ONE_D, fine=(21,), strides=(2,), dilations=(2,), dtype=BF16),
        [FORWARD], [FORWARD], [FORWARD],
    ),
    "3-D": (THREE_D, [FORWARD], [DATA], [FILTER]),
    "3-D, depthwise": (
        replace(THREE_D, **DEPTHWISE), [FORWARD], [FORWARD], [FILTER],
    ),
    # In 4-D, one convolution a tap of the first axis; the data gradient by phases, then taps.
    "4-D": (FOUR_D, [FORWARD] * 2, [FORWARD] * 4, [FILTER] * 2),
    "bf16": (replace(STRIDED, dtype=BF16), [FORWARD], [DATA], [FILTER]),
    "f16": (replace(STRIDED, dtype=F16), [FORWARD], [DATA], [FILTER]),
    "f64": (replace(STRIDED, dtype=F64), [FORWARD], [DATA], [FILTER]),
    "channels-first": (
        replace(STRIDED, formats=CHANNELS_FIRST), [FORWARD], [DATA], [FILTER],
    ),
    "channels-first, grouped": (
        replace(STRIDED, formats=CHANNELS_FIRST, **GROUPS),
        [FORWARD], [WRITTEN], [FILTER],
    ),
}  # fmt: skip


SLOTS = ("coarse", "fine", "kernel")
each_slot = pytest.mark.parametrize("slot", SLOTS)


def became(text):
    """The kinds of all convolutions."""
    return [match(conv) for conv in convolutions(text)]


@each_slot
@pytest.mark.parametrize("name", KINDS)
def test_what_becomes_of_a_contraction(name, slot):
    layer, *kinds = KINDS[name]
    with jax.enable_x64(layer.dtype is F64):
        text = layer.lowered(slot, "cuda")
    assert became(text) == kinds[SLOTS.index(slot)]
    for conv in convolutions(text):
        assert len(set(conv.dtypes)) == 1


# The same of one plain convolution, as XLA would have it without any of this.
PLAINLY = {
    "dense": ([FORWARD], [DATA], [FILTER]),
    "strided": ([WRITTEN], [DATA], [FILTER]),
    "dilated": ([FORWARD], [FORWARD], [FORWARD]),
    "dilated and strided": ([FORWARD], [WRITTEN_BOTH], [FORWARD]),
    "grouped, strided": ([WRITTEN], [WRITTEN], [FILTER]),
    "uneven": ([WRITTEN], [CROPPED], [PADDED]),
    "uneven, dilated": ([WRITTEN_BOTH], [WRITTEN_BOTH], [WRITTEN]),
    "negative": ([WRITTEN], [WRITTEN], [WRITTEN]),
    "4-D": ([NONE], [NONE], [NONE]),
}  # fmt: skip


@each_slot
@pytest.mark.parametrize("name", PLAINLY)
def test_what_becomes_of_the_reference(name, slot):
    with jaxconv.forced("reference"):
        text = KINDS[name][0].lowered(slot, "cuda")
    assert became(text) == PLAINLY[name][SLOTS.index(slot)]


@each_slot
@pytest.mark.parametrize("name", ["strided", "grouped, strided", "dilated"])
def test_both_kinds_of_gpu_get_the_same(name, slot):
    layer = KINDS[name][0]
    assert layer.lowered(slot, "rocm") == layer.lowered(slot, "cuda")


LAYOUTS = [(data, weights) for data in ("NXC", "NCX") for weights in ("OIX", "XIO", "IOX", "XOI")]


@each_slot
@pytest.mark.parametrize("platform", ["cuda", "tpu"])
@pytest.mark.parametrize("formats", LAYOUTS)
def test_no_layout_needs_a_transpose(formats, platform, slot):
    """What dimension numbers can say stays unsaid in memory: one group, in any layout."""
    text = replace(STRIDED, formats=formats).lowered(slot, platform)
    operations = [word for word in text.split() if word.startswith("stablehlo.")]
    convolution = f"stablehlo.convolution({'%arg0' if slot == 'coarse' else ''}"
    assert len(operations) == (2 if slot == "fine" else 1), operations
    assert operations[-1].startswith(convolution)
    assert operations[0].startswith("stablehlo.reverse" if slot == "fine" else convolution)


@each_slot
@pytest.mark.parametrize(
    "name", [n for n in KINDS if KINDS[n][0].groups == 1 and "one tap, s" not in n]
)
def test_tpu_gets_one_convolution(name, slot):
    """Of the tensors at hand: the batch and the channels whole, the padding in the window."""
    layer = KINDS[name][0]
    with jax.enable_x64(layer.dtype is F64):
        text = layer.lowered(slot, "tpu")
    (conv,) = convolutions(text)
    lhs = {"coarse": "fine", "fine": "coarse", "kernel": "fine"}[slot]
    assert conv.lhs == layer.shapes[lhs]
    assert conv.out == layer.shapes[slot]
    assert "stablehlo.pad" not in text
    assert "stablehlo.slice" not in text
    batch = conv.lhs_axes.index("f" if slot == "kernel" else "b")
    assert conv.lhs[batch] == layer.batch
    if slot == "kernel":  # roles as in a convolution: the larger tensor is the lhs
        assert conv.rhs == layer.shapes["coarse"]
        assert conv.rhs_dilation == layer.strides


def test_a_bias_does_not_widen_a_16_bit_convolution():
    layer = replace(STRIDED, dtype=BF16)
    bias = jax.ShapeDtypeStruct((4,), BF16)
    traced = jax.jit(layer.filling("fine")).trace(*layer.types("fine"), bias)
    (conv,) = convolutions(traced.lower(lowering_platforms=("cuda",)).as_text())
    assert conv.dtypes == ("bf16", "bf16", "bf16")
    assert match(conv) == DATA


@each_slot
def test_16_bits_in_one_axis_are_two_axes(slot):
    (conv,) = convolutions(KINDS["1-D bf16, strided"][0].lowered(slot, "cuda"))
    assert conv.rank == 2
    (conv,) = convolutions(KINDS["1-D, strided"][0].lowered(slot, "cuda"))
    assert conv.rank == 1


def test_partial_sums_are_wide():
    """What is summed by several convolutions is rounded after."""
    for conv in convolutions(replace(FOUR_D, dtype=BF16).lowered("coarse", "cuda")):
        assert conv.dtypes == ("bf16", "bf16", "f32")


def test_both_families_are_one():
    """The transposed operation's adjoint is a convolution, and lowered as such."""
    types = STRIDED.types("coarse")
    traced = jax.jit(STRIDED.op("convolution")).trace(*types)
    text = traced.lower(lowering_platforms=("cuda",)).as_text()
    assert convolutions(text) == convolutions(STRIDED.lowered("coarse", "cuda"))


# How even padding is chosen.


@pytest.mark.parametrize(
    ("axis", "pad", "before", "after"),
    [
        # fine, kernel, coarse, stride, dilation, pad_low
        (Axis(9, 3, 9, 1, 1, 1), 1, 0, 0),
        (Axis(8, 3, 4, 2, 1, 1), 1, 0, 0),  # high 0, but 1 would do
        (Axis(8, 3, 4, 2, 1, 0), 2, 1, 0),  # high 1: a stride more at the low end
        (Axis(9, 4, 9, 1, 1, 1), 2, 1, 0),
        (Axis(9, 4, 9, 1, 1, 2), 2, 0, 1),
        (Axis(9, 3, 9, 1, 4, 8), 8, 0, 8),
        (Axis(9, 1, 3, 4, 1, 0), 0, 0, 0),  # high 0
        (Axis(10, 5, 6, 3, 1, 4), 7, 1, 0),
    ],
)
def test_even_padding(axis, pad, before, after):
    """Against the definition: the results asked for are those in the middle."""
    even = cudnn._EvenPadding.of(axis)
    assert even == (pad, before, after)
    reads = {axis.stride * q - axis.pad_low for q in range(axis.coarse)}
    count = (axis.fine + 2 * pad - axis.extent) // axis.stride + 1
    window = range(before, count - after)
    assert {axis.stride * q - pad for q in window} == reads


def test_uneven_padding_is_cropped_or_else_kept_apart():
    """A little more work is cut off again; a lot would be the costlier way."""
    little = replace(ONE_D, fine=(30,), dilations=(2,), pads_begin=(6,), pads_end=(0,))
    text = little.lowered("coarse", "cuda")
    assert "barrier" not in text
    (conv,) = convolutions(text)
    assert conv.padding == ((6, 6),)
    much = replace(little, dilations=(8,), pads_begin=(24,))
    text = much.lowered("coarse", "cuda")
    assert "barrier" in text
    (conv,) = convolutions(text)
    assert conv.padding == ((0, 0),)


# The matcher itself.


IMAGE, TAPS = (5, 9, 8, 4), (3, 4, 4, 6)
# A weights gradient: the channels of the fine tensor as batch, the batch as channels.
AS_FILTER = {"dimension_numbers": ("CHWN", "IHWO", "HWNC")}
FINE, COARSE = (5, 9, 8, 4), (5, 7, 6, 3)


def backwards(w):
    return lax.rev(w, (0, 1))


BY_HAND = {
    "as it is": (FORWARD, IMAGE, TAPS, "VALID", {}),
    "even": (FORWARD, IMAGE, TAPS, [(1, 1), (2, 2)], {"window_strides": (2, 3)}),
    "even, dilated": (FORWARD, IMAGE, TAPS, [(1, 1), (2, 2)], {"rhs_dilation": (2, 1)}),
    "uneven": (WRITTEN, IMAGE, TAPS, [(1, 1), (1, 2)], {}),
    "uneven, dilated": (
        WRITTEN_BOTH, IMAGE, TAPS, [(1, 1), (1, 2)], {"rhs_dilation": (2, 1)},
    ),
    "negative": (WRITTEN, IMAGE, TAPS, [(-1, -1), (2, 2)], {}),
    "spread out": (WRITTEN, IMAGE, TAPS, [(1, 1), (2, 2)], {"lhs_dilation": (2, 1)}),
    "groups": (FORWARD, IMAGE, (3, 4, 2, 6), "VALID", {"feature_group_count": 2}),
    "reversed": (DATA, IMAGE, TAPS, [(1, 1), (2, 2)], {"turn": backwards}),
    "reversed, spread out": (
        DATA, IMAGE, TAPS, [(1, 2), (2, 2)], {"turn": backwards, "lhs_dilation": (2, 3)},
    ),
    "reversed, uneven": (CROPPED, IMAGE, TAPS, [(1, 1), (1, 2)], {"turn": backwards}),
    "reversed, padded beyond the kernel": (
        FORWARD, IMAGE, TAPS, [(3, 3), (2, 2)], {"turn": backwards},
    ),
    "reversed, padded beyond it at the end": (
        WRITTEN, IMAGE, TAPS, [(1, 3), (2, 2)], {"turn": backwards},
    ),
    "reversed, and a stride more at the end": (
        DATA, IMAGE, TAPS, [(2, 3), (3, 5)],
        {"turn": backwards, "lhs_dilation": (2, 3)},
    ),
    "reversed along one axis": (
        FORWARD, IMAGE, TAPS, [(1, 1), (2, 2)], {"turn": lambda w: lax.rev(w, (0,))},
    ),
    "reversed along a channel axis too": (
        FORWARD, IMAGE, TAPS, [(1, 1), (2, 2)], {"turn": lambda w: lax.rev(w, (0, 1, 2))},
    ),
    "reversed, then transposed": (
        FORWARD, IMAGE, (3, 4, 6, 4), [(1, 1), (2, 2)],
        {"turn": lambda w: jnp.swapaxes(backwards(w), 2, 3)},
    ),
    "transposed, then reversed": (
        DATA, IMAGE, (3, 4, 6, 4), [(1, 1), (2, 2)],
        {"turn": lambda w: backwards(jnp.swapaxes(w, 2, 3))},
    ),
    "reversed, dilated": (
        FORWARD, IMAGE, TAPS, [(1, 1), (2, 2)], {"turn": backwards, "rhs_dilation": (2, 1)},
    ),
    "reversed, strided": (
        FORWARD, IMAGE, TAPS, [(1, 1), (2, 2)], {"turn": backwards, "window_strides": (2, 1)},
    ),
    "reversed, groups": (
        WRITTEN, IMAGE, (3, 4, 2, 6), [(1, 1), (2, 2)],
        {"turn": backwards, "feature_group_count": 2, "lhs_dilation": (1, 2)},
    ),
    "one tap, spread out": (
        DATA, IMAGE, (1, 1, 4, 6), [(0, 0), (0, 0)], {"lhs_dilation": (2, 1)},
    ),
    "one tap": (FORWARD, IMAGE, (1, 1, 4, 6), "VALID", {}),
    "filter": (FILTER, FINE, COARSE, "VALID", AS_FILTER),
    "filter, strided": (
        FILTER, FINE, (5, 4, 3, 3), [(0, 0), (1, 1)], AS_FILTER | {"rhs_dilation": (2, 3)},
    ),
    "filter, uneven": (PADDED, FINE, COARSE, [(0, 1), (0, 0)], AS_FILTER),
    "filter, uneven within a stride": (
        FILTER, FINE, (5, 4, 3, 3), [(0, 0), (1, 0)], AS_FILTER | {"rhs_dilation": (2, 3)},
    ),
    "filter, negative": (
        WRITTEN, FINE, (5, 6, 5, 3), [(-1, 0), (0, 0)], AS_FILTER,
    ),
    "filter, dilated": (
        FORWARD, FINE, (5, 6, 5, 3), "VALID", AS_FILTER | {"window_strides": (2, 1)},
    ),
    "filter, of short tensors": (FORWARD, FINE, (5, 3, 3, 3), "VALID", AS_FILTER),
    "filter, of short tensors, strided": (
        FORWARD, FINE, (5, 3, 3, 3), "VALID", AS_FILTER | {"rhs_dilation": (2, 1)},
    ),
    "filter, of a tensor short along one axis": (FORWARD, FINE, (5, 7, 3, 3), "VALID", AS_FILTER),
    "filter, roles swapped": (
        WRITTEN, COARSE, FINE, [(9, 9), (9, 9)], AS_FILTER | {"lhs_dilation": (2, 2)},
    ),
    "filter, groups": (
        FILTER, FINE, (5, 7, 6, 6), "VALID", AS_FILTER | {"batch_group_count": 2},
    ),
    "filter, groups, short": (
        WRITTEN, FINE, (5, 3, 3, 6), "VALID", AS_FILTER | {"batch_group_count": 2},
    ),
    "filter, reshaped from 1-D": (
        FILTER, (5, 1, 8, 4), (5, 6, 3), "VALID",
        AS_FILTER | {"turn": lambda w: lax.reshape(w, (5, 1, 6, 3))},
    ),
    "filter, of one row": (FORWARD, (5, 1, 8, 4), (5, 1, 6, 3), "VALID", AS_FILTER),
    "empty": (NONE, (0, 9, 8, 4), TAPS, "VALID", {}),
    "4-D": (
        NONE, (5, 3, 3, 3, 3, 4), (2, 2, 2, 2, 4, 6), "VALID",
        {"dimension_numbers": ("NXYZWC", "XYZWIO", "NXYZWC"), "window_strides": (1,) * 4},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", BY_HAND)
def test_the_matcher(name):
    expected, lhs, rhs, padding, more = BY_HAND[name]
    more = {"dimension_numbers": ("NHWC", "HWIO", "NHWC"), "window_strides": (1, 1)} | more
    turn = more.pop("turn", lambda w: w)

    def conv(x, w):
        return lax.conv_general_dilated(x, turn(w), padding=padding, **more)

    types = [jax.ShapeDtypeStruct(shape, F32) for shape in (lhs, rhs)]
    (found,) = convolutions(jax.jit(conv).trace(*types).lower().as_text())
    assert match(found) == expected


def test_the_matcher_knows_what_lax_derives():
    """Of a convolution both gradients; of a transposed one, not that of the weights."""
    x, w = jnp.zeros(IMAGE), jnp.zeros(TAPS)

    def derived(**more):
        def gradients(x, w):
            conv = partial(
                lax.conv_general_dilated, padding=[(1, 1), (2, 2)],
                dimension_numbers=("NHWC", "HWIO", "NHWC"), **more,
            )  # fmt: skip
            out, vjp = jax.vjp(conv, x, w)
            return vjp(out)

        _, *found = convolutions(jax.jit(gradients).lower(x, w).as_text())
        return {match(conv) for conv in found}

    assert derived(window_strides=(2, 2)) == {DATA, FILTER}
    assert derived(window_strides=(1, 1), lhs_dilation=(2, 2)) == {FORWARD, WRITTEN}


def test_text_that_is_not_understood_is_an_error():
    text = PLAIN.lowered("coarse", "cuda")
    with pytest.raises(ValueError, match="unreadable"):
        convolutions(text.replace("= stablehlo", "= (stablehlo"))


# What the GPU's forms compute, on CPU.


@pytest.fixture
def on_gpu(monkeypatch):
    pretend(monkeypatch, "gpu")


@pytest.fixture
def on_gpus(monkeypatch):
    pretend(monkeypatch, "gpu", devices=8)


def each_case(cases, fast):
    """Parameters: cases by name, slow ones outside of `fast`."""
    return [
        pytest.param(case, id=case.name, marks=() if case in fast else pytest.mark.slow)
        for case in cases
    ]


@pytest.mark.parametrize("case", each_case(CASES, CASES[::24]))
def test_values_in_float32(on_gpu, case):
    arrays, expected = exact.exact_arrays(case, F32)
    result = case.bind(jaxconv)(*(array.astype(F32) for array in arrays))
    exact.demand_equal(result, oracle.round_to(expected, F32), case)


@pytest.mark.parametrize("data_format", ["NXC", "NCX"])
@pytest.mark.parametrize(("groups", "dilations"), [(3, 1), (1, (2, 3)), (3, (3, 1))])
def test_values_of_large_strides(on_gpu, groups, dilations, data_format):
    """Residues as channels."""
    src = integers((2, 3, 4, 6) if data_format == "NXC" else (2, 6, 3, 4), 0)
    weights = integers((7, 9, 6 // groups, 6), 1)
    attributes = {
        "strides": (5, 4), "dilations": dilations, "groups": groups, "pads_begin": (3, 0),
        "pads_end": (0, 2), "data_format": data_format,
    }  # fmt: skip
    text = jax.jit(partial(jaxconv.conv_transpose, **attributes)).lower(src, weights).as_text()
    assert text.count("stablehlo.convolution") <= 12  # of 20 residues
    got = jaxconv.conv_transpose(src, weights, **attributes)
    np.testing.assert_array_equal(got, oracle.conv_transpose(src, weights, **attributes))


UNBIASED = [case for case in CASES if not case.bias]


@pytest.mark.parametrize("case", each_case(UNBIASED, UNBIASED[::24]))
def test_values_in_16_bits_are_rounded_once(on_gpu, case):
    """Even in 4-D. (On CPU: here a 16-bit convolution is rounded once by itself.)"""
    arrays, expected = exact.exact_arrays(case, BF16)
    result = case.bind(jaxconv)(*(array.astype(BF16) for array in arrays))
    exact.demand_equal(result, oracle.round_to(expected, BF16), case)


@pytest.mark.parametrize("case", each_case([c for c in CASES if c.src_shape[0]], CASES[::60]))
def test_non_finite_values_stay_where_they_are_read(on_gpu, case):
    arrays = [array.astype(F32) for array in exact.exact_arrays(case, F32)[0]]
    op = jax.jit(case.bind(jaxconv))
    finite = np.asarray(op(*arrays))
    for poisoned, which, at in exact.poisonings(case, arrays):
        exact.demand_contained(case, which, at, np.asarray(op(*poisoned)), finite)


FAST = (
    "strided", "dilated", "dilated and strided, coprime", "grouped, strided", "depthwise",
    "uneven", "uneven, strided", "causal", "pads beyond the kernel, dilated", "negative, strided",
    "1-D bf16, strided", "1-D bf16, strided and dilated", "4-D", "f16", "f64",
    "channels-first, grouped",
)  # fmt: skip


@each_slot
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=() if n in FAST else pytest.mark.slow) for n in KINDS]
)
def test_values_of_each_class(on_gpu, name, slot):
    """Against the oracle, in the class's own type."""
    layer = KINDS[name][0]
    first, second, _ = operands(layer, OPERATIONS[slot], layer.dtype, limit=2)
    op = layer.filling(slot)
    with jax.enable_x64(layer.dtype is F64):
        got = op(first, second)
    expected = getattr(oracle, op.func.__name__)(first, second, **op.keywords)
    assert np.asarray(got).dtype == layer.dtype
    np.testing.assert_array_equal(got, oracle.round_to(expected, layer.dtype))


@each_slot
@pytest.mark.parametrize(
    "name",
    [
        "strided",
        "dilated and strided",
        "grouped, strided",
        "depthwise, strided",
        "channels-first, grouped",
    ],
)
def test_a_sharded_batch_stays_where_it_is(on_gpus, name, slot):
    """Of all collectives, the weights gradient needs its sum. And the values are the same."""
    layer = replace(KINDS[name][0], batch=8)
    mesh = Mesh(np.array(jax.devices()[:4]), ("batch",))
    name = OPERATIONS[slot]
    first, second = (
        jax.device_put(
            x, NamedSharding(mesh, PartitionSpec() if s == "kernel" else PartitionSpec("batch"))
        )
        for x, s in zip(operands(layer, name, limit=2), ROLES[name][:2], strict=False)
    )
    op = layer.filling(slot)
    compiled = jax.jit(lambda a, b: op(a, b)).lower(first, second).compile()
    assert collectives(compiled.as_text()) == ({"all-reduce": 1} if slot == "kernel" else {})
    expected = getattr(oracle, op.func.__name__)(first, second, **op.keywords)
    np.testing.assert_array_equal(compiled(first, second), expected)


def test_nothing_is_read(on_gpu):
    """A transposed convolution of which only the output padding is left."""
    src, weights = jnp.ones((2, 3, 1)), jnp.ones((4, 1, 1))
    op = partial(jaxconv.conv_transpose, pads_begin=6, output_padding=7)
    text = jax.jit(op).trace(src, weights).lower(lowering_platforms=("cuda",)).as_text()
    assert convolutions(text) == []
    assert not op(src, weights).any()
