"""`jaxconv.torch` against PyTorch: values and gradients, state dicts, and what a call costs.

Data is integers whose sums are exact in either framework, so results must be equal.
"""

import timeit
from functools import partial
from itertools import product

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxconv
from jaxconv import torch as ours
from tests.support.forms import slow_if
from tests.support.peers import integers, peer
from tests.support.timing import takes_at_most
from tests.support.torch_layers import EVERY, Call, draw_call

torch = peer("torch")
F = torch.nn.functional
# PyTorch warns that it copies the input to add the odd zero of padding="same".
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same'")


def compute_theirs(call, arrays, seed, dtype=torch.float32):
    """PyTorch's result, and its gradient for each operand, where the result's is `seed`."""
    tensors = [torch.tensor(a).to(dtype).requires_grad_() for a in arrays]
    out = call.theirs(*tensors)
    slopes = torch.autograd.grad(out, tensors, torch.tensor(seed).to(dtype))
    return [x.detach().float().numpy() for x in (out, *slopes)]


def compute_ours(call, arrays, seed, dtype=np.float32):
    """Our result, and its gradient for each operand."""

    def compute(seed, *arrays):
        out, pull_back = jax.vjp(call.ours, *arrays)
        return [out, *pull_back(seed)]

    return [
        np.asarray(x) for x in jax.jit(compute)(*(jnp.asarray(a, dtype) for a in (seed, *arrays)))
    ]


def draw_data(rng, call, most=30):
    sizes = [call.input, call.weight, *[call.bias] * (call.bias is not None)]
    arrays = [integers(rng, size, most=most) for size in sizes]
    with torch.no_grad():
        out = call.theirs(*map(torch.tensor, arrays))
    return arrays, integers(rng, tuple(out.shape), most=most)


def check_values(rng, call):
    arrays, seed = draw_data(rng, call)
    found = compute_ours(call, arrays, seed)
    for our, their in zip(found, compute_theirs(call, arrays, seed), strict=True):
        np.testing.assert_array_equal(our, their, err_msg=str(call))


@pytest.mark.parametrize("seed", [pytest.param(n, marks=slow_if(n >= 24)) for n in range(96)])
def test_values_and_gradients(seed):
    rng = np.random.default_rng([1, seed])
    check_values(rng, draw_call(rng))


def test_an_output_padding_of_the_stride_or_more():
    """Where the dilation exceeds it."""
    more = {"stride": (2, 1), "dilation": (4, 3), "output_padding": (2, 2)}
    call = Call("conv_transpose2d", (1, 2, 8, 10), (2, 3, 2, 3), None, more)
    check_values(np.random.default_rng(1), call)


MODULES = torch.nn.ConvTranspose1d, torch.nn.ConvTranspose2d, torch.nn.ConvTranspose3d


@pytest.mark.parametrize(
    ("src", "kernel", "strides", "dilations", "pads", "sizes"),
    [
        # The largest size that PyTorch admits, the smallest, and one between, per axis.
        ((5,), (4,), (3,), (1,), (1,), (16,)),
        ((5, 4), (3, 2), (2, 3), (2, 1), (1, 0), (12, 11)),
        ((3, 4, 2), (2, 3, 1), (4, 2, 3), (1, 1, 2), (0, 1, 0), (12, 7, 6)),
    ],
)
def test_output_size(src, kernel, strides, dilations, pads, sizes):
    """The `output_size` of PyTorch's modules is the spatial part of `dst_shape`."""
    module = MODULES[len(src) - 1](6, 4, kernel, strides, pads, 0, 2, True, dilations)
    rng = np.random.default_rng(20)
    x, w, b = (integers(rng, shape) for shape in ((2, 6, *src), (6, 2, *kernel), (4,)))
    with torch.no_grad():
        module.weight.copy_(torch.tensor(w))
        module.bias.copy_(torch.tensor(b))
        their = module(torch.tensor(x), output_size=sizes).numpy()
    our = partial(
        jaxconv.conv_transpose, strides=strides, pads_begin=pads, pads_end=pads,
        dilations=dilations, groups=2, data_format="NCX", weights_format="IOX",
        dst_shape=(2, 4, *sizes),
    )  # fmt: skip
    np.testing.assert_array_equal(our(x, w, b), their, strict=True)
    # Weights that hold the input channels of a group are PyTorch's, regrouped.
    regrouped = np.concatenate(np.split(w, 2), axis=1)
    np.testing.assert_array_equal(our(x, regrouped, b), their, strict=True)


@pytest.mark.parametrize(("name", "number"), list(product(EVERY, (3, 4))))
def test_bfloat16_is_rounded_once(name, number):
    """Ours is the exact sum rounded once, and PyTorch's no further than one rounding from it.

    Of a transposed convolution, PyTorch rounds the sums of each tap, and may be further away.
    """
    rng = np.random.default_rng(number)
    call = draw_call(rng, name=name)
    arrays, seed = draw_data(rng, call)
    exact = compute_theirs(call, arrays, seed)
    theirs = compute_theirs(call, arrays, seed, torch.bfloat16)
    found = compute_ours(call, arrays, seed, jnp.bfloat16)
    for at, (our, their, sums) in enumerate(zip(found, theirs, exact, strict=True)):
        assert our.dtype == jnp.bfloat16
        if at != 1 or call.padding_mode == "zeros":  # the gradient of a pad is added up in bfloat16
            np.testing.assert_array_equal(our, sums.astype(jnp.bfloat16), err_msg=str(call))
        if at == 0 and not call.transposed:
            np.testing.assert_allclose(np.float32(our), their, rtol=2**-7, err_msg=str(call))


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


def test_what_is_no_state_dict():
    with pytest.raises(TypeError, match="Call its method `state_dict`"):
        ours.load(torch.nn.Conv2d(1, 1, 1))
    with pytest.raises(TypeError, match="entry 'b' must be a dense tensor"):
        ours.load({"b": torch.eye(2).to_sparse()})


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
