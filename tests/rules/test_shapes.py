"""Shapes that do not fit each other: each rule broken once, and the layouts that are hinted at."""

import re

import jax
import numpy as np
import pytest
from jax import export

import jaxconv
from tests.support import calls

RESULTS = (calls.COARSE, calls.FINE, calls.KERNEL, calls.FINE, calls.COARSE, calls.KERNEL)


@pytest.mark.parametrize(("op", "shape"), list(zip(calls.VALID, RESULTS, strict=True)))
def test_the_call_that_the_tests_break_is_valid(op, shape):
    """Empty pads are zeros."""
    assert calls.call(op, pads_begin=[], pads_end=[]).shape == shape


FITS = ". These shapes would fit"
RULES = [
    # Ranks and extents.
    ("convolution", {"src": (7, 4)},
     "`src` must have a batch axis, a channel axis and at least one spatial axis; "
     "got shape (7, 4)"),
    ("convolution", {"src": (7, 6, 4)},
     "`weights` must have as many axes as `src`; got shapes (3, 2, 2, 6) and (7, 6, 4). "
     "Does `src` lack its batch axis?"),
    ("convolution", {"weights": (3, 2, 6)},
     "`weights` must have as many axes as `src`; got shapes (3, 2, 6) and (2, 7, 6, 4)"),
    ("convolution_backward_weights", {"diff_dst": (3, 4, 6)},
     "`diff_dst` must have as many axes as `src`; got shapes (3, 4, 6) and (2, 7, 6, 4). "
     "Does `diff_dst` lack its batch axis?"),
    ("convolution", {"src": (2, 0, 6, 4)},
     "`src` must have extents of at least 1 (only the batch may be 0); got shape (2, 0, 6, 4)"),
    ("convolution_backward_data", {"dst_shape": (2, 7, -6, 4)},
     "`dst_shape` must have extents of at least 1 (only the batch may be 0); "
     "got shape (2, 7, -6, 4)"),
    # Batch and channels.
    ("convolution_backward_weights", {"diff_dst": (1, 3, 4, 6)},
     "`diff_dst` must have the batch of `src`; got shapes (1, 3, 4, 6) and (2, 7, 6, 4) (NXC)"),
    ("convolution", {"groups": 3},
     "`groups` must divide the src channels; got groups=3, channels=4 from src shape "
     "(2, 7, 6, 4) (NXC)"),
    ("convolution", {"weights": (3, 2, 2, 5)},
     "`groups` must divide axis O of `weights`; got groups=2, 5 in shape (3, 2, 2, 5) (XIO)"),
    ("convolution", {"weights": (3, 2, 3, 6)},
     "`weights` must have src channels / groups = 2 on axis I; got 3 in shape (3, 2, 3, 6) "
     "(XIO), groups=2, channels=4 from src shape (2, 7, 6, 4) (NXC)"),
    ("convolution", {"src": (2, 8, 6, 4), "weights": (3, 2, 4, 6)},
     "`weights` must have src channels / groups = 2 on axis I; got 4 in shape (3, 2, 4, 6) "
     "(XIO), groups=2, channels=4 from src shape (2, 8, 6, 4) (NXC). A group has weights for its "
     f"own channels only{FITS} data_format='NCX'"),
    ("convolution_backward_data", {"weights": (3, 2, 2, 8), "dst_shape": None},
     "`weights` must have all 6 diff_dst channels on axis O; got 8 in shape (3, 2, 2, 8) (XIO), "
     "groups=2, channels=6 from diff_dst shape (2, 3, 4, 6) (NXC)"),
    ("conv_transpose", {"weights": (4, 2, 2, 5)},
     "`weights` must have all 6 src channels (or src channels / groups = 3) on axis I; got 5 in "
     "shape (4, 2, 2, 5) (XOI), groups=2, channels=6 from src shape (2, 3, 4, 6) (NXC)"),
    ("conv_transpose_backward_data", {"weights": (3, 2, 3, 6)},
     "`weights` must have diff_dst channels / groups = 2 (or all 4 diff_dst channels) on axis O; "
     "got 3 in shape (3, 2, 3, 6) (XOI), groups=2, channels=4 from diff_dst shape (2, 7, 6, 4) "
     "(NXC)"),
    # Of the two readings of transposed weights, the one that an axis fits is meant.
    ("conv_transpose", {"weights": (5, 2, 5, 3)},
     "`groups` must divide axis O of `weights`; got groups=2, 5 in shape (5, 2, 5, 3) (XOI)"),
    ("conv_transpose_backward_weights", {"weights_shape": (3, 2, 2, 3)},
     "exactly one of the axes I and O of `weights_shape` must hold the channels of one group; "
     "got both divided, 3 and 2 in shape (3, 2, 2, 3) (XOI), groups=2, channels=4 from diff_dst "
     "shape (2, 7, 6, 4) (NXC)"),
    ("conv_transpose_backward_weights", {"weights_shape": (3, 2, 4, 6)},
     "exactly one of the axes I and O of `weights_shape` must hold the channels of one group; "
     "got both whole, 6 and 4 in shape (3, 2, 4, 6) (XOI), groups=2, channels=4 from diff_dst "
     "shape (2, 7, 6, 4) (NXC)"),
    ("conv_transpose_backward_weights", {"weights_shape": (3, 2, 5, 3)},
     "`weights_shape` must have all 4 diff_dst channels on axis O; got 5 in shape (3, 2, 5, 3) "
     "(XOI), groups=2, channels=4 from diff_dst shape (2, 7, 6, 4) (NXC)"),
    ("conv_transpose_backward_weights", {"weights_shape": (3, 2, 2, 5)},
     "`weights_shape` must have all 6 src channels (or src channels / groups = 3) on axis I; got "
     "5 in shape (3, 2, 2, 5) (XOI), groups=2, channels=6 from src shape (2, 3, 4, 6) (NXC)"),
    # Sizes.
    ("convolution", {"dilations": (1, 7)},
     "`weights`, dilated, must fit into the padded `src`; got an extent of 8 "
     "(kernel 2, dilation 7) over 6 (src 6, pads 0 and 0) (spatial axis 1)"),
    ("convolution_backward_weights", {"weights_shape": (9, 2, 2, 6), "pads_end": (1, 0)},
     "`weights_shape`, dilated, must fit into the padded `src`; got an extent of 9 "
     "(kernel 9, dilation 1) over 8 (src 7, pads 0 and 1) (spatial axis 0)"),
    ("convolution_backward_weights", {"diff_dst": (2, 4, 4, 6)},
     "`diff_dst` must have the extent that convolution gives, 3; got 4 for src 7, kernel 3, "
     "stride 2, dilation 1, pads 0 and 0 (spatial axis 0)"),
    ("convolution_backward_data", {"dst_shape": (2, 6, 6, 4)},
     "`dst_shape` must have an extent from which convolution gives that of diff_dst, 3; got 6, "
     "and 7 to 8 fit (spatial axis 0)"),
    ("convolution_backward_data", {"dst_shape": (2, 8, 7, 4)},
     "`dst_shape` must have an extent from which convolution gives that of diff_dst, 4; got 7, "
     "and only 6 fits (spatial axis 1)"),
    ("convolution_backward_data", {"pads_begin": (5, 0), "pads_end": (3, 0)},
     "`dst_shape` must have an extent from which convolution gives that of diff_dst, 3; got 7, "
     "and no extent fits (spatial axis 0)"),
    ("convolution_backward_data", {"dst_shape": None, "pads_begin": (0, 7)},
     "`pads_begin` and `pads_end` must leave the result an extent of at least 1; got -1 = "
     "1 * 3 + 3 + 0 - 7 = stride * (diff_dst - 1) + dilated kernel + output_padding - pads "
     "(spatial axis 1)"),
    ("convolution_backward_data", {"dst_shape": (2, 9, 6, 4), "output_padding": (1, 0)},
     "`dst_shape` and `output_padding` must agree; got 9, which implies an output_padding of 2, "
     "and output_padding=1 (spatial axis 0)"),
    ("conv_transpose", {"pads_begin": (3, 0), "pads_end": (5, 0), "output_padding": (1, 0)},
     "`pads_begin` and `pads_end` must leave the result an extent of at least 1; got 0 = "
     "2 * 2 + 3 + 1 - 8 = stride * (src - 1) + dilated kernel + output_padding - pads "
     "(spatial axis 0)"),
    ("conv_transpose", {"dst_shape": (2, 7, 4, 4), "pads_end": (0, 1)},
     "`dst_shape` must have an extent of at least 5, what these pads leave without output_padding; "
     "got 4 (spatial axis 1)"),
    ("conv_transpose_backward_data", {"output_padding": (6, 0), "pads_end": (1, 0)},
     "`output_padding` must be at most 5 = diff_dst + pads - dilated kernel, and leave a multiple "
     "of stride 2 of that; got 6. Left out, it is 1 (spatial axis 0)"),
    ("conv_transpose_backward_weights", {"weights_shape": (4, 2, 2, 6)},
     "`diff_dst` must have an extent of at least 8, what conv_transpose gives without "
     "output_padding; got 7 for src 3, kernel 4, stride 2, dilation 1, pads 0 and 0 "
     "(spatial axis 0)"),
    ("conv_transpose_backward_weights", {"output_padding": (0, 2), "pads_begin": (0, 1)},
     "`output_padding` must be what the extents imply, 1; got 2 for src 4, diff_dst 6, kernel 2, "
     "stride 1, dilation 2, pads 1 and 0 (spatial axis 1)"),
    # Bias.
    ("convolution", {"bias": (5,)},
     "`bias` must have shape (6,), one entry for each dst channel; got shape (5,) for dst shape "
     "(2, 3, 4, 6)"),
    # Residual and activation.
    ("convolution", {"residual": (2, 3, 4, 5)},
     "`residual` must have the shape of dst, (2, 3, 4, 6); got (2, 3, 4, 5)"),
    ("conv_transpose", {"activation": "GELU"},
     "`activation` must be 'gelu_erf', the definition, or 'gelu_tanh', the approximation that "
     "jax.nn.gelu computes by default; got 'GELU'"),
    ("conv_transpose", {"activation": "relu", "alpha": 0.5},
     "`alpha` must be None unless `activation` is 'leaky_relu' or 'elu'; got 0.5 for 'relu'"),
    ("conv_transpose", {"activation": "elu", "alpha": np.float16(np.inf)},
     "`alpha` must be finite and at least 0; got inf"),
    ("conv_transpose", {"activation": "elu", "alpha": -1},
     "`alpha` must be finite and at least 0; got -1"),
    # Layouts.
    ("convolution", {"data_format": "NCX"},
     "`groups` must divide the src channels; got groups=2, channels=7 from src shape "
     f"(2, 7, 6, 4) (NCX){FITS} data_format='NXC'"),
    ("conv_transpose", {"weights_format": "XIO"},
     "`weights` must have all 6 src channels (or src channels / groups = 3) on axis I; got 2 in "
     "shape (3, 2, 2, 6) (XIO), groups=2, channels=6 from src shape (2, 3, 4, 6) (NXC)"
     f"{FITS} weights_format='IOX' or weights_format='XOI'"),
    ("convolution_backward_weights", {"weights_shape": (6, 2, 3, 2)},
     "`weights_shape` must have src channels / groups = 2 on axis I; got 3 in shape "
     "(6, 2, 3, 2) (XIO), groups=2, channels=4 from src shape (2, 7, 6, 4) "
     f"(NXC){FITS} weights_format='OIX'"),
    ("convolution", {"src": (2, 4, 7, 6), "weights_format": "IOX"},
     "`weights`, dilated, must fit into the padded `src`; got an extent of 11 "
     "(kernel 6, dilation 2) over 7 (src 7, pads 0 and 0) (spatial axis 1)"
     f"{FITS} data_format='NCX' and weights_format='XIO'"),
    ("convolution", {"src": (1, 5, 4), "weights": (2, 2, 6), "strides": (2, 1), "dilations": 1},
     "`strides` must be an int or a sequence of 1 int, one per spatial axis; "
     "got (2, 1), of length 2"),
]  # fmt: skip


