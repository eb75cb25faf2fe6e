"""The six operations and their derivatives against PyTorch, in values.

Data is integers whose sums are exact in either framework, so results must be equal. Arrays are
in PyTorch's layout, NCX and OIX (IOX for a transposed convolution), until `ours` carries them
into the layout under test and the result back.

Where PyTorch differs:

- It pads both ends of an axis alike. Other pads are added to src, or cropped from dst, here.
- padding="same" wants strides of 1. Of an odd total the extra goes to the end: same_upper.
- output_padding must be less than the stride or the dilation; ours is any non-negative int.
- output_size, of the modules only, exceeds the smallest size by less than the stride; our
  dst_shape by any amount. It counts the spatial axes; dst_shape is the full shape.
- Transposed weights hold all input channels and the output channels of a group; ours may be
  the other way round as well.
- There is no function for the weights gradient of a transposed convolution, only autograd.
"""

from functools import partial
from typing import NamedTuple

import jax
import numpy as np
import pytest

import jaxconv
from tests.support.peers import integers, peer

torch = peer("torch")
F = torch.nn.functional


class Case(NamedTuple):
    """The spatial extents of src, and the attributes, per axis."""

    src: tuple
    kernel: tuple
    strides: tuple
    dilations: tuple
    pads_begin: tuple
    pads_end: tuple
    output_padding: tuple  # of the transposed operations
    batch: int = 2
    channels: tuple = (3, 2)  # of src and of dst
    groups: int = 1
    layout: tuple | None = None  # data_format and weights_format; None leaves out both


CASES = {
    "1d": Case((11,), (4,), (3,), (1,), (1,), (1,), (2,), layout=("NXC", "IOX")),
    "1d pads": Case((9,), (3,), (2,), (2,), (0,), (3,), (1,), layout=("NCX", "XIO")),
    "1d groups": Case((10,), (3,), (1,), (3,), (2,), (2,), (2,), 3, (6, 4), 2),
    "2d": Case((9, 8), (3, 2), (2, 3), (1, 2), (1, 0), (1, 0), (1, 2)),
    "2d pads": Case((8, 7), (2, 4), (3, 1), (2, 1), (2, 0), (1, 3), (2, 0), layout=("NCX", "OIX")),
    "2d groups": Case((7, 10), (2, 3), (2, 1), (1, 3), (0, 2), (1, 3), (1, 2), 2, (4, 6), 2),
    "2d depthwise": Case((7, 6), (3, 2), (2, 1), (1, 2), (1, 1), (1, 1), (0, 1), 2, (5, 5), 5),
    "2d multiplier": Case(
        (6, 8), (2, 3), (1, 2), (1, 1), (0, 1), (0, 1), (0, 1), 1, (3, 6), 3, ("NCX", "XOI")
    ),
    # An output_padding of the stride or more, where the dilation exceeds it.
    "2d long output_padding": Case((7, 9), (2, 3), (2, 1), (4, 3), (2, 1), (2, 1), (3, 2)),
    "2d 1x1": Case((5, 8), (1, 1), (2, 3), (1, 1), (0, 0), (0, 0), (1, 2), 3, (4, 3)),
    "3d": Case((6, 7, 5), (2, 3, 4), (2, 1, 3), (1, 2, 1), (1, 0, 2), (1, 0, 2), (1, 1, 2)),
    "3d groups": Case(
        (5, 6, 8), (3, 2, 1), (2, 3, 2), (2, 1, 1), (1, 2, 0), (2, 0, 1), (1, 2, 1), 1, (4, 2), 2
    ),
}

# The tensors that an operation reads, and the one that it computes. A gradient goes by the
# name of the tensor that it has the shape of.
TENSORS = {
    "convolution": (("src", "weights", "bias"), "dst"),
    "convolution_backward_data": (("dst", "weights"), "src"),
    "convolution_backward_weights": (("src", "dst"), "weights"),
    "conv_transpose": (("src", "weights", "bias"), "dst"),
    "conv_transpose_backward_data": (("dst", "weights"), "src"),
    "conv_transpose_backward_weights": (("src", "dst"), "weights"),
}
OPS = list(TENSORS)


def family_of(op):
    return op.split("_backward")[0]


