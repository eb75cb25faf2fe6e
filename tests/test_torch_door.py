"""`jaxconv.torch` against PyTorch: values and gradients, state dicts, and what a call costs.

Data is integers whose sums are exact in either framework, so results must be equal.
"""

import timeit
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxconv
from jaxconv import torch as ours
from tests.support.peers import integers, peer
from tests.support.timing import takes_at_most
from tests.support.torch_layers import EVERY, draw_layer

torch = peer("torch")
F = torch.nn.functional
# PyTorch warns that it copies the input to add the odd zero of padding="same".
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same'")


def compute_theirs(layer, arrays, seed, dtype=torch.float32):
    """PyTorch's result, and its gradient for each operand, where the result's is `seed`."""
    tensors = [torch.tensor(a).to(dtype).requires_grad_() for a in arrays]
    out = layer.theirs(*tensors)
    slopes = torch.autograd.grad(out, tensors, torch.tensor(seed).to(dtype))
    return [x.detach().float().numpy() for x in (out, *slopes)]


def compute_ours(layer, arrays, seed, dtype=np.float32):
    """Our result, its gradients, and those of `grad` where that has them."""

    def compute(seed, x, w, *b):
        out, pull_back = jax.vjp(layer.ours, x, w, *b)
        gradients = pull_back(seed)
        if layer.padding_mode != "zeros" or x.ndim < w.ndim:
            return [out, *gradients], list(gradients[:2])
        slopes = [
            getattr(ours.grad, f"{layer.name}_{of}")(*operands, seed, **layer.arguments)
            for of, operands in (("input", (x.shape, w)), ("weight", (x, w.shape)))
        ]
        return [out, *gradients], slopes

    arrays = [jnp.asarray(a, dtype) for a in (seed, *arrays)]
    found, slopes = jax.jit(compute)(*arrays)
    for slope, gradient in zip(slopes, found[1:3], strict=True):
        np.testing.assert_array_equal(slope, gradient)
    return [np.asarray(x) for x in found]


def draw_data(rng, layer, most=30):
    sizes = [layer.input, layer.weight, *[layer.bias] * (layer.bias is not None)]
    arrays = [integers(rng, size, most=most) for size in sizes]
    with torch.no_grad():
        out = layer.theirs(*map(torch.tensor, arrays))
    return arrays, integers(rng, tuple(out.shape), most=most)


def check_values(rng):
    layer = draw_layer(rng)
    arrays, seed = draw_data(rng, layer)
    found = compute_ours(layer, arrays, seed)
    for our, their in zip(found, compute_theirs(layer, arrays, seed), strict=True):
        np.testing.assert_array_equal(our, their, err_msg=str(layer))


@pytest.mark.parametrize("seed", range(24))
def test_values_and_gradients(seed):
    check_values(np.random.default_rng([1, seed]))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))  # 24 seeds passed once, in eight minutes
def test_values_and_gradients_of_many(seed):
    """Compare 50 calls for each seed."""
    rng = np.random.default_rng([2, seed])
    for _ in range(50):
        check_values(rng)
    jax.clear_caches()


def check_bfloat16(rng, **drawn):
    """Ours is the exact sum rounded once, and PyTorch's no further than one rounding from it.

    Of a transposed convolution, PyTorch rounds the sums of each tap, and may be further away.
    """
    layer = draw_layer(rng, **drawn)
    arrays, seed = draw_data(rng, layer)
    exact = compute_theirs(layer, arrays, seed)
    theirs = compute_theirs(layer, arrays, seed, torch.bfloat16)
    found = compute_ours(layer, arrays, seed, jnp.bfloat16)
    for at, (our, their, sums) in enumerate(zip(found, theirs, exact, strict=True)):
        assert our.dtype == jnp.bfloat16
        if (
            at != 1 or layer.padding_mode == "zeros"
        ):  # the gradient of a pad is added up in bfloat16
            np.testing.assert_array_equal(our, sums.astype(jnp.bfloat16), err_msg=str(layer))
        if at == 0 and not layer.transposed:
            np.testing.assert_allclose(np.float32(our), their, rtol=2**-7, err_msg=str(layer))


@pytest.mark.parametrize("name", ["conv2d", "conv_transpose1d"])
def test_bfloat16_is_rounded_once(name):
    check_bfloat16(np.random.default_rng(3), name=name)


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_bfloat16_of_many_is_rounded_once(name):
    rng = np.random.default_rng(4)
    for _ in range(12):  # of 25, the others passed once
        check_bfloat16(rng, name=name)


def test_torchax_is_wrong_here():
    """Grouped transposed convolutions whose groups have several input channels."""
    rng = np.random.default_rng(5)
    x, w = integers(rng, (2, 6, 5, 4)), integers(rng, (6, 3, 3, 2))
    arguments = {"stride": 2, "groups": 2, "output_padding": (1, 0)}
    their = F.conv_transpose2d(torch.tensor(x), torch.tensor(w), **arguments)
    np.testing.assert_array_equal(ours.conv_transpose2d(x, w, **arguments), their)