@pytest.mark.parametrize(("op", "changes", "text"), RULES)
def test_rule(op, changes, text):
    """The same words of the same shapes under jit and vmap, and nothing added to the trace."""
    assert calls.message(ValueError, op, **changes) == text
    arguments = calls.VALID[op] | changes
    tensors = {
        name: calls.array(arguments.pop(name)) for name in calls.TENSORS if name in arguments
    }

    def body(tensors):
        assert calls.message(ValueError, op, **arguments, **tensors) == text
        return 0

    assert not jax.make_jaxpr(body)(tensors).eqns
    jax.vmap(body, out_axes=None)({name: np.stack([x] * 3) for name, x in tensors.items()})


FULL = "`dst_shape` must be the full shape of the result, with the batch of "


@pytest.mark.parametrize(
    ("op", "entry", "value"),
    [
        ("convolution_backward_data", 0, 3), ("convolution_backward_data", 0, -2),
        ("convolution_backward_data", 3, 2), ("conv_transpose", 0, 1), ("conv_transpose", 3, 8),
    ],
)  # fmt: skip
def test_batch_and_channels_of_a_shape(op, entry, value):
    shape = list(calls.FINE)
    shape[entry] = value
    text = calls.message(ValueError, op, dst_shape=shape)
    assert text.startswith(FULL)
    assert text.endswith(f"{calls.FINE} (NXC); got {tuple(shape)}")


