"""The rules of `jaxconv.torch` without PyTorch, with which `test_torch_door*.py` compare."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxconv import torch as F
from tests.support.peers import integers

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


@pytest.mark.parametrize("name", ["conv2d", "conv_transpose2d"])
def test_gradients_are_those_of_jax(name):
    """With an odd zero of padding="same", and an output_padding of the stride, dilated by more."""
    rng = np.random.default_rng(0)
    x, w = integers(rng, (2, 4, 6, 5)), integers(rng, (4, 2, 2, 3))
    rest = {"output_padding": (2, 1)} if "transpose" in name else {"padding": "same", "stride": 1}
    rest = {"stride": 2, "dilation": 3, "groups": 2} | rest
    out, pull_back = jax.vjp(lambda x, w: getattr(F, name)(x, w, **rest), x, w)
    slope = integers(rng, out.shape)
    found = [
        getattr(F.grad, f"{name}_input")(x.shape, w, slope, **rest),
        getattr(F.grad, f"{name}_weight")(x, w.shape, slope, **rest),
    ]
    for one, other in zip(found, pull_back(slope), strict=True):
        np.testing.assert_array_equal(one, other)


def test_windows():
    x = np.float32([[[1, 2, 3], [4, 5, 6]]])
    columns = F.unfold(x, (2, 1), stride=(1, 2), padding=(0, 1))
    assert columns.tolist() == [[0, 2, 0], [0, 5, 0]]
    assert F.unfold(x, (1, 2)).tolist() == [[1, 2, 4, 5], [2, 3, 5, 6]]
    assert F.fold(F.unfold(x, (1, 2)), (2, 3), (1, 2)).tolist() == [[[1, 4, 3], [4, 10, 6]]]


def test_fold_rounds_once():
    columns = integers(np.random.default_rng(1), (2, 3 * 9, 20), most=250)
    image = F.fold(jnp.asarray(columns, jnp.bfloat16), (6, 7), 3)
    np.testing.assert_array_equal(image, F.fold(columns, (6, 7), 3).astype(jnp.bfloat16))


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: F.conv1d(X, ONE, padding="same", stride=2), "not supported for strided"),
        (lambda: F.conv1d(X, ONE, padding=4, padding_mode="reflect"), "should be less than"),
        (lambda: F.conv1d(X, ONE, padding=5, padding_mode="circular"), "should not exceed"),
        (lambda: F.conv1d(X, ONE, stride=True), "`stride` must be an int"),
        (lambda: F.conv1d(X, ONE, np.ones(2, np.float32)), "expected bias to be 1-dimensional"),
        (lambda: F.conv1d(X, np.ones((3, 1, 1), np.float32), groups=1, padding=-1), "negative pad"),
        (lambda: F.conv1d(X.T, np.ones((1, 1, 1), np.float32)), "Channels last would fit"),
        (lambda: F.conv_transpose1d(X, ONE, output_padding=1), "output padding must be smaller"),
        (
            lambda: F.conv_transpose1d(X, ONE, output_padding=None),
            "`output_padding` must be an int",
        ),
        (lambda: F.conv_transpose1d(X, ONE, padding=2), "extents of at least 1"),
        (lambda: F.find_output_padding(X, ONE, (9,), stride=2), r"from \(7,\) to \(8,\)"),
        (lambda: F.fold(np.ones((4, 4), np.float32), 3, 2, padding=1), "sliding blocks 4 \\* 4"),
        (lambda: F.grad.conv1d_input((1, 1, 3), ONE, X[None]), "the size of the layer's output"),
        (lambda: F.load({"w": [1.0]}), "entry 'w' must be a dense tensor"),
    ],
)
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