# Windows.


def draw_windows(rng):
    ints = [tuple(int(n) for n in rng.integers(low, 3, 2, endpoint=True)) for low in (1, 1, 0, 1)]
    arguments = dict(zip(("kernel_size", "dilation", "padding", "stride"), ints, strict=True))
    kernel, dilation, padding, _ = ints
    size = tuple(
        max(d * (k - 1) + 1 - 2 * p, 1) + int(rng.integers(4))
        for k, d, p in zip(kernel, dilation, padding, strict=True)
    )
    batch = [(int(rng.integers(1, 4)),), ()][rng.random() < 0.25]
    if rng.random() < 0.3:
        arguments["stride"] = arguments["stride"][0]
    return (*batch, int(rng.integers(1, 4)), *size), arguments


def check_windows(rng):
    """`unfold`, and `fold` of other columns, and the gradients of both."""
    size, arguments = draw_windows(rng)
    images = integers(rng, size)
    tensors = [torch.tensor(images, requires_grad=True)]
    tensors += [F.unfold(tensors[0], **arguments)]
    columns = integers(rng, tuple(tensors[1].shape))
    folded = F.fold(torch.tensor(columns), size[-2:], **arguments).numpy()
    tensors[1].backward(torch.tensor(columns))
    np.testing.assert_array_equal(tensors[0].grad, folded)

    def compute(images, columns):
        out, pull_back = jax.vjp(partial(ours.unfold, **arguments), images)
        fold = partial(ours.fold, output_size=size[-2:], **arguments)
        image, again = jax.vjp(fold, columns)
        return out, *pull_back(columns), image, *again(images)

    unfolded = tensors[1].detach()
    for our, their in zip(
        jax.jit(compute)(images, columns), (unfolded, folded, folded, unfolded), strict=True
    ):
        np.testing.assert_array_equal(our, their, err_msg=f"{size} {arguments}")


@pytest.mark.parametrize("seed", range(5))
def test_windows(seed):
    check_windows(np.random.default_rng([6, seed]))


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_many_windows(seed):
    rng = np.random.default_rng([7, seed])
    for _ in range(25):
        check_windows(rng)


def test_windows_keep_what_is_not_finite_apart():
    x = np.float32([[[[1, np.inf, 2], [3, 4, np.nan]]]])
    np.testing.assert_array_equal(ours.unfold(x, (1, 2)), F.unfold(torch.tensor(x), (1, 2)))


def test_fold_rounds_bfloat16_once():
    columns = integers(np.random.default_rng(8), (2, 3 * 9, 20), most=250)
    exact = F.fold(torch.tensor(columns), (6, 7), 3).numpy()
    our = ours.fold(jnp.asarray(columns, jnp.bfloat16), (6, 7), 3)
    np.testing.assert_array_equal(our, exact.astype(jnp.bfloat16))


# State dicts.


def test_a_state_dict_is_copied_as_it_is():
    """Whatever its types, layouts and owners, which may change their numbers afterwards."""
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), torch.nn.BatchNorm2d(4)).bfloat16()
    model[0].weight.data = model[0].weight.data.contiguous(memory_format=torch.channels_last)
    given = model.state_dict() | {"numpy": np.float32([1, 2]), "jax": jnp.zeros(2)}
    expected = {
        n: torch.as_tensor(np.array(x) if n in ("numpy", "jax") else x).float().numpy().copy()
        for n, x in given.items()
    }
    found = ours.load(given)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(1)
    given["numpy"] += 1
    assert list(found) == list(given)
    for name, array in found.items():
        assert isinstance(array, jax.Array)
        np.testing.assert_array_equal(np.asarray(array, np.float32), expected[name])
    assert found["0.weight"].dtype == jnp.bfloat16
    assert found["1.num_batches_tracked"].dtype == jnp.int32


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"a": [1.0]}, "load: entry 'a' must be a dense tensor of PyTorch or an array"),
        ([1.0], "load: `state_dict` must be a mapping of names to arrays; got list"),
    ],
)
def test_what_is_no_state_dict(given, words):
    with pytest.raises(TypeError, match=words):
        ours.load(given)
    with pytest.raises(TypeError, match="Call its method `state_dict`"):
        ours.load(torch.nn.Conv2d(1, 1, 1))
    with pytest.raises(TypeError, match="entry 'b' must be a dense tensor"):
        ours.load({"b": torch.eye(2).to_sparse()})


# What a call costs.


@pytest.mark.timed
def test_an_eager_call_costs_little_more_than_one_of_ours():
    x, w = jnp.ones((1, 2, 4, 4)), jnp.ones((2, 2, 3, 3))
    formats = {"data_format": "NCX", "weights_format": "OIX"}

    def through_the_door():
        ours.conv2d(x, w, padding=1, stride=2)

    def directly():
        jaxconv.convolution(x, w, pads_begin=1, pads_end=1, strides=2, **formats)

    times = [partial(timeit.timeit, f, number=100) for f in (through_the_door, directly)]
    assert takes_at_most(1.5, *times)