# Sizes that no memory holds: XLA would end the process.
FAR = 2**31 - 1
TOO_LARGE = [
    ("convolution", {"pads_begin": FAR, "pads_end": FAR}, "the result"),
    ("convolution", {"src": (1, 4, 4, 4, 1), "weights": (3, 3, 3, 1, 1), "pads_begin": 2**21,
                     "pads_end": 2**21}, "the result"),
    ("convolution_backward_data", {"diff_dst": (1, 4, 4, 1), "strides": FAR}, "the result"),
    ("convolution_backward_data", {"diff_dst": (1, 4, 4, 1), "dst_shape": (1, 2**62, 4, 1)},
     "`dst_shape`"),
    ("conv_transpose", {"dst_shape": (0, 2**64, 4, 1)}, "`dst_shape`"),
    ("conv_transpose", {"dst_shape": (1, 2**40, 2**40, 1)}, "`dst_shape`"),
    ("conv_transpose", {"dilations": FAR}, "the result"),
    ("conv_transpose", {"output_padding": FAR}, "the result"),
    ("convolution_backward_weights", {"weights_shape": (FAR, FAR, 1, 1)}, "`weights_shape`"),
    ("conv_transpose_backward_weights", {"weights_shape": (3, 3, 2**30, 2**30)}, "`weights_shape`"),
    ("conv_transpose_backward_data", {"pads_begin": FAR, "pads_end": FAR}, "the result"),
]  # fmt: skip
SMALL = {"src": (1, 4, 4, 1), "diff_dst": (1, 4, 4, 1), "weights": (3, 3, 1, 1)}


