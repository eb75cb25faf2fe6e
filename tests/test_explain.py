"""What `explain` says: the spelling in use, why, and the costs."""

from dataclasses import replace

import jax
import jax.export
import jax.numpy as jnp
import numpy as np
import pytest

import jaxconv
from jaxconv._lowering import problem
from tests.support.forms import DENSE, OPS, operands


def spellings(explanation):
    return [spelling for spelling, _ in explanation.steps]


@pytest.mark.parametrize(
    ("shapes", "attributes", "expected"),
    [
        (((2, 8, 8, 16), (1, 1, 16, 32)), {}, ["matmul"]),
        (((2, 8, 8, 6), (3, 3, 1, 6)), {"groups": 6}, ["taps"]),
        (((2, 8, 8, 64), (3, 3, 32, 64)), {"groups": 2, "dtype": jnp.bfloat16}, ["columns"]),
        (((2, 8, 8, 16), (3, 3, 16, 32)), {"dtype": jnp.bfloat16}, ["columns"]),
        (((2, 40, 40, 16), (3, 3, 16, 32)), {}, ["direct"]),
        (((2, 4, 8, 8, 16), (3, 3, 3, 16, 32)), {}, ["slabs", "direct"]),
    ],
)
def test_the_spelling_of_a_forward_convolution(shapes, attributes, expected):
    assert spellings(jaxconv.explain("convolution", *shapes, **attributes)) == expected


@pytest.mark.parametrize(
    ("batch", "expected"), [(1, "direct"), (32, "columns")], ids=["little work", "much"]
)
def test_weights_gradients_of_little_work_stay_one_convolution(batch, expected):
    found = jaxconv.explain(
        jaxconv.convolution_backward_weights, (batch, 16, 16, 32), (batch, 14, 14, 64),
        (3, 3, 32, 64),
    )  # fmt: skip
    assert spellings(found) == [expected]


@pytest.mark.parametrize(("batch", "expected"), [(2, "taps"), (8, "each")])
def test_few_channels_a_group_of_much_data(batch, expected):
    shapes = (batch, 56, 56, 128), (batch, 56, 56, 128), (3, 3, 4, 128)
    found = jaxconv.explain(
        "convolution_backward_weights", *shapes, groups=32, pads_begin=1, pads_end=1
    )
    assert spellings(found)[0] == expected


def test_the_type_is_common_to_all_arrays():
    src, weights = jnp.ones((1, 4, 4, 2)), jnp.ones((3, 3, 2, 4), jnp.bfloat16)
    with pytest.raises(TypeError, match="same type"):
        jaxconv.explain("convolution", src, weights)
    with pytest.raises(TypeError, match="same type"):
        jaxconv.explain("convolution", src, weights.astype(jnp.float32), weights[0, 0, 0])


def test_what_is_best_differs_between_versions():
    """Of windows that tile, and over small images, of what strides spread out and light kernels."""
    tiles = jaxconv.explain("convolution", (2, 32, 32, 3), (4, 4, 3, 96), strides=4)
    small = jaxconv.explain(
        jaxconv.convolution_backward_data, (2, 7, 7, 64), (3, 3, 64, 64), (2, 14, 14, 64),
        strides=2, pads_begin=1, pads_end=0,
    )  # fmt: skip
    light, heavy = (
        spellings(jaxconv.explain("convolution", (2, 9, 9, c), (3, 3, c, c))) for c in (64, 512)
    )
    first = jaxconv.explain(
        "convolution", (2, 512, 9, 9), (512, 512, 3, 3), data_format="NCX", weights_format="OIX"
    )
    assert heavy == ["columns"]
    assert spellings(first) == ["columns" if problem.NEWER else "direct"]
    if problem.NEWER:
        assert light == ["columns"]
        assert spellings(tiles) == ["direct"]
        assert spellings(small)[0] == "phases"
    else:
        assert light == ["direct"]
        assert spellings(tiles) == ["matmul"]
        assert spellings(small) == ["direct"]


def test_little_grouped_work_is_spelled_too():
    """No rule names a spelling that cannot do it."""
    for groups, out in ((2, 2), (2, 8), (4, 4)):
        src, weights = (1, 6, 6, 24 * groups), (3, 3, 24, out * groups)
        assert spellings(jaxconv.explain("convolution", src, weights, groups=groups))


def test_a_rewrite_names_what_it_hands_on_to():
    found = jaxconv.explain(
        jaxconv.convolution_backward_data, (2, 6, 6, 12), (3, 3, 1, 12), (2, 13, 13, 12),
        strides=2, groups=12,
    )  # fmt: skip
    assert dict(zip(spellings(found), found.counts, strict=True)) == {"phases": 1, "taps": 4}


def test_a_forced_spelling_is_said_to_be_forced():
    with jaxconv.forced("dots"):
        found = jaxconv.explain("convolution", (2, 8, 8, 6), (3, 3, 6, 6))
    assert found.steps == (("dots", "forced"),)


@pytest.mark.parametrize("op", OPS)
def test_operations_are_those_of_a_sum_of_ones(op):
    """With all ones, each product adds 1 to the sum of all results."""
    a, b, _ = operands(DENSE, op)
    function, attributes = DENSE.op(op).func, DENSE.op(op).keywords
    found = jaxconv.explain(function, a, b, **attributes)
    ones = function(jnp.ones(a.shape), jnp.ones(b.shape), **attributes)
    assert found.flops == 2 * int(ones.sum())
    assert found.bytes == 4 * (a.size + b.size + ones.size)
    assert found.resolved == jaxconv.resolve(function, a, b, **attributes)


