"""The rules of `jaxconv.torch` without PyTorch, with which `test_door.py` compares."""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxconv import torch as F
from tests.support import oracle
from tests.support.peers import integers

LARGE = [jax.ShapeDtypeStruct(size, np.float32) for size in ((1, 1, 2**20), (1, 1, 1))]
LARGE_PADDED = np.ones((1, 1, 1, 1, 1), np.float32), np.ones((1, 1, 1, 1, 1), np.float32)
X, ONE = np.float32([[1, 2, 4, 8]]), np.ones((1, 1, 1), np.float32)


@pytest.mark.parametrize(
    ("weight", "arguments", "expected"),
    [
        ([1, 10], {"padding": "same"}, [21, 42, 84, 8]),  # the odd zero at the end
        ([1, 10], {"padding": "valid", "stride": [2]}, [21, 84]),
        ([1], {"padding": 2, "padding_mode": "reflect"}, [4, 2, 1, 2, 4, 8, 4, 2]),
        ([1], {"padding": 2, "padding_mode": "replicate"}, [1, 1, 1, 2, 4, 8, 8, 8]),
        ([1], {"padding": 2, "padding_mode": "circular"}, [4, 8, 1, 2, 4, 8, 1, 2]),
        ([1, 10], {"padding": "same", "padding_mode": "circular"}, [21, 42, 84, 18]),
    ],
)
def test_convolutions(weight, arguments, expected):
    """Of one row, with and without a batch."""
    w = np.float32(weight).reshape(1, 1, -1)
    assert F.conv1d(X, w, **arguments).tolist() == [expected]
    assert F.conv1d(X[None], w, np.float32([1]), **arguments)[0, 0, 0] == expected[0] + 1


def test_transposed_convolutions():
    w = np.float32([[[1, 10]], [[2, 20]], [[3, 30]], [[4, 40]]])  # 2 groups of 2 channels to 1
    found = F.conv_transpose1d(np.float32([[1], [2], [3], [4]]), w, None, 3, 0, 2, 2)
    assert found.tolist() == [[5, 50, 0, 0], [25, 250, 0, 0]]


