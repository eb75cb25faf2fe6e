"""`jaxconv.torch` against PyTorch: values, gradients, sizes, what is refused, and words.

Data is integers whose sums are exact in either framework, so results must be equal. Calls are drawn
at random: of layers that PyTorch takes, and of any arguments, which both take or both refuse.
"""

import inspect
import re
import timeit
from functools import partial
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxconv
from jaxconv import torch as ours
from tests.support.peers import integers, peer
from tests.support.timing import takes_at_most

torch = peer("torch")
F = torch.nn.functional
# PyTorch warns that it copies the input to add the odd zero of padding="same".
pytestmark = pytest.mark.filterwarnings("ignore:Using padding='same'")


class Layer(NamedTuple):
    """A call of a function by its name, with the sizes of its tensors."""

    name: str
    input: tuple
    weight: tuple
    bias: tuple | None
    arguments: dict
    padding_mode: str = "zeros"

    @property
    def transposed(self):
        return "transpose" in self.name

    def ours(self, x, w, b=None):
        mode = {} if self.padding_mode == "zeros" else {"padding_mode": self.padding_mode}
        return getattr(ours, self.name)(x, w, b, **self.arguments, **mode)

    def theirs(self, x, w, b=None):
        """The function, or the module where there is a padding mode."""
        if self.padding_mode == "zeros":
            return getattr(F, self.name)(x, w, b, **self.arguments)
        make, (out, into, *kernel) = getattr(torch.nn, self.name.capitalize()), self.weight
        into *= self.arguments.get("groups", 1)
        mode = {"bias": b is not None, "padding_mode": self.padding_mode}
        module = make(into, out, tuple(kernel), **self.arguments, **mode)
        tensors = {"weight": w} | ({} if b is None else {"bias": b})
        return torch.func.functional_call(module, tensors, (x,))


