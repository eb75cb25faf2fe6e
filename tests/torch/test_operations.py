"""The six operations against PyTorch, in values: those of one family are derivatives there.

Data is integers whose sums are exact in either framework, so results must be equal. Where
PyTorch differs:

- It pads both ends of an axis alike.
- output_padding must be less than the stride or the dilation; ours is any non-negative int.
- output_size, of the modules only, exceeds the smallest size by less than the stride; our
  dst_shape by any amount. It counts the spatial axes; dst_shape is the full shape.
- Transposed weights hold all input channels and the output channels of a group; ours may be
  the other way round as well.
- There is no function for the weights gradient of a transposed convolution, only autograd.
"""

from dataclasses import replace
from functools import partial
from itertools import product

import jax
import numpy as np
import pytest

import jaxconv
from tests.support.forms import ROLES, Form
from tests.support.peers import integers, peer
from tests.support.torch_layers import draw_layer

torch = peer("torch")
F = torch.nn.functional

FORMATS = list(product(("NXC", "NCX"), ("OIX", "XIO", "IOX", "XOI")))
FAMILIES = ["convolution", "conv_transpose"]
#: An output_padding of the stride or more, where the dilation exceeds it.
LONG = Form((20, 17), (2, 3), (2, 1), (4, 3), (0, 0), (-2, -2), (3, 2))


def theirs(form, family, a, w):
    """Of arrays in PyTorch's layout, in which both families have the coarse channels first."""
    transposed = family == "conv_transpose"
    function = getattr(F, f"conv{'_transpose' * transposed}{form.rank}d")
    more = {"output_padding": form.output_padding} if transposed else {}
    return function(
        a, w, stride=form.strides, padding=form.pads_begin, dilation=form.dilations,
        groups=form.groups, **more,
    )  # fmt: skip


def relaid(form, slot, array):
    """From PyTorch's layout to that of a layer."""
    source, target = (f[slot == "kernel"] for f in (("NCX", "OIX"), form.formats))
    axes = {"X": list(range(2, array.ndim))} | {source[at]: [at] for at in (0, 1)}
    return array.transpose([axis for letter in target for axis in axes[letter]])


def compare(form, family, draw):
    """The operations of a family, each with the arrays of the other two slots."""
    shapes = replace(form, formats=("NCX", "OIX")).shapes
    first, second, result = ROLES[family]
    tensors = {slot: draw(shapes[slot]) for slot in (first, second, result)}
    a, w = (torch.tensor(tensors[slot], requires_grad=True) for slot in (first, second))
    out = theirs(form, family, a, w)
    pulled = torch.autograd.grad(out, (a, w), torch.tensor(tensors[result]))
    expected = dict(zip((result, first, second), (out.detach(), *pulled), strict=True))
    given = {slot: relaid(form, slot, array) for slot, array in tensors.items()}
    ops = {slots[2]: (op, slots[:2]) for op, slots in ROLES.items() if op.startswith(family)}

    @jax.jit
    def run(given):
        return {
            slot: form.op(op, precision="highest")(*(given[s] for s in read))
            for slot, (op, read) in ops.items()
        }

    for slot, found in run(given).items():
        exact = relaid(form, slot, expected[slot].numpy())
        np.testing.assert_array_equal(found, exact, f"{form} {slot}", strict=True)


@pytest.mark.parametrize("formats", FORMATS, ids="-".join)
@pytest.mark.parametrize("family", FAMILIES)
def test_values(family, formats):
    """Of two random layers."""
    rng = np.random.default_rng(20 + FORMATS.index(formats))
    for _ in range(2):
        compare(replace(draw_layer(rng), formats=formats), family, partial(integers, rng))


def test_a_long_output_padding():
    compare(LONG, "conv_transpose", partial(integers, np.random.default_rng(20)))


@pytest.fixture
def rng():
    return np.random.default_rng(20)


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
    our = partial(
        jaxconv.conv_transpose, strides=strides, pads_begin=pads, pads_end=pads,
        dilations=dilations, groups=2, data_format="NCX", weights_format="IOX",
        dst_shape=(2, 4, *sizes),
    )  # fmt: skip
    np.testing.assert_array_equal(our(x, w, b), their, strict=True)
    # Weights that hold the input channels of a group are PyTorch's, regrouped.
    regrouped = np.concatenate(np.split(w, 2), axis=1)
    np.testing.assert_array_equal(our(x, regrouped, b), their, strict=True)
