"""The package, and the tests' oracle, against what the unit tests of oneDNN expect."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxconv
from tests.support import oracle

FORMATS = {"data_format": "NCX", "weights_format": "OIX"}

# They are two-dimensional with both axes alike.

# op, size in, kernel, size out, resolved pads, attributes
SIZES = [
    ("convolution", 6, 4, 6, (1, 2), {"pads_begin": 1, "pads_end": 2}),
    ("convolution", 6, 4, 6, (1, 2), {"auto_pad": "same_upper"}),
    ("convolution", 6, 4, 6, (2, 1), {"auto_pad": "same_lower"}),
    ("convolution", 6, 4, 3, (0, 0), {"auto_pad": "valid"}),
    ("convolution", 5, 1, 2, (0, 0), {"auto_pad": "same_upper", "strides": 3}),
    ("convolution", 5, 1, 2, (0, 0), {"auto_pad": "same_lower", "strides": 3}),
    ("convolution", 16, 4, 10, (0, 0), {"auto_pad": "valid", "dilations": 2}),
    ("conv_transpose", 3, 1, 5, (0, 0), {"auto_pad": "same_upper", "strides": 2}),
    ("conv_transpose", 3, 1, 5, (0, 0), {"auto_pad": "same_lower", "strides": 2}),
    ("conv_transpose", 10, 4, 13, (1, 2), {"pads_begin": 1, "pads_end": 2, "dilations": 2}),
    ("conv_transpose", 10, 4, 10, (3, 3), {"auto_pad": "same_upper", "dilations": 2}),
    ("conv_transpose", 10, 4, 10, (3, 3), {"auto_pad": "same_lower", "dilations": 2}),
    ("conv_transpose", 10, 4, 16, (0, 0), {"auto_pad": "valid", "dilations": 2}),
    ("conv_transpose", 6, 4, 6, (2, 1), {"auto_pad": "same_lower"}),
    ("conv_transpose", 5, 3, 5, (1, 1),
     {"auto_pad": "same_upper", "pads_begin": [], "pads_end": []}),
]  # fmt: skip

# op, data, weights (OIX), result, attributes
VALID = {"strides": 2, "auto_pad": "valid"}
SHAPES = [
    *(
        row
        for groups in (1, 2, 4)
        for row in [
            ("convolution", (1, 32, 224, 224), (16, 32 // groups, 3, 3), (1, 16, 111, 111),
             VALID | {"groups": groups}),
            ("conv_transpose", (1, 16, 111, 111), (32 // groups, 16, 3, 3), (1, 32, 224, 224),
             VALID | {"output_padding": 1, "groups": groups}),
        ]
    ),
    ("conv_transpose_backward_data", (256, 3, 227, 227), (3, 96, 11, 11), (256, 96, 55, 55),
     {"strides": 4}),
    ("convolution_backward_data", (1, 16, 224, 224), (16, 32, 3, 3), (1, 32, 452, 452),
     VALID | {"output_padding": 3}),
]  # fmt: skip

CHECKERED = [[1, 0, 1], [0, 1, 0], [1, 0, 1]]
# op, data and weights (NCX, OIX), result
IMAGE = [[-3, -1.5, 2, 0.5], [-0.5, -1, 1, 1.5], [2, 2.5, -1, 0], [3, -2, -1, 4]]
VALUES = [
    ("convolution", IMAGE, CHECKERED, [[-1, 2.5], [5, 1.5]]),
    ("convolution_backward_data", [[0, 1], [2, 3]], CHECKERED,
     [[0, 1, 0, 1], [2, 3, 3, 3], [0, 3, 3, 1], [2, 3, 2, 3]]),
    ("conv_transpose", [[-1, 2.5], [5, 1.5]], CHECKERED,
     [[-1, 2.5, -1, 2.5], [5, 0.5, 7.5, 1.5], [-1, 7.5, 0.5, 2.5], [5, 1.5, 5, 1.5]]),
]  # fmt: skip


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