def test_the_type_is_that_of_the_arrays():
    src, weights = jnp.ones((2, 8, 8, 3), jnp.bfloat16), jnp.ones((3, 3, 3, 5), jnp.bfloat16)
    found = jaxconv.explain("convolution", src, weights)
    assert found.bytes == 2 * (src.size + weights.size + 2 * 6 * 6 * 5)
    assert spellings(found) != spellings(jaxconv.explain("convolution", src, weights, dtype="f4"))


def test_temporary_memory_is_that_of_the_compiled_operation():
    src, weights = np.ones((2, 64, 64, 32), np.float32), np.ones((3, 3, 1, 32), np.float32)
    found = jaxconv.explain("convolution", src, weights, groups=32, pads_begin=1, pads_end=1)
    compiled = (
        jax.jit(lambda x, w: jaxconv.convolution(x, w, groups=32, pads_begin=1, pads_end=1))
        .lower(src, weights)
        .compile()
    )
    assert found.temp_bytes == compiled.memory_analysis().temp_size_in_bytes > src.nbytes


def test_it_reads_well():
    text = str(jaxconv.explain("convolution", (2, 8, 8, 16), (1, 1, 16, 32)))
    first, step, costs = text.splitlines()
    assert first == "convolution to (2, 8, 8, 32)"
    assert step.startswith("  matmul: one tap")
    assert costs.startswith("  0.1 MFLOP, 0.0 MiB in and out, temporary memory")


def test_the_second_reading_of_transposed_weights():
    """Groups on the I axis instead of the O axis: the same operation."""
    first = jaxconv.explain("conv_transpose", (2, 5, 5, 8), (3, 3, 6, 8), groups=2, strides=2)
    second = jaxconv.explain("conv_transpose", (2, 5, 5, 8), (3, 3, 12, 4), groups=2, strides=2)
    assert second.resolved.groups_on_fine > first.resolved.groups_on_fine
    assert (first.steps, first.counts) == (second.steps, second.counts)


def test_the_wider_result_counts():
    shapes = (2, 8, 8, 3), (3, 3, 3, 5)
    narrow = jaxconv.explain("convolution", *shapes, dtype=jnp.bfloat16)
    wide = jaxconv.explain(
        "convolution", *shapes, dtype=jnp.bfloat16, preferred_element_type=jnp.float32
    )
    assert wide.bytes - narrow.bytes == 2 * (2 * 6 * 6 * 5)


def test_arguments_may_be_given_by_name():
    by_name = jaxconv.explain("convolution", src=(2, 8, 8, 3), weights=(3, 3, 3, 5))
    assert by_name == jaxconv.explain("convolution", (2, 8, 8, 3), (3, 3, 3, 5))


@pytest.mark.parametrize("spelling", ["reference", "columns", "phases"])
def test_a_forced_spelling_of_a_rewrite(spelling):
    args = "convolution_backward_data", (2, 6, 6, 12), (3, 3, 1, 12), (2, 13, 13, 12)
    with jaxconv.forced(spelling):
        found = jaxconv.explain(*args, strides=2, groups=12)
    inner = {"reference": [], "columns": ["columns"], "phases": ["taps"]}[spelling]
    outer = "reference" if spelling == "reference" else "phases"
    assert (spellings(found), found.steps[0][1]) == ([outer, *inner], "forced")


def test_errors_are_those_of_the_operation():
    with pytest.raises(ValueError, match=r"convolution: .*channels"):
        jaxconv.explain("convolution", (2, 8, 8, 16), (1, 1, 15, 32))


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


def test_a_bias_that_fits():
    found = jaxconv.explain("convolution", SRC, WEIGHTS, (32,))
    assert replace(found, temp_bytes=0) == replace(
        jaxconv.explain("convolution", SRC, WEIGHTS), temp_bytes=0
    )


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


@pytest.mark.parametrize(("channels", "spelling"), [(64, "taps"), (128, "each")])
def test_one_tap_of_few_channels_a_group(channels, spelling):
    """4 groups of 16 channels, of 32, to four times as many."""
    src, weights = (8, 28, 28, channels), (1, 1, channels // 4, 4 * channels)
    found = jaxconv.explain("convolution", src, weights, groups=4)
    assert spellings(found)[0] == spelling


def test_a_kernel_that_stands_as_a_dot_wants_it_is_not_transposed():
    """Of a data gradient of one tap, channels first: the dot sums over the first axis of OIX."""
    shapes = (8, 256, 7, 7), (256, 128, 1, 1), (8, 128, 7, 7)
    found = jaxconv.explain(
        "convolution_backward_data", *shapes, data_format="NCX", weights_format="OIX"
    )
    assert spellings(found) == ["phases", "matmul"]


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16])
@pytest.mark.parametrize("stride", [2, 5])
def test_a_waveform_has_its_windows_written_out(stride, dtype):
    """Also where its stride divides the kernel."""
    shapes = (8, 40_000, 1), (8, (40_000 - 10) // stride + 1, 64), (10, 1, 64)
    found = jaxconv.explain("convolution_backward_weights", *shapes, strides=stride, dtype=dtype)
    assert spellings(found) == ["columns"]