def draw_layer(rng, *, name=None, mode=None, strings=True):
    """Sizes and arguments of a layer that PyTorch takes."""

    def each(least, most):
        """An int, or one for each axis, or one in a list."""
        ints = tuple(int(n) for n in rng.integers(least, most, rank, endpoint=True))
        return [ints, ints[0], ints[:1]][rng.choice(3, p=(0.6, 0.3, 0.1))]

    def spread(value):
        return (value,) * rank if isinstance(value, int) else tuple(value) * (rank // len(value))

    rank = int(name[-2]) if name else int(rng.choice([1, 2, 2, 3]))
    transposed = "transpose" in name if name else rng.random() < 0.4
    groups = int(rng.choice([1, 1, 2, 3]))
    into, out = (groups * int(n) for n in rng.integers(1, 3, 2, endpoint=True))
    kernel = tuple(int(n) for n in rng.integers(1, 4, rank, endpoint=True))
    stride, dilation = each(1, 3), each(1, 3)
    mode = mode or ("zeros" if transposed else str(rng.choice([*["zeros"] * 9, *MODES])))
    reach = [d * (k - 1) for d, k in zip(spread(dilation), kernel, strict=True)]
    padding: Any = each(0, 2)
    if transposed:
        pads = spread(padding)
        extents = [
            int(rng.integers(1, 5)) + -(-max(2 * p - r, 0) // s)
            for r, p, s in zip(reach, pads, spread(stride), strict=True)
        ]
    else:
        if strings and rng.random() < 0.3:
            padding = str(rng.choice(["valid", "same"]))
        pads = {"valid": (0,) * rank, "same": [r // 2 for r in reach]}.get(padding)
        stride = 1 if padding == "same" else stride
        pads = pads or spread(padding)
        extents = [
            max(r + 1 - 2 * p, p + 2, (r + 1) // 2 + 1) + int(rng.integers(4))
            for r, p in zip(reach, pads, strict=True)
        ]
    if mode != "zeros":  # PyTorch's modules do not know (1,), though its functions do
        stride, dilation = spread(stride), spread(dilation)
        padding = padding if isinstance(padding, str) else spread(padding)
    arguments = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    if transposed:
        most = [max(s, d) for s, d in zip(spread(stride), spread(dilation), strict=True)]
        arguments["output_padding"] = tuple(int(rng.integers(n)) for n in most)
    if rng.random() < 0.2:
        arguments = {n: v for n, v in arguments.items() if n == "groups" or v != 1}
    batch = [(int(rng.integers(1, 3)),), ()][rng.random() < 0.25]
    weight = (into, out // groups) if transposed else (out, into // groups)
    return Layer(
        f"conv{'_transpose' * transposed}{rank}d",
        (*batch, into, *extents),
        (*weight, *kernel),
        (out,) if rng.random() < 0.5 else None,
        arguments,
        mode,
    )


MODES = ["reflect", "replicate", "circular"]


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
@pytest.mark.parametrize("seed", range(24))
def test_values_and_gradients_of_many(seed):
    """1,200 calls in all."""
    rng = np.random.default_rng([2, seed])
    for _ in range(50):
        check_values(rng)
    jax.clear_caches()


EVERY = [f"conv{kind}{rank}d" for kind in ("", "_transpose") for rank in (1, 2, 3)]


def check_bfloat16(rng, **drawn):
    """Ours is the exact sum rounded once, and PyTorch's no further than one rounding from it."""
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
        if at == 0:
            np.testing.assert_allclose(np.float32(our), their, rtol=2**-7, err_msg=str(layer))


@pytest.mark.parametrize("name", ["conv2d", "conv_transpose1d"])
def test_bfloat16_is_rounded_once(name):
    check_bfloat16(np.random.default_rng(3), name=name)


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_bfloat16_of_many_is_rounded_once(name):
    rng = np.random.default_rng(4)
    for _ in range(25):
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
@pytest.mark.parametrize("seed", range(8))
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


# What is taken and what is refused.


def break_layer(rng, layer):
    """Change an argument or a size, so that PyTorch may refuse the call."""
    arguments, rank = dict(layer.arguments), int(layer.name[-2])
    strange = [0, -1, 2, 3, 5, (1,) * rank, (2,) * (rank + 1), (), (3,), True, 1.0, None, "same"]
    which = rng.integers(6)
    if which < 4:
        name = str(rng.choice(list(arguments)))
        arguments[name] = strange[rng.integers(len(strange))]
        return layer._replace(arguments=arguments)
    field = str(rng.choice(["input", "weight", "bias"]))
    size = list(getattr(layer, field) or (1,))
    if which == 4:
        size[rng.integers(len(size))] += int(rng.choice([-1, 1]))
    else:
        size = [size[1:], [1, *size]][rng.integers(2)]
    return layer._replace(**{field: tuple(size)})


def size_or_error(compute, *tensors):
    try:
        return tuple(compute(*tensors).shape)
    except (RuntimeError, ValueError, TypeError) as error:
        return error


typed = partial(jax.ShapeDtypeStruct, dtype=np.float32)


def check_refusal(rng):
    layer = break_layer(rng, draw_layer(rng))
    sizes = [layer.input, layer.weight, *[layer.bias] * (layer.bias is not None)]
    their = size_or_error(layer.theirs, *(torch.zeros(size) for size in sizes))
    our = size_or_error(partial(jax.eval_shape, layer.ours), *map(typed, sizes))
    if isinstance(their, tuple) and 0 in their:  # we refuse results without elements
        their = ValueError()
    if isinstance(our, Exception):
        assert isinstance(their, Exception), (layer, our)
        assert str(our).startswith(f"{layer.name}: "), (layer, our)
    else:
        assert our == their, layer
    return isinstance(our, Exception)


def test_what_pytorch_refuses_is_refused():
    rng = np.random.default_rng(9)
    refused = sum(check_refusal(rng) for _ in range(150))
    assert 50 < refused < 140


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_what_pytorch_refuses_is_refused_often(seed):
    rng = np.random.default_rng([10, seed])
    for _ in range(1000):
        check_refusal(rng)


CONV, WEIGHT, UP = (2, 4, 8, 9), (6, 4, 3, 3), (4, 6, 3, 3)


@pytest.mark.parametrize(
    ("name", "sizes", "arguments", "words"),
    [
        ("conv2d", (CONV, WEIGHT), {"stride": 0}, "non-positive stride is not supported"),
        ("conv2d", (CONV, WEIGHT), {"dilation": 0}, "non-positive dilation is not supported"),
        ("conv2d", (CONV, WEIGHT), {"groups": 0}, "non-positive groups is not supported"),
        ("conv2d", (CONV, WEIGHT), {"padding": -1}, "negative padding is not supported"),
        ("conv2d", (CONV, WEIGHT), {"padding": "Same"}, "invalid padding string"),
        (
            "conv2d", (CONV, WEIGHT), {"padding": "same", "stride": (1, 2)},
            "padding='same' is not supported for strided convolutions",
        ),
        ("conv2d", ((8, 9), WEIGHT), {}, "expected 3D (unbatched) or 4D (batched) input"),
        ("conv2d", (CONV, (6, 3, 3, 3)), {}, "to have 3 channels, but got 4 channels instead"),
        (
            "conv2d", (CONV, (5, 2, 3, 3)), {"groups": 2},
            "expected weight to be divisible by .*2 at dimension 0",
        ),
        ("conv2d", (CONV, WEIGHT, (5,)), {}, "expected bias to be 1-dimensional with 6 elements"),
        (
            "conv2d", (CONV, (6, 4, 10, 3)), {},
            "kernel size can't be greater than actual input size",
        ),
        (
            "conv_transpose2d", (CONV, UP), {"output_padding": 1},
            "output padding must be smaller than either stride or dilation",
        ),
        (
            "conv_transpose2d", (CONV, UP), {"output_padding": -1, "stride": 2},
            "negative output_padding is not supported",
        ),
        ("conv_transpose2d", (CONV, WEIGHT), {}, "to have 6 channels, but got 4 channels instead"),
        (
            "conv_transpose1d", ((3, 5), (3, 4, 2), (3,)), {},
            "expected bias to be 1-dimensional with 4 elements",
        ),
        (
            "unfold", (CONV,), {"kernel_size": 10},
            "calculated shape of the array of sliding blocks as (-1, 0), but its components must",
        ),
        ("unfold", (CONV,), {"kernel_size": 0}, "kernel.size should be greater than zero"),
        ("unfold", (CONV,), {"kernel_size": 2, "padding": -1}, "should be non-negative"),
        (
            "fold", ((2, 36, 41),), {"output_size": (8, 9), "kernel_size": 3},
            "to match the calculated number of sliding blocks 6 * 7 = 42",
        ),
        (
            "fold", ((2, 35, 42),), {"output_size": (8, 9), "kernel_size": 3},
            "to be divisible by the product of kernel_size",
        ),
        (
            "fold", ((1, 2, 36, 42),), {"output_size": (8, 9), "kernel_size": 3},
            "expected 2D or 3D (batch mode)",
        ),
    ],
)  # fmt: skip
def test_errors_have_the_words_of_pytorch(name, sizes, arguments, words):
    """Where they have a pattern, it stands for a spelling that differs."""
    pattern = "(?i)" + (words if re.search(r"\.[ *s]", words) else re.escape(words))
    with pytest.raises(RuntimeError, match=pattern):
        getattr(F, name)(*map(torch.zeros, sizes), **arguments)
    with pytest.raises(ValueError, match=pattern):
        getattr(ours, name)(*map(np.zeros, sizes), **arguments)


@pytest.mark.parametrize(
    ("mode", "padding", "words"),
    [
        ("reflect", (8, 1), "padding size should be less than the corresponding input dimension"),
        ("circular", (9, 1), "padding size should not exceed"),
        ("constant", 1, "`padding_mode` must be 'zeros', 'reflect', 'replicate' or 'circular'"),
    ],
)
def test_errors_of_padding_modes(mode, padding, words):
    layer = Layer("conv2d", CONV, WEIGHT, None, {"padding": padding}, mode)
    with pytest.raises((RuntimeError, ValueError)):
        layer.theirs(torch.zeros(CONV), torch.zeros(WEIGHT))
    with pytest.raises(ValueError, match=words):
        ours.conv2d(np.zeros(CONV), np.zeros(WEIGHT), padding=padding, padding_mode=mode)


def test_errors_with_a_remedy():
    x, w = np.zeros((2, 8, 9, 4), np.float32), np.zeros(WEIGHT, np.float32)
    with pytest.raises(ValueError, match="Channels last would fit"):
        ours.conv2d(x, w)
    with pytest.raises(TypeError, match="conv2d: all arrays must have the same type"):
        ours.conv2d(np.zeros(CONV, np.float32), w.astype(jnp.bfloat16))
    with pytest.raises(TypeError, match="conv2d: `weight` must be a JAX or NumPy array"):
        ours.conv2d(x, torch.zeros(WEIGHT))
    with pytest.raises(ValueError, match=r"size of the layer's output, \(2, 6, 6, 7\)"):
        ours.grad.conv2d_input(CONV, w, np.zeros((2, 6, 6, 6), np.float32))
    with pytest.raises(ValueError, match="except for the batch"):
        ours.conv2d(np.zeros((2, 0, 8, 9), np.float32), w[:, :0])


# Sizes.


def test_output_padding_leads_to_the_output_size():
    """For all sizes around those within reach, or else to PyTorch's words."""
    rng, taken = np.random.default_rng(11), 0
    for _ in range(100):
        layer = draw_layer(rng, name="conv_transpose2d")
        into, out, *kernel = layer.weight
        named = ("stride", "padding", "dilation")
        arguments = {n: v for n, v in layer.arguments.items() if n in named}
        arguments = {n: v * 2 if v in ((0,), (1,), (2,), (3,)) else v for n, v in arguments.items()}
        module = torch.nn.ConvTranspose2d(into, out, kernel, **arguments)
        x = torch.zeros(layer.input)
        least = module(x).shape[-2:]
        size = tuple(int(n + rng.choice([-1, 0, 0, 1, 1, 2])) for n in least)
        size = (*layer.input[:-2], *size) if rng.random() < 0.3 else size
        find = partial(ours.find_output_padding, x, module.weight, size, **arguments)
        their = size_or_error(partial(module, output_size=list(size)), x)
        if isinstance(their, tuple):
            assert their[-2:] == size[-2:]
            assert find() == tuple(np.subtract(size[-2:], least))
            taken += 1
        else:
            words = (
                str(their)[: str(their).index(" (for an input")].replace("[", "(").replace("]", ")")
            )
            with pytest.raises(ValueError, match=re.escape(words)):
                find()
    assert 20 < taken < 80


def test_an_output_size_of_another_length_is_refused():
    x, w = np.zeros((1, 4, 5, 5)), np.zeros((4, 6, 3, 3))
    with pytest.raises(ValueError, match="`output_size` must be a sequence of 2 ints, or 4 ints"):
        ours.find_output_padding(x, w, (11,))
    assert ours.find_output_padding(x[0], w, (6, 12, 11), stride=2) == (1, 0)


# PyTorch's own examples, and its signatures.

EXAMPLES = [
    ("conv1d", ((33, 16, 30), (20, 16, 5)), {}),
    ("conv2d", ((1, 4, 5, 5), (8, 4, 3, 3)), {"padding": 1}),
    ("conv_transpose1d", ((20, 16, 50), (16, 33, 5)), {}),
    ("conv_transpose2d", ((1, 4, 5, 5), (4, 8, 3, 3)), {"padding": 1}),
    pytest.param("conv3d", ((20, 16, 50, 10, 20), (33, 16, 3, 3, 3)), {}, marks=pytest.mark.slow),
    pytest.param(
        "conv_transpose3d", ((20, 16, 50, 10, 20), (16, 33, 3, 3, 3)), {}, marks=pytest.mark.slow
    ),
    ("unfold", ((1, 3, 10, 12),), {"kernel_size": (4, 5)}),
    ("fold", ((1, 3 * 2 * 2, 12),), {"output_size": (4, 5), "kernel_size": (2, 2)}),
]


@pytest.mark.parametrize(("name", "sizes", "arguments"), EXAMPLES)
def test_the_examples_of_pytorch(name, sizes, arguments):
    """Those of its pages, with integers for its random numbers."""
    arrays = [integers(np.random.default_rng(12), size, most=9) for size in sizes]
    their = getattr(F, name)(*map(torch.tensor, arrays), **arguments)
    np.testing.assert_array_equal(getattr(ours, name)(*arrays, **arguments), their)


def test_the_examples_of_unfold_and_fold():
    """A convolution is unfold, a product and fold; and fold of unfold divides by a divisor."""
    rng = np.random.default_rng(13)
    x, w = integers(rng, (1, 3, 10, 12)), integers(rng, (2, 3, 4, 5))
    products = jnp.einsum("nkl,ok->nol", ours.unfold(x, (4, 5)), w.reshape(2, -1))
    expected = F.conv2d(torch.tensor(x), torch.tensor(w))
    np.testing.assert_array_equal(ours.fold(products, (7, 8), (1, 1)), expected)
    window = {"kernel_size": 3, "dilation": 1, "padding": 1, "stride": 2}
    again = ours.fold(ours.unfold(x, **window), (10, 12), **window)
    divisor = ours.fold(ours.unfold(np.ones_like(x), **window), (10, 12), **window)
    np.testing.assert_array_equal(again, divisor * x)


def test_the_example_of_an_output_size():
    """Downsample and upsample again, as the page about ConvTranspose2d does."""
    rng = np.random.default_rng(14)
    x, down, up = (
        integers(rng, s, most=5) for s in ((1, 16, 12, 12), (16, 16, 3, 3), (16,) * 2 + (3, 3))
    )
    h = ours.conv2d(x, down, stride=2, padding=1)
    padding = ours.find_output_padding(h, up, x.shape, stride=2, padding=1)
    out = ours.conv_transpose2d(h, up, stride=2, padding=1, output_padding=padding)
    module = torch.nn.ConvTranspose2d(16, 16, 3, stride=2, padding=1, bias=False)
    with torch.no_grad():
        module.weight.copy_(torch.tensor(up))
        their = module(torch.tensor(np.asarray(h)), output_size=x.shape).numpy()
    np.testing.assert_array_equal(out, their)


@pytest.mark.parametrize("rank", [1, 2, 3])
def test_the_functions_of_torch_nn_grad(rank):
    """By position, in their order."""
    rng = np.random.default_rng(15)
    x, w = integers(rng, (2, 4, *(7, 6, 5)[:rank])), integers(rng, (6, 2, *(3, 2, 3)[:rank]))
    rest = 2, 1, 1, 2
    dst = getattr(F, f"conv{rank}d")(torch.tensor(x), torch.tensor(w), None, *rest)
    slope = integers(rng, tuple(dst.shape))
    for of, operands in (("input", (x.shape, w)), ("weight", (x, w.shape))):
        name = f"conv{rank}d_{of}"
        their = getattr(torch.nn.grad, name)(
            *(torch.tensor(o) if isinstance(o, np.ndarray) else o for o in operands),
            torch.tensor(slope), *rest,
        )  # fmt: skip
        np.testing.assert_array_equal(getattr(ours.grad, name)(*operands, slope, *rest), their)


def signature_of(function):
    return {n: p.default for n, p in inspect.signature(function).parameters.items()}


@pytest.mark.parametrize("name", [*EVERY, "fold", "unfold"])
def test_the_signatures_of_the_functions(name):
    """Those of built-in functions stand in the first line of their docstrings."""
    theirs = getattr(F, name)
    if name in EVERY:
        line = next(line for line in theirs.__doc__.splitlines() if line.startswith(f"{name}("))
        namespace = {}
        exec(f"def {line.replace('-> Tensor', '')}: ...", namespace)
        theirs = namespace[name]
    more = {"padding_mode": "zeros"} if name.startswith("conv") and "transpose" not in name else {}
    found = signature_of(getattr(ours, name))
    assert list(found.items()) == [*signature_of(theirs).items(), *more.items()]


@pytest.mark.parametrize("name", [n for n in ours.grad.__all__ if "transpose" not in n])
def test_the_signatures_of_gradients(name):
    found = signature_of(getattr(ours.grad, name))
    assert list(found.items()) == list(signature_of(getattr(torch.nn.grad, name)).items())


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
