"""Sizes and pads without computing: `resolve`, and that each Backward op undoes its forward op."""

import random

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxconv
from jaxconv import resolve
from tests.support import calls, small
from tests.support.calls import ATTRIBUTES, COARSE, KERNEL

#: With a row that no window reads.
FINE = (2, 8, 6, 4)
CALLS = {
    op: {name: FINE if shape == calls.FINE else shape for name, shape in shapes.items()}
    for op, shapes in calls.VALID.items()
}


@pytest.mark.parametrize("op", CALLS)
def test_the_fields(op):
    more = {"output_padding": (1, 0)} if op == "conv_transpose" else {}
    found = resolve(op, **CALLS[op], **ATTRIBUTES, **more)
    transposed = op.startswith("conv_transpose")
    assert found.op == op
    assert found.src_shape == (COARSE if transposed else FINE)
    assert found.weights_shape == KERNEL
    assert found.dst_shape == (FINE if transposed else COARSE)
    assert (found.strides, found.dilations, found.groups) == ((2, 1), (1, 2), 2)
    assert (found.pads_begin, found.pads_end) == ((0, 0), (0, 0))
    assert found.output_padding == (1, 0)  # of a convolution: what its window leaves over
    assert not found.groups_on_fine


@pytest.mark.parametrize("op", CALLS)
def test_the_forms_of_op_and_tensors(op):
    expected = resolve(op, **CALLS[op], **ATTRIBUTES)
    first, second, *rest = CALLS[op].values()
    for form in (
        list, np.zeros, jnp.zeros, lambda shape: jax.ShapeDtypeStruct(shape, jnp.int32),
        lambda shape: tuple(map(np.int64, shape)),
    ):  # fmt: skip
        found = resolve(getattr(jaxconv, op), form(first), form(second), *rest, **ATTRIBUTES)
        assert found == expected
        assert all(type(n) is int for n in found.src_shape + found.dst_shape)
    of_numpy = {n: np.array(x) for n, x in CALLS[op].items() if n not in calls.TENSORS}
    assert resolve(op, **CALLS[op] | of_numpy, **ATTRIBUTES) == expected


def test_resolve_while_traced():
    def body(src, weights):
        found = resolve("convolution", src, weights, **ATTRIBUTES)
        return jnp.zeros(found.dst_shape)

    jaxpr = jax.make_jaxpr(jax.vmap(body))(np.zeros((5, *FINE)), np.zeros((5, *KERNEL)))
    assert jaxpr.out_avals[0].shape == (5, *COARSE)


def test_what_no_size_depends_on_is_ignored():
    expected = resolve("convolution", FINE, KERNEL, **ATTRIBUTES)
    numerics = {"precision": "high", "preferred_element_type": "float64", "out_sharding": None}
    assert resolve("convolution", FINE, KERNEL, (6,), **ATTRIBUTES, **numerics) == expected


def test_the_resolved_is_frozen_and_hashable():
    found = resolve("convolution", FINE, KERNEL, **ATTRIBUTES)
    assert len({found, resolve("convolution", FINE, KERNEL, **ATTRIBUTES)}) == 1
    with pytest.raises(AttributeError):
        found.groups = 1


def convolution(src, weights):
    """Of the right name, and not ours."""


NAMES = (
    "convolution, convolution_backward_data, convolution_backward_weights, conv_transpose, "
    "conv_transpose_backward_data or conv_transpose_backward_weights"
)


@pytest.mark.parametrize(
    ("op", "got"),
    [
        ("Convolution", "'Convolution' (str)"), ("onednn", "'onednn' (str)"), (None, "None"),
        (3, "3 (int)"), (["convolution"], "['convolution'] (list)"), (np.convolve, "<function con"),
        (convolution, "<function con"),
    ],
)  # fmt: skip
def test_op_must_be_one_of_six(op, got):
    with pytest.raises(ValueError, match=r"^resolve: ") as caught:
        resolve(op, FINE, KERNEL)
    expected = f"resolve: `op` must be {NAMES}, as a function or its name; got {got}"
    assert str(caught.value).startswith(expected)


