"""The package against what the unit tests of oneDNN expect, number by number."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxconv
from tests.support.literal import GROUPED_DST, GROUPED_SRC, GROUPED_WEIGHTS, SHAPES, SIZES, VALUES

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


@pytest.mark.parametrize(("op", "data", "weights", "expected", "attributes"), SHAPES)
def test_shapes(op, data, weights, expected, attributes):
    data, weights = (jax.ShapeDtypeStruct(shape, jnp.float32) for shape in (data, weights))
    result = jax.eval_shape(
        lambda *arrays: getattr(jaxconv, op)(*arrays, **attributes, **FORMATS), data, weights
    )
    assert result.shape == expected


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.bfloat16, jnp.float16])
@pytest.mark.parametrize(("op", "data", "weights", "expected"), VALUES)
def test_values(op, data, weights, expected, dtype):
    arrays = jnp.array([[data]], dtype), jnp.array([[weights]], dtype)
    result = getattr(jaxconv, op)(*arrays, **FORMATS)
    assert result.dtype == dtype
    np.testing.assert_array_equal(np.asarray(result, np.float64), [[expected]])


def test_groups():
    result = jaxconv.conv_transpose(
        jnp.asarray(GROUPED_SRC, jnp.float32),
        jnp.asarray(GROUPED_WEIGHTS, jnp.float32),
        groups=2,
        data_format="NCX",
        weights_format="IOX",
    )
    np.testing.assert_array_equal(result, GROUPED_DST)
