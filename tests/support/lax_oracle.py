"""lax's general convolution and its two gradients in NumPy, and calls of it drawn at random.

A call is a convolution of `small.py` in lax's words; its sums are the oracle's.
"""

import math
import random
from dataclasses import dataclass
from functools import partial

import jax
import numpy as np
from jax import lax

import jaxconv
from tests.support import oracle, small
from tests.support.forms import integers

#: Of lhs, rhs and the result, beside spatial ones.
_AXES = ("NC", "OI", "NC")

# A depthwise convolution, which lax and this library never lower alike.

LAST = ("NHWC", "HWIO", "NHWC")
X, K = integers((4, 8, 7, 6), 1), integers((3, 3, 1, 12), 2)


def conv(x, k, strides, padding="SAME", groups=1, **more):
    more |= {"dimension_numbers": LAST, "feature_group_count": groups}
    return lax.conv_general_dilated(x, k, strides, padding, **more)


def depthwise(x, k, **more):
    return conv(x, k, (2, 1), groups=x.shape[-1], **more)


def loss(x, k):
    return (depthwise(x, k) ** 2).sum()


@dataclass(frozen=True)
class Call:
    """The shapes and the arguments of one call."""

    lhs: tuple[int, ...]
    rhs: tuple[int, ...]
    arguments: dict

    def bind(self, function=lax.conv_general_dilated):
        return partial(function, **self.arguments)


def drawn(seed: int) -> Call:
    """A small convolution with lax's layouts, groups, dilations and pads that crop."""
    draw = random.Random(seed)
    while True:
        form = small.draw_one(draw, (1, 2, 2, 3), most_channels=3)
        features, batches = draw.choice([(form.groups, 1), (form.groups, 1), (1, form.groups)])
        letters = "DHW"[-form.rank :]
        names = [draw.choice(_names("NC", letters)), draw.choice(_names("OI", letters))]
        names.append(names[0] if draw.random() < 0.7 else draw.choice(_names("NC", letters)))
        if draw.random() < 0.2:  # anything goes
            names = ["".join(draw.sample(f"{more}{letters}", form.rank + 2)) for more in _AXES]
        (inputs, outputs), ones = form.channels, (1,) * form.rank
        inputs //= form.groups
        sizes = {"N": form.batch * batches, "C": inputs * features, "I": inputs, "O": outputs}
        extents, taps = (dict(zip(letters, x, strict=True)) for x in (form.fine, form.kernel))
        twos = tuple(draw.randint(1, 2) for _ in letters)
        steps = draw.choice(
            [(form.strides, ones)] * 2 + [(ones, form.strides)] * 2 + [(twos, twos)]
        )
        pads = zip(form.pads_begin, form.pads_end, strict=True)
        arguments = {
            "window_strides": steps[0],
            "padding": tuple((low - draw.choice((0, 0, 3)), high) for low, high in pads),
            "lhs_dilation": steps[1], "rhs_dilation": form.dilations,
            "dimension_numbers": tuple(names), "feature_group_count": features,
            "batch_group_count": batches,
        }  # fmt: skip
        lhs = tuple((sizes | extents)[c] for c in names[0])
        rhs = tuple((sizes | taps)[c] for c in names[1])
        call = Call(lhs, rhs, arguments)
        rooms = list(_rooms(call))
        if min(rooms) > 0 and math.prod(rooms) < 1000:
            return call


def both(**arguments):
    """Ours and lax's, with all but the two arrays."""
    return (
        partial(jaxconv.lax.conv_general_dilated, **arguments),
        partial(lax.conv_general_dilated, **arguments),
    )


def data(lhs, rhs, dtype=np.float32, limit=4):
    return integers(lhs, 1, dtype, limit), integers(rhs, 2, dtype, limit)


def same(ours, theirs):
    """Equal values, types (weak ones, too) and shapes."""
    for got, expected in zip(jax.tree.leaves(ours), jax.tree.leaves(theirs), strict=True):
        assert jax.typeof(got) == jax.typeof(expected)
        assert np.array_equal(got, expected)


def _names(more: str, letters: str) -> list[str]:
    """The usual layouts."""
    return [more + letters, more[0] + letters + more[1], letters + more, more[::-1] + letters]


def _numbers(call):
    return lax.conv_dimension_numbers(call.lhs, call.rhs, call.arguments["dimension_numbers"])


def _steps(call):
    a = call.arguments
    return zip(a["window_strides"], a["padding"], a["lhs_dilation"], a["rhs_dilation"], strict=True)


def _rooms(call):
    """Of each axis, how far the window can move, and one; lax wants some of lhs left, too."""
    lhs_spec, rhs_spec, _ = _numbers(call)
    for x, k, (_, (low, high), spread, spacing) in zip(
        lhs_spec[2:], rhs_spec[2:], _steps(call), strict=True
    ):
        length = spread * (call.lhs[x] - 1) + 1 + low + high
        yield length - spacing * (call.rhs[k] - 1)


def gradients(call: Call, lhs, rhs, cotangent_of):
    """The result, and what its cotangent gives for lhs and for rhs, all in float64.

    `cotangent_of` makes the cotangent from the shape of the result.
    """
    lhs_spec, rhs_spec, out_spec = _numbers(call)
    features, batches = (call.arguments[f"{n}_group_count"] for n in ("feature", "batch"))
    groups = features * batches
    x = np.transpose(np.asarray(lhs, float), lhs_spec)  # N, C, X
    k = np.transpose(np.asarray(rhs, float), rhs_spec)  # O, I, X
    n, c, *extents = x.shape
    # Where each element of lhs comes to lie in lhs as the window sees it, if at all.
    axes, kept = [], []
    for extent, taps, (stride, (low, high), spread, spacing) in zip(
        extents, k.shape[2:], _steps(call), strict=True
    ):
        length = spread * (extent - 1) + 1 + low + high
        at = spread * np.arange(extent) + low
        inside = (at >= 0) & (at < length)
        kept.append((np.flatnonzero(inside), at[inside]))
        places = (length - spacing * (taps - 1) - 1) // stride + 1
        axes.append(oracle.Axis(length, taps, places, stride, spacing, 0, 0, 0))
    seen = np.zeros((n, c, *(axis.fine for axis in axes)))
    there = np.ix_(range(n), range(c), *(to for _, to in kept))
    here = np.ix_(range(n), range(c), *(of for of, _ in kept))
    seen[there] = x[here]
    # Groups are of the channels of lhs or of its batch, and of the outputs of rhs.
    if batches > 1:
        fine = np.moveaxis(seen.reshape(groups, n // groups, c, *seen.shape[2:]), 0, 1)
    else:
        fine = seen.reshape(n, groups, c // groups, *seen.shape[2:])
    kernel = k.reshape(groups, -1, *k.shape[1:])
    sums = oracle.to_coarse(fine, kernel, axes)
    out = np.transpose(sums.reshape(len(sums), -1, *sums.shape[3:]), np.argsort(out_spec))
    coarse = np.transpose(np.asarray(cotangent_of(out.shape), float), out_spec).reshape(sums.shape)
    by_fine = oracle.to_fine(coarse, kernel, axes)
    by_seen = (np.moveaxis(by_fine, 1, 0) if batches > 1 else by_fine).reshape(seen.shape)
    by_x = np.zeros(x.shape)
    by_x[here] = by_seen[there]
    by_k = oracle.to_kernel(fine, coarse, axes).reshape(k.shape)
    by_lhs, by_rhs = (
        np.transpose(a, np.argsort(s)) for a, s in ((by_x, lhs_spec), (by_k, rhs_spec))
    )
    return out, by_lhs, by_rhs