@pytest.mark.parametrize(
    ("arguments", "attributes", "exception", "text"),
    [
        ((FINE,), {}, TypeError, "missing a required argument: 'weights'"),
        ((FINE, KERNEL), {"stride": 2}, TypeError, "got an unexpected keyword argument 'stride'"),
        ((FINE, 3), {}, TypeError, "`weights` must be an array or its shape; got 3 (int)"),
        ((None, KERNEL), {}, TypeError, "`src` must be an array or its shape; got None"),
        (("XIO", KERNEL), {}, TypeError, "`src` must be an array or its shape; got 'XIO' (str)"),
        (((2, 8.0, 6, 4), KERNEL), {}, TypeError,
         "`src` must be a sequence of 4 ints, or an array; got 8.0 (float)"),
        ((FINE, KERNEL), {"strides": True}, TypeError,
         "`strides` must be an int or a sequence of 2 ints, one per spatial axis; got True (bool)"),
        ((FINE, KERNEL), {"groups": 3}, ValueError,
         "`groups` must divide the src channels; got groups=3, channels=4 from src shape "
         "(2, 8, 6, 4) (NXC)"),
    ],
)  # fmt: skip
def test_errors_are_those_of_the_op(arguments, attributes, exception, text):
    with pytest.raises(exception) as caught:
        resolve("convolution", *arguments, **attributes)
    assert str(caught.value) == f"convolution: {text}"


@pytest.mark.parametrize("ask", [resolve, jaxconv.explain])
@pytest.mark.parametrize("array", [np.array, jnp.array])
def test_an_array_stands_for_itself(ask, array):
    with pytest.raises(ValueError, match="spatial axis") as caught:
        ask("convolution", array(FINE), array(KERNEL))
    assert str(caught.value) == (
        "convolution: `src` must have a batch axis, a channel axis and at least one spatial axis; "
        "got shape (4,). An array stands for itself: pass a shape as a tuple"
    )
    with pytest.raises(ValueError, match="as many axes") as caught:
        ask("convolution", FINE, array(KERNEL))
    assert str(caught.value) == (
        "convolution: `weights` must have as many axes as `src`; got shapes (4,) and (2, 8, 6, 4). "
        "An array stands for itself: pass a shape as a tuple"
    )
    with pytest.raises(ValueError, match=r"got shape \(2,\)$"):  # too short to be one
        ask("convolution", array((2, 3)), KERNEL)


def test_same_pads_that_reach_dst_shape_in_a_backward_op_with_output_padding():
    found = resolve(
        "convolution_backward_data",
        (1, 3, 3), (5, 2, 3), (1, 6, 2),
        strides=2, output_padding=1, auto_pad="same_lower",
    )  # fmt: skip
    assert (found.pads_begin, found.pads_end, found.output_padding) == ((2,), (2,), (1,))


def test_both_readings_of_transposed_weights():
    """Six output channels in two groups: three on axis O, or all on O and half the input on I."""
    for weights, on_fine in [((5, 3, 4), False), ((5, 6, 2), True)]:
        found = resolve("conv_transpose", (1, 7, 4), weights, groups=2)
        assert (found.dst_shape, found.groups_on_fine) == ((1, 11, 6), on_fine)
        found = resolve("conv_transpose_backward_data", (1, 11, 6), weights, groups=2)
        assert (found.src_shape, found.groups_on_fine) == ((1, 7, 4), on_fine)
        found = resolve("conv_transpose_backward_weights", (1, 7, 4), (1, 11, 6), weights, groups=2)
        assert (found.weights_shape, found.groups_on_fine) == (weights, on_fine)


def line(extent):
    return (2, extent, 3)


def attempt(op, *shapes, **attributes):
    """What `op` resolves to; None if it refuses."""
    try:
        return resolve(op, *shapes, **attributes)
    except ValueError:
        return None


MODES = ("none", "none", "valid", "same_upper", "same_lower")


def swept(count):
    """Kernels, extents and attributes, of which `valid` may fit nothing, and a random choice."""
    rng = random.Random(20240817)
    for form in small.draw(20240817, count, ranks=(1,)):
        axis = form.attributes | {"groups": 1, "auto_pad": rng.choice(MODES)}
        yield (*form.kernel, 3, 3), *form.fine, axis, rng


