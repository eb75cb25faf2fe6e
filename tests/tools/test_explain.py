"""What `explain` says: the form in use, why, and the costs."""

import re
from dataclasses import replace
from functools import partial

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

import jaxconv
from jaxconv import _lowering
from jaxconv._base.geometry import Axis
from jaxconv._tools import flops
from tests.support.forms import DENSE, GROUPED, OPS, each, operands


def forms(explanation):
    return [form for form, _ in explanation.steps]


def test_the_type_is_common_to_all_arrays():
    src, weights = jnp.ones((1, 4, 4, 2)), jnp.ones((3, 3, 2, 4), jnp.bfloat16)
    with pytest.raises(TypeError, match="same type"):
        jaxconv.explain("convolution", src, weights)
    with pytest.raises(TypeError, match="same type"):
        jaxconv.explain("convolution", src, weights.astype(jnp.float32), weights[0, 0, 0])


@each("form", {"dense": DENSE, "grouped": GROUPED})
@pytest.mark.parametrize("op", OPS)
def test_operations_are_those_of_a_sum_of_ones(op, form):
    """With all ones, each product adds 1 to the sum of all results."""
    a, b, _ = operands(form, op)
    function, attributes = form.op(op).func, form.op(op).keywords
    found = jaxconv.explain(function, a, b, **attributes)
    ones = function(jnp.ones(a.shape), jnp.ones(b.shape), **attributes)
    assert found.flops == 2 * int(ones.sum())
    assert found.bytes == 4 * (a.size + b.size + ones.size)
    assert found.resolved == jaxconv.resolve(function, a, b, **attributes)


def test_products_are_counted_without_a_loop():
    # A square of taps and places; one more place for each tap than the one before.
    assert flops._count_pairs(Axis(2**30, 2**29, 2**29 + 1, 1, 1, 0)) == 2**29 * (2**29 + 1)
    assert flops._count_hits(4, 7, 5, 2, (1, 1), 2, 3) == sum(
        2 * q + 3 * t - 1 in range(0, 9, 2) for q in range(7) for t in range(4)
    )
    assert flops._count_pairs(Axis(2**40, 2**40, 2**40, 1, 1, 0)) == 2**39 * (2**40 + 1)


def test_a_residual_keeps_its_type():
    src, weights = jnp.ones((1, 4, 4, 16), jnp.bfloat16), jnp.ones((3, 3, 16, 16), jnp.bfloat16)
    ask = partial(jaxconv.explain, "convolution", src, weights, residual=jnp.ones((1, 2, 2, 16)))
    assert ask(preferred_element_type="float32").resolved.dst_shape == (1, 2, 2, 16)
    with pytest.raises(TypeError, match="must have type bfloat16; got float32"):
        ask()


def test_the_type_is_that_of_the_arrays():
    src, weights = jnp.ones((2, 8, 8, 3), jnp.bfloat16), jnp.ones((3, 3, 3, 5), jnp.bfloat16)
    with jaxconv.forced("portable"):
        found = jaxconv.explain("convolution", src, weights)
        wider = jaxconv.explain("convolution", src, weights, dtype="f4")
    assert found.bytes == 2 * (src.size + weights.size + 2 * 6 * 6 * 5)
    assert forms(found) != forms(wider)


def test_temporary_memory_is_that_of_the_compiled_operation():
    src, weights = np.ones((2, 64, 64, 32), np.float32), np.ones((3, 3, 1, 32), np.float32)
    attributes = {"groups": 32, "pads_begin": 1, "pads_end": 1}
    with jaxconv.forced("portable"):
        found = jaxconv.explain("convolution", src, weights, **attributes)
        run = jax.jit(lambda x, w: jaxconv.convolution(x, w, **attributes))
        memory = run.lower(src, weights).compile().memory_analysis()
    assert found.temp_bytes == memory.temp_size_in_bytes > src.nbytes


def test_it_reads_well():
    text = str(jaxconv.explain("convolution", (2, 8, 8, 16), (1, 1, 16, 32)))
    first, step, *_, costs = text.splitlines()
    assert first == "convolution to (2, 8, 8, 32)"
    assert step.startswith("  onednn: ") or step.startswith("  dot: ")
    assert re.match(r"  0.1 MFLOP, 0.0 MiB in and out, temporary memory \d+\.\d MiB$", costs)


def test_the_second_reading_of_transposed_weights():
    """Groups on the I axis instead of the O axis: the same operation."""
    first = jaxconv.explain("conv_transpose", (2, 5, 5, 8), (3, 3, 6, 8), groups=2, strides=2)
    second = jaxconv.explain("conv_transpose", (2, 5, 5, 8), (3, 3, 12, 4), groups=2, strides=2)
    assert second.resolved.groups_on_fine > first.resolved.groups_on_fine
    assert (first.steps, first.counts) == (second.steps, second.counts)


