"""The package, and the tests' oracle, against what the unit tests of oneDNN expect."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxconv
from tests.support import oracle
from tests.support.literal import GROUPED, GROUPED_SRC, SHAPES, SIZES, VALUES

FORMATS = {"data_format": "NCX", "weights_format": "OIX"}


@pytest.mark.parametrize(("op", "size", "kernel", "expected", "pads", "attributes"), SIZES)
def test_sizes(op, size, kernel, expected, pads, attributes):
    """With two axes alike, as there."""
    src, weights = jnp.zeros((1, 3, size, size)), jnp.zeros((3, 3, kernel, kernel))
    result = jax.eval_shape(
        lambda *arrays: getattr(jaxconv, op)(*arrays, **attributes, **FORMATS), src, weights
    )
    assert result.shape == (1, 3, expected, expected)
    resolved = jaxconv.resolve(op, src, weights, **attributes, **FORMATS)
    assert resolved.dst_shape == result.shape
    assert (resolved.pads_begin, resolved.pads_end) == ((pads[0],) * 2, (pads[1],) * 2)
    fine, coarse = ((size,), None) if op == "convolution" else (None, (size,))
    (axis,) = oracle.resolve(op, fine, (kernel,), coarse, **attributes)
    assert (axis.pad_begin, axis.pad_end) == pads
    assert (axis.fine, axis.coarse)[op == "convolution"] == expected


@pytest.mark.parametrize(("op", "data", "weights", "expected", "attributes"), SHAPES)
def test_shapes(op, data, weights, expected, attributes):
    """Of the oracle with one image: a batch of 256 would only take longer."""
    attributes = attributes | FORMATS
    types = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in (data, weights))
    result = jax.eval_shape(lambda *arrays: getattr(jaxconv, op)(*arrays, **attributes), *types)
    assert result.shape == expected
    found = getattr(oracle, op)(np.zeros((1, *data[1:])), np.zeros(weights), **attributes)
    assert found.shape == (1, *expected[1:])


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16])
@pytest.mark.parametrize(("op", "data", "weights", "expected"), VALUES)
def test_values(op, data, weights, expected, dtype):
    arrays = jnp.array([[data]], dtype), jnp.array([[weights]], dtype)
    result = getattr(jaxconv, op)(*arrays, **FORMATS)
    assert result.dtype == dtype
    np.testing.assert_array_equal(np.asarray(result, np.float64), [[expected]])
    found = getattr(oracle, op)([[data]], [[weights]], **FORMATS)
    np.testing.assert_array_equal(found, [[expected]])


@pytest.mark.parametrize(("weights", "expected"), GROUPED)
def test_groups(weights, expected):
    attributes = FORMATS | {"weights_format": "IOX", "groups": 2}
    arrays = (jnp.asarray(x, jnp.float32) for x in (GROUPED_SRC, weights))
    np.testing.assert_array_equal(jaxconv.conv_transpose(*arrays, **attributes), expected)
    np.testing.assert_array_equal(
        oracle.conv_transpose(GROUPED_SRC, weights, **attributes), expected
    )