def test_the_backward_ops_of_convolution_accept_what_it_gives_and_nothing_else():
    fitted = 0
    for kernel, extent, axis, rng in swept(600):
        forward = attempt("convolution", line(extent), kernel, **axis)
        if forward is None:
            continue
        fitted += 1
        dst = forward.dst_shape
        data = resolve("convolution_backward_data", dst, kernel, line(extent), **axis)
        weights = resolve("convolution_backward_weights", line(extent), dst, kernel, **axis)
        for backward in (data, weights):
            assert backward.geometry == forward.geometry
            assert backward.pads_begin == forward.pads_begin
            assert backward.pads_end == forward.pads_end
            assert backward.output_padding == forward.output_padding

        other = extent + rng.choice((-3, -2, -1, 1, 2, 3))
        if other >= 1:
            there = attempt("convolution", line(other), kernel, **axis)
            same = there is not None and there.dst_shape == dst
            found = attempt("convolution_backward_data", dst, kernel, line(other), **axis)
            assert (found is not None) == same
            found = attempt("convolution_backward_weights", line(other), dst, kernel, **axis)
            assert (found is not None) == same
    assert 400 < fitted < 600


def test_the_backward_ops_of_conv_transpose_accept_what_it_gives_and_nothing_else():
    fitted = 0
    for kernel, extent, axis, rng in swept(600):
        extra = rng.choice((0, 0, 1, 2, 3, 5))
        [stride] = axis["strides"]
        forward = attempt("conv_transpose", line(extent), kernel, output_padding=extra, **axis)
        if forward is None:
            continue
        fitted += 1
        assert forward.output_padding == (extra,)
        dst = forward.dst_shape
        for given in {extra, 0}:
            weights = resolve(
                "conv_transpose_backward_weights",
                line(extent), dst, kernel, output_padding=given, **axis,
            )  # fmt: skip
            assert weights.geometry == forward.geometry
            assert weights.output_padding == (extra,)
        data = resolve("conv_transpose_backward_data", dst, kernel, output_padding=extra, **axis)
        remainder = resolve("conv_transpose_backward_data", dst, kernel, **axis)
        # Left out, output padding is less than a stride: more of it is more src.
        assert remainder.src_shape == line(extent + extra // stride)
        assert remainder.output_padding == (extra % stride,)
        if extra:
            assert data.geometry == forward.geometry
        if not axis["auto_pad"].startswith("same"):
            asked = resolve("conv_transpose", line(extent), kernel, dst_shape=dst, **axis)
            assert asked.geometry == forward.geometry
            assert asked.output_padding == (extra,)

        other = dst[1] + rng.choice((-3, -2, -1, 1, 2, 3))
        if other >= 1:
            found = attempt(
                "conv_transpose_backward_weights",
                line(extent), line(other), kernel, output_padding=extra, **axis,
            )  # fmt: skip
            implied = extra + other - dst[1]
            assert (found is not None) == (implied >= 0 if extra == 0 else implied == extra)
            found = attempt(
                "conv_transpose_backward_data",
                line(other), kernel, output_padding=extra, **axis,
            )  # fmt: skip
            steps, rest = divmod(other - dst[1], stride)
            fits = extent + steps >= 1 and (rest == 0 or extra == 0)
            assert (found is not None) == fits
            if found:
                assert found.src_shape == line(extent + steps)
    assert 400 < fitted < 600


def test_the_resolved_pads_spell_the_same_operation():
    """With explicit pads and the output padding, whatever mode or dst_shape they came from."""
    fitted = 0
    for kernel, extent, axis, rng in swept(500):
        plain = {"strides": axis["strides"], "dilations": axis["dilations"]}
        shape = line(rng.randint(1, 30)) if rng.random() < 0.7 else None
        found = attempt("conv_transpose", line(extent), kernel, dst_shape=shape, **axis)
        if found is not None:
            fitted += 1
            spelled = plain | {"pads_begin": found.pads_begin, "pads_end": found.pads_end}
            again = resolve(
                "conv_transpose",
                line(extent), kernel, output_padding=found.output_padding, **spelled,
            )  # fmt: skip
            assert again.geometry == found.geometry
        found = attempt("convolution", line(extent), kernel, **axis)
        if found is not None:
            fitted += 1
            spelled = plain | {"pads_begin": found.pads_begin, "pads_end": found.pads_end}
            assert resolve("convolution", line(extent), kernel, **spelled) == found
    assert fitted > 590