@pytest.mark.parametrize(
    ("form", "steps"),
    [
        ("portable", [("phases", False, 1), ("multiply-adds", False, 4)]),
        ("reference", [("reference", True, 1)]),
        ("im2col", [("phases", False, 1), ("im2col", True, 4)]),
        ("phases", [("phases", True, 1), ("multiply-adds", False, 4)]),
    ],
)
def test_a_rewrite_names_what_it_hands_on_to_and_what_is_forced(form, steps):
    args = "convolution_backward_data", (2, 6, 6, 12), (3, 3, 1, 12), (2, 13, 13, 12)
    with jaxconv.forced(form):
        found = jaxconv.explain(*args, strides=2, groups=12)
    whys = [(name, why == "forced") for name, why in found.steps]
    assert [(*of, n) for of, n in zip(whys, found.counts, strict=True)] == steps


SRC, WEIGHTS = (2, 8, 8, 16), (1, 1, 16, 32)


@pytest.mark.parametrize(
    ("bias", "text"),
    [
        ((31,), "`bias` must have shape (32,), one entry for each dst channel; got shape (31,) for "
         "dst shape (2, 8, 8, 32)"),
        (np.ones((32, 1), np.float32), "`bias` must have shape (32,), one entry for each dst "
         "channel; got shape (32, 1) for dst shape (2, 8, 8, 32)"),
        (3, "`bias` must be an array or its shape; got 3 (int)"),
    ],
)  # fmt: skip
def test_a_bias_is_checked(bias, text):
    for given in ({"bias": bias}, {}):
        with pytest.raises((TypeError, ValueError)) as caught:
            jaxconv.explain("convolution", SRC, WEIGHTS, *[] if given else [bias], **given)
        assert str(caught.value) == f"convolution: {text}"


@pytest.mark.parametrize("dtype", [int, "wide", 3, jax.random.key(0).dtype])
def test_other_types_are_refused(dtype):
    with pytest.raises(TypeError) as caught:
        jaxconv.explain("convolution", SRC, WEIGHTS, dtype=dtype)
    expected = "explain: `dtype` must be bfloat16, float16, float32 or float64; got "
    assert str(caught.value).startswith(expected)


def test_a_symbolic_batch_is_refused():
    (batch,) = jax.export.symbolic_shape("b")
    with pytest.raises(ValueError, match="batch") as caught:
        jaxconv.explain("convolution", (batch, *SRC[1:]), WEIGHTS)
    assert str(caught.value) == (
        "explain: `src` must have a batch of known size, to be compiled; got shape (b, 8, 8, 16)"
    )


def test_what_is_no_operation_is_said_of_explain():
    with pytest.raises(ValueError, match=r"^explain: `op` must be convolution, .*; got 'conv' "):
        jaxconv.explain("conv", SRC, WEIGHTS)


def test_attributes_of_a_function_are_not_traced():
    report = jaxconv.explain(
        lambda x, dtype, **pads: jaxconv.torch.conv1d(x, np.ones((3, 2, 3), dtype), **pads),
        np.ones((1, 2, 9), "f"), dtype="f", padding=1,
    )  # fmt: skip
    assert [row.result for row in report.rows] == ["float32[1,3,9]"]
    assert str(report).startswith("As if jaxconv.install() held, which it does not: Conv")
    assert "XLA" not in str(report).split("\n\n")[0]  # nothing was compiled
    swish = partial(jaxconv.convolution, weights=np.ones((3, 16, 16), "f"), activation="silu")
    with jaxconv.installed():
        report = jaxconv.explain(jax.grad(lambda x: swish(x).sum()), np.ones((9, 99, 16), "f"))
    assert repr(report).startswith("Convolutions in")
    assert "; with what follows the sum" not in str(report)  # the derivative needs the sum


def test_it_says_why_onednn_is_not_used():
    found = jaxconv.explain("convolution", SRC, WEIGHTS)
    assert found.no_onednn == _lowering.why_unavailable()
    lines = str(replace(found, no_onednn="the reason")).splitlines()
    assert lines[-2] == "  without oneDNN: the reason"
    rows = jax.sharding.NamedSharding(jax.sharding.Mesh(np.array(jax.devices()), "d"), jax.P("d"))
    split = jax.device_put(np.ones((8, *SRC[1:]), "f"), rows)
    assert "split over devices" in str(jaxconv.explain("convolution", split, (3, 3, 16, 8)))