@pytest.mark.parametrize("ask", ["operation", "resolve", "explain"])
@pytest.mark.parametrize(("op", "changes", "what"), TOO_LARGE)
def test_too_many_elements(op, changes, what, ask):
    names = {name: SMALL.get(name) for name in calls.VALID[op]}
    given = names | {"strides": 1, "dilations": 1, "groups": 1} | changes
    if ask == "operation":
        text = calls.message(ValueError, op, **given)
    else:
        with pytest.raises(ValueError, match=f"^{op}: ") as caught:
            getattr(jaxconv, ask)(op, **given)
        text = str(caught.value).removeprefix(f"{op}: ")
    assert text.startswith(f"{what} must have ")
    assert "at most 2**48" in text
    for name in changes.keys() - SMALL.keys():
        assert f"`{name}`" in text


def test_symbolic_and_empty_batches_have_no_such_limit():
    (batch,) = export.symbolic_shape("b")
    for n in (batch, 0):
        found = jaxconv.resolve(jaxconv.convolution, (n, 4, 4, 1), (3, 3, 1, 1))
        assert found.dst_shape == (n, 2, 2, 1)


def test_only_the_batch_may_be_symbolic():
    batch, other = export.symbolic_shape("b, s")

    def body(op, **changes):
        tensors = {
            name: jax.ShapeDtypeStruct(shape, np.float32)
            for name, shape in (calls.VALID[op] | changes).items()
            if name in calls.TENSORS
        }
        rest = {k: v for k, v in (calls.VALID[op] | changes).items() if k not in calls.TENSORS}
        return jax.eval_shape(lambda tensors: calls.call(op, **tensors, **rest), tensors)

    for op, changes, shape in [
        ("convolution", {"src": (batch, *calls.FINE[1:])}, (batch, *calls.COARSE[1:])),
        ("convolution_backward_data",
         {"diff_dst": (batch, *calls.COARSE[1:]), "dst_shape": (batch, *calls.FINE[1:])},
         (batch, *calls.FINE[1:])),
        ("conv_transpose",
         {"src": (2 * batch, *calls.COARSE[1:]), "dst_shape": (2 * batch, *calls.FINE[1:])},
         (2 * batch, *calls.FINE[1:])),
        ("convolution_backward_weights",
         {"src": (batch, *calls.FINE[1:]), "diff_dst": (batch, *calls.COARSE[1:])},
         calls.KERNEL),
    ]:  # fmt: skip
        assert body(op, **changes).shape == shape

    constant = "must have constant extents (only the batch may be symbolic); got shape"
    for op, changes, text in [
        ("convolution", {"src": (batch, other, 6, 4)}, f"`src` {constant} (b, s, 6, 4)"),
        ("convolution", {"src": (2, 7, 6, other)}, f"`src` {constant} (2, 7, 6, s)"),
        ("conv_transpose", {"weights": (3, 2, 2, other)}, f"`weights` {constant} (3, 2, 2, s)"),
        ("convolution_backward_data", {"dst_shape": (2, other, 6, 4)},
         f"`dst_shape` {constant} (2, s, 6, 4)"),
        ("conv_transpose_backward_weights", {"weights_shape": (other, 2, 2, 6)},
         f"`weights_shape` {constant} (s, 2, 2, 6)"),
        ("convolution_backward_weights", {"src": (batch, *calls.FINE[1:])},
         "`diff_dst` must have the batch of `src`; got shapes (2, 3, 4, 6) and (b, 7, 6, 4) (NXC)"),
        ("conv_transpose", {"src": (batch, *calls.COARSE[1:]), "dst_shape": calls.FINE},
         f"{FULL}`src` and the channels of the weights, (b, 7, 6, 4) (NXC); got (2, 7, 6, 4)"),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=op) as caught:
            body(op, **changes)
        assert str(caught.value) == f"{op}: {text}"
    for name in ("strides", "groups"):
        assert "got b (_DimExpr)" in calls.message(TypeError, "convolution", **{name: batch})