@pytest.mark.parametrize(
    ("op", "rest", "rules"),
    [
        ("convolution", {"padding": "same"}, {"auto_pad": "same_upper", "weights_format": "OIX"}),
        (
            "conv_transpose", {"stride": 2, "output_padding": (2, 1)},
            {"strides": 2, "output_padding": (2, 1), "weights_format": "IOX"},
        ),
    ],
)  # fmt: skip
def test_dilations_and_groups(op, rest, rules):
    """With an odd zero of padding="same", and an output_padding of the stride, dilated by more."""
    rng = np.random.default_rng(0)
    x, w, b = (integers(rng, size) for size in ((2, 4, 6, 5), (4, 2, 2, 3), (4,)))
    name = op.replace("convolution", "conv") + "2d"
    out = getattr(F, name)(x, w, b, dilation=3, groups=2, **rest)
    expected = getattr(oracle, op)(x, w, b, data_format="NCX", dilations=3, groups=2, **rules)
    np.testing.assert_array_equal(out, expected)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: F.conv1d(X, ONE, padding="same", stride=2), "not supported for strided"),
        (lambda: F.conv1d(X, ONE, padding=4, padding_mode="reflect"), "must be less than"),
        (lambda: F.conv1d(X, ONE, padding=5, padding_mode="circular"), "must not exceed"),
        (lambda: F.conv1d(X, ONE, padding_mode="constant"), "`padding_mode` must be 'zeros', 'ref"),
        (lambda: F.conv1d(X, ONE, stride=True), "`stride` must be an int"),
        (lambda: F.conv1d(X, ONE, np.ones(2, np.float32)), r"must have shape \(1,\), .* output"),
        (lambda: F.conv1d(X, ONE, padding=-1), "`padding` must be at least 0"),
        (lambda: F.conv1d(X, np.float16(ONE)), "conv1d: all arrays must have the same type"),
        (lambda: F.conv1d(X[:0], ONE[:, :0]), "`input` must have extents of at least 1"),
        (lambda: F.conv1d(X, ONE, dilation=0), "`dilation` must be at least 1"),
        (lambda: F.conv1d(X, ONE, stride=[[1]]), r"`stride` must be .* got \[1\] \(list\)"),
        (lambda: F.find_output_padding(X, ONE, jax.export.symbolic_shape("n")), "must be constant"),
        (lambda: F.conv1d(X, ONE, groups=0), "`groups` must be at least 1"),
        (lambda: F.conv1d(X, np.ones((1, 2, 1))), "`weight` must have input channels / groups = 1"),
        (lambda: F.conv1d(X, np.ones((1, 1, 5))), "`weight`, dilated, must fit into the padded"),
        (lambda: F.conv1d(X.T, ONE), "Channels last would fit: move them to just before"),
        (lambda: F.conv2d(np.ones((1, 8, 9, 4)), np.ones((3, 3, 4, 6))),
         r"\(1, 8, 9, 4\) \(NCX\)$"),  # the data moved alone would not fit
        (lambda: F.conv1d(X, ONE, groups="src"), r"got 'src' \(str\)"),
        (lambda: F.conv_transpose1d(X, ONE, groups=np.array([1, 2])), "`groups` must be an int"),
        (lambda: F.conv_transpose1d(X, ONE, output_padding=1), "`output_padding` must be smaller"),
        (lambda: F.conv_transpose2d(X[None], ONE[None], stride=(2, 1), output_padding=1),
         r"must be smaller than either .* got \(1, 1\) with stride \(2, 1\) and dilation \(1, 1\)"),
        (lambda: F.conv_transpose1d(X, ONE, output_padding=None),
         "`output_padding` must be an int"),
        (lambda: F.conv_transpose1d(X, ONE, padding=2), "an extent of at least 1"),
        (lambda: F.conv_transpose1d(np.ones((4, 1)), np.ones((2, 3, 1)), groups=2),
         "`weight` must have the 4 channels of `input` on its first axis; got shape"),
        (lambda: F.conv1d(X, ONE, stride=2**30, padding=2**47, padding_mode="replicate"),
         "`padding` must be at most"),
        (lambda: F.conv3d(*LARGE_PADDED, stride=2**30, padding=2**30, padding_mode="circular"),
         "`padding` must not exceed"),
        (lambda: F.conv3d(*LARGE_PADDED, stride=2**30, padding=2**30, padding_mode="replicate"),
         r"^conv3d: `padding` must leave the padded `input` at most 2\*\*48 elements"),
        (lambda: F.conv1d(X.astype(object), ONE, padding=1, padding_mode="reflect"), "have type"),
        (lambda: F.find_output_padding(jax.ShapeDtypeStruct(jax.export.symbolic_shape("1, 1, n"),
         np.float32), ONE, (9,)), "`input` and `weight` must have constant extents"),
        (lambda: F.conv1d(X[:, :0], ONE, padding=1, padding_mode="replicate"), "at least 1"),
        (lambda: F.conv1d(X, ONE[..., :0], padding="same"),
         "`weight` must have extents of at least 1"),
        (lambda: jax.eval_shape(partial(F.conv_transpose1d, stride=2**31 - 1), *LARGE),
         r"^conv_transpose1d: the result must have at most 2\*\*48 elements; .* of `input`"),
        (lambda: F.find_output_padding(X, ONE, (9,), stride=2), r"from \(7,\) to \(8,\)"),
        (lambda: F.find_output_padding(np.zeros((1, 1, 5, 5)), np.zeros((1, 1, 3, 3)), (11,)),
         "`output_size` must be a sequence of 2 ints, or 4 ints"),
        (lambda: F.find_output_padding(X[None], ONE[None], (1, 5)), r"from \(1, 4\) to \(1, 4\)"),
        (lambda: F.find_output_padding(X, ONE, [[1], [2, 3]]), "`output_size` must be a seq"),
        (lambda: F.find_output_padding([1.0], ONE, 9), "`input` must be an array; got"),
        (lambda: F.find_output_padding(X, ONE[0], 9), "`weight` must have 3 axes; got shape"),
        (lambda: F.load({"w": [1.0]}), "entry 'w' must be a dense tensor"),
        (lambda: F.load([1.0]),
         "load: `state_dict` must be a mapping of names to arrays; got list"),
    ],
)  # fmt: skip
def test_what_is_refused(call, words):
    with pytest.raises((TypeError, ValueError), match=words):
        call()


def test_load_copies():
    """Where JAX could share the memory, too: it starts at a multiple of 64 bytes."""
    memory = np.ones(4096 + 16, np.float32)
    start = -memory.ctypes.data % 64 // 4
    given = memory[start : start + 4096]
    loaded = F.load({"w": given, "n": np.int64(3)})
    given += 1
    assert loaded["w"].sum() == 4096
    assert loaded["n"].dtype == jnp.int32