def shapes_of(family, case):
    """The shape of each tensor, in PyTorch's layout; that of dst as PyTorch finds it."""
    ic, oc = case.channels
    divided = (oc, ic // case.groups) if family == "convolution" else (ic, oc // case.groups)
    shapes = {
        "src": (case.batch, ic, *case.src),
        "weights": (*divided, *case.kernel),
        "bias": (oc,),
    }
    dst = theirs(family, case)(torch.zeros(shapes["src"]), torch.zeros(shapes["weights"]))
    return shapes | {"dst": tuple(dst.shape)}


# PyTorch.


def theirs(op, case):
    """The operation in PyTorch, differentiable to any order."""
    forward = {"convolution": padded_convolution, "conv_transpose": cropped_transpose}
    forward = partial(forward[family_of(op)], case)
    if op == family_of(op):
        return forward

    # Forward is linear in src and in weights, so where it is differentiated has no effect.
    def gradient(*tensors):
        given = dict(zip(TENSORS[op][0], tensors, strict=True))
        diff_dst = given.pop("dst")
        shapes = shapes_of(family_of(op), case)
        wanted = torch.zeros(shapes[TENSORS[op][1]], dtype=diff_dst.dtype, requires_grad=True)
        dst = forward(**given, **{TENSORS[op][1]: wanted})
        return torch.autograd.grad(dst, wanted, diff_dst, create_graph=True)[0]

    return gradient


def padded_convolution(case, src, weights, bias=None):
    """F.convNd, with uneven pads added to src before."""
    convolve = (F.conv1d, F.conv2d, F.conv3d)[len(case.src) - 1]
    padding = case.pads_begin
    if padding != case.pads_end:
        src, padding = F.pad(src, last_axis_first(case.pads_begin, case.pads_end)), 0
    return convolve(src, weights, bias, case.strides, padding, case.dilations, case.groups)


def cropped_transpose(case, src, weights, bias=None):
    """F.conv_transposeNd, with uneven pads cropped from dst after."""
    transpose = (F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d)[len(case.src) - 1]
    even = case.pads_begin == case.pads_end
    padding = case.pads_begin if even else 0
    dst = transpose(
        src, weights, bias, case.strides, padding, case.output_padding, case.groups, case.dilations
    )
    if even:
        return dst
    return F.pad(dst, [-pad for pad in last_axis_first(case.pads_begin, case.pads_end)])


def last_axis_first(begin, end):
    """Pads in the order of F.pad."""
    return [pad for axis in reversed(range(len(begin))) for pad in (begin[axis], end[axis])]


# Ours.


def orders_of(family, case):
    """For each tensor its axes, one letter each, in PyTorch's order and in that of `case`."""
    transposed = family == "conv_transpose"
    data_format, weights_format = case.layout or ("NXC", "XOI" if transposed else "XIO")
    x = "xyz"[: len(case.src)]
    data = "NC" + x, data_format.replace("X", x)
    weights = ("IO" if transposed else "OI") + x, weights_format.replace("X", x)
    return {"src": data, "dst": data, "weights": weights, "bias": ("O", "O")}


def relayout(array, source, target):
    """The array with its axes, named by the letters of `source`, in the order of `target`."""
    return np.transpose(array, [source.index(axis) for axis in target])


def ours(op, case):
    """Our operation on arrays in the layout of `case`, with its shape argument if it has one."""
    family = family_of(op)
    attributes = case._asdict()
    for name in ("src", "kernel", "batch", "channels", "layout"):
        del attributes[name]
    if family == "convolution":
        del attributes["output_padding"]
    if case.layout:
        attributes["data_format"], attributes["weights_format"] = case.layout
    result = TENSORS[op][1]
    argument = {
        "convolution_backward_data": "dst_shape",
        "convolution_backward_weights": "weights_shape",
        "conv_transpose_backward_weights": "weights_shape",
    }.get(op)
    if argument:
        source, target = orders_of(family, case)[result]
        shape = dict(zip(source, shapes_of(family, case)[result], strict=True))
        attributes[argument] = [shape[axis] for axis in target]
    return partial(getattr(jaxconv, op), **attributes, precision="highest")


# Side by side.


def draw_operands(op, case, draw):
    """Data for the tensors that the operation reads, and for the gradient of its result."""
    read, computed = TENSORS[op]
    shapes = shapes_of(family_of(op), case)
    return [draw(shapes[name]) for name in read], draw(shapes[computed])


def values(op, case, arrays):
    """Our result and PyTorch's."""
    read, computed = TENSORS[op]
    orders = orders_of(family_of(op), case)
    inputs = [relayout(array, *orders[name]) for name, array in zip(read, arrays, strict=True)]
    our = relayout(np.asarray(ours(op, case)(*inputs)), *reversed(orders[computed]))
    return our, theirs(op, case)(*map(torch.tensor, arrays)).detach().numpy()


def gradients(op, case, arrays, seed):
    """Our gradient and PyTorch's for each input, where the result's is `seed`."""
    read, computed = TENSORS[op]
    orders = orders_of(family_of(op), case)
    inputs = [relayout(array, *orders[name]) for name, array in zip(read, arrays, strict=True)]
    pull_back = jax.jit(lambda seed, *inputs: jax.vjp(ours(op, case), *inputs)[1](seed))
    pulled = pull_back(relayout(seed, *orders[computed]), *inputs)
    our = [
        relayout(np.asarray(gradient), *reversed(orders[name]))
        for name, gradient in zip(read, pulled, strict=True)
    ]
    tensors = [torch.tensor(array, requires_grad=True) for array in arrays]
    their = torch.autograd.grad(theirs(op, case)(*tensors), tensors, torch.tensor(seed))
    return list(zip(our, [gradient.numpy() for gradient in their], strict=True))


def assert_same(our, their):
    assert our.dtype == their.dtype
    np.testing.assert_array_equal(our, their)


@pytest.fixture
def rng():
    return np.random.default_rng(20)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("op", OPS)
def test_values(op, case, rng):
    case = CASES[case]
    assert_same(*values(op, case, draw_operands(op, case, partial(integers, rng))[0]))


# First derivatives are the contractions that test_values compares, here as JAX puts them
# together; those of a Backward operation are second ones.
FIRST = "1d pads", "2d groups", "2d multiplier", "2d long output_padding", "3d", "3d groups"
SECOND = "2d groups", "3d"


@pytest.mark.parametrize(
    ("op", "case"), [(op, case) for op in OPS for case in (SECOND if "backward" in op else FIRST)]
)
def test_gradients(op, case, rng):
    case = CASES[case]
    for our, their in gradients(op, case, *draw_operands(op, case, partial(integers, rng))):
        assert_same(our, their)


@pytest.mark.parametrize("op", OPS)
def test_float64(op, rng):
    """Of integers too wide for float32 anywhere on the way."""
    case, draw = CASES["2d groups"], partial(integers, rng, dtype=np.float64, most=2**20)
    arrays, seed = draw_operands(op, case, draw)
    with jax.enable_x64(True):
        for our, their in [values(op, case, arrays), *gradients(op, case, arrays, seed)]:
            assert_same(our, their)


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
def test_output_size(src, kernel, strides, dilations, pads, sizes, rng):
    """The `output_size` of PyTorch's modules is the spatial part of `dst_shape`."""
    module = MODULES[len(src) - 1](6, 4, kernel, strides, pads, 0, 2, True, dilations)
    x, w, b = (integers(rng, shape) for shape in ((2, 6, *src), (6, 2, *kernel), (4,)))
    with torch.no_grad():
        module.weight.copy_(torch.tensor(w))
        module.bias.copy_(torch.tensor(b))
        their = module(torch.tensor(x), output_size=sizes).numpy()
    our = jaxconv.conv_transpose(
        x, w, b, strides=strides, pads_begin=pads, pads_end=pads, dilations=dilations, groups=2,
        data_format="NCX", weights_format="IOX", dst_shape=(2, 4, *sizes),
    )  # fmt: skip
    assert_same(np.asarray(our), their)


# PyTorch warns that it copies src to add the odd zero.
@pytest.mark.filterwarnings("ignore:Using padding='same'")
@pytest.mark.parametrize(
    ("src", "kernel", "dilations"),
    [((7,), (4,), (1,)), ((6, 5), (2, 3), (3, 2)), ((5, 4, 6), (2, 4, 3), (1, 1, 2))],
)
def test_padding_same(src, kernel, dilations, rng):
    """PyTorch's padding="same" is same_upper, and not same_lower where a total is odd."""
    x, w = integers(rng, (2, 6, *src)), integers(rng, (4, 3, *kernel))
    convolve = (F.conv1d, F.conv2d, F.conv3d)[len(src) - 1]
    their = convolve(torch.tensor(x), torch.tensor(w), None, 1, "same", dilations, 2).numpy()
    ours = partial(
        jaxconv.convolution,
        x, w, dilations=dilations, groups=2, data_format="NCX", weights_format="OIX",
    )  # fmt: skip
    assert_same(np.asarray(ours(auto_pad="same_upper")), their)
    assert not np.array_equal(ours(auto_pad="same_lower"), their)


def test_weights_with_divided_input_channels(rng):
    """Where transposed weights hold the input channels of a group, they are PyTorch's regrouped."""
    case = CASES["2d groups"]._replace(layout=("NCX", "IOX"))
    src, weights, bias = draw_operands("conv_transpose", case, partial(integers, rng))[0]
    _, their = values("conv_transpose", case, [src, weights, bias])
    groups = np.split(weights, case.groups)  # of (IC/g, OC/g, X)
    our = ours("conv_transpose", case)(src, np.concatenate(groups, axis=1), bias)
    assert_same(np.asarray(our), their)