# Layout hints: whatever they name does fit, and the layout meant is among them.
def in_layout(shape, given, wanted):
    """A shape of two spatial axes, from one format's order to another's."""
    axes = dict(zip(given.replace("X", "XY"), shape, strict=True))
    return tuple(axes[letter] for letter in wanted.replace("X", "XY"))


LAYOUTS = [(d, w) for d in ("NXC", "NCX") for w in ("OIX", "XIO", "IOX", "XOI")]


@pytest.mark.parametrize("op", calls.VALID)
@pytest.mark.parametrize("meant", LAYOUTS)
def test_hint_at_another_layout(op, meant):
    default = "XIO" if op.startswith("convolution") else "XOI"
    shapes = {
        name: in_layout(shape, default, meant[1])
        if name.startswith("weights")
        else in_layout(shape, "NXC", meant[0])
        for name, shape in calls.VALID[op].items()
    }

    def resolve(data_format, weights_format):
        layout = {"data_format": data_format, "weights_format": weights_format}
        return jaxconv.resolve(op, **shapes, **calls.ATTRIBUTES, **layout)

    def hinted(declared, text):
        words = dict(zip(("data_format", "weights_format"), declared, strict=True))
        return {tuple((words | dict(re.findall(r"(\w+)='(\w+)'", t))).values()) for t in text}

    for declared in LAYOUTS:
        try:
            resolve(*declared)
        except ValueError as error:
            _, hint = str(error).split(FITS)
            found = hinted(declared, re.split(", | or ", hint))
            for layout in found:
                resolve(*layout)
            changes = [
                sum(a != b for a, b in zip(declared, f, strict=True)) for f in (*found, meant)
            ]
            assert min(changes) == max(changes[:-1])
            assert meant in found or changes[-1] > changes[0]
