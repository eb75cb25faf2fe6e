"""lax's general convolution and its two gradients in NumPy, and calls of it drawn at random.

And a depthwise convolution, which lax and this library never lower alike.
"""

import itertools
import random
from dataclasses import dataclass
from functools import partial

import jax
import numpy as np
from jax import lax

import jaxconv
from tests.support.forms import integers

LAST = ("NHWC", "HWIO", "NHWC")
X, K = integers((4, 8, 7, 6), 1), integers((3, 3, 1, 12), 2)


def depthwise(x, k, **more):
    return lax.conv_general_dilated(
        x, k, (2, 1), "SAME", dimension_numbers=LAST, feature_group_count=x.shape[-1], **more
    )


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
    """Any geometry, layouts and groups, of one to three axes, with a result."""
    draw = random.Random(seed)
    rank = draw.choice([1, 2, 2, 3])
    letters = "DHW"[-rank:]
    feature_groups, batch_groups = draw.choice([(1, 1), (1, 1), (2, 1), (3, 1), (1, 2), (1, 3)])
    inputs, outputs, images = (draw.randint(1, 3) for _ in range(3))
    names = [draw.choice(_names("NC", letters)), draw.choice(_names("OI", letters))]
    names.append(names[0] if draw.random() < 0.7 else draw.choice(_names("NC", letters)))
    if draw.random() < 0.2:  # anything goes
        names = ["".join(draw.sample(more + letters, rank + 2)) for more in ("NC", "IO", "NC")]
    strides, spreads = draw.choice([(3, 1), (3, 1), (1, 3), (1, 3), (2, 2)])
    while True:
        sizes = {
            "N": images * batch_groups,
            "C": inputs * feature_groups,
            "I": inputs,
            "O": outputs * feature_groups * batch_groups,
        }
        extents = {c: draw.randint(1, 7) for c in letters}
        taps = {c: draw.choice([1, 2, 3, 3, 5]) for c in letters}
        arguments = {
            "window_strides": tuple(draw.randint(1, strides) for _ in letters),
            "padding": tuple((draw.randint(-3, 4), draw.randint(-3, 4)) for _ in letters),
            "lhs_dilation": tuple(draw.randint(1, spreads) for _ in letters),
            "rhs_dilation": tuple(draw.choice([1, 1, 2, 3]) for _ in letters),
            "dimension_numbers": tuple(names),
            "feature_group_count": feature_groups,
            "batch_group_count": batch_groups,
        }
        lhs = tuple((sizes | extents)[c] for c in names[0])
        rhs = tuple((sizes | taps)[c] for c in names[1])
        call = Call(lhs, rhs, arguments)
        if all(room > 0 for room in _rooms(call)):
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
    steps, rank = list(_steps(call)), len(lhs_spec) - 2
    x = np.transpose(np.asarray(lhs, float), lhs_spec)  # N, C, X
    k = np.transpose(np.asarray(rhs, float), rhs_spec)  # O, I, X
    n, c, *extents = x.shape
    # Where each element of lhs comes to lie in lhs as the window sees it, if at all.
    lengths, kept, places = [], [], []
    for axis, (stride, (low, high), spread, spacing) in enumerate(steps):
        length = spread * (extents[axis] - 1) + 1 + low + high
        at = spread * np.arange(extents[axis]) + low
        inside = (at >= 0) & (at < length)
        lengths.append(max(length, 0))
        kept.append((np.flatnonzero(inside), at[inside]))
        places.append((length - spacing * (k.shape[2 + axis] - 1) - 1) // stride + 1)
    seen = np.zeros((n, c, *lengths))
    there = np.ix_(range(n), range(c), *(to for _, to in kept))
    here = np.ix_(range(n), range(c), *(of for of, _ in kept))
    seen[there] = x[here]
    # Groups first: of the channels or of the batch of lhs, and of the outputs of rhs.
    if batches > 1:
        seen = seen.reshape(groups, n // groups, c, *lengths)
    else:
        seen = np.moveaxis(seen.reshape(n, groups, c // groups, *lengths), 1, 0)
    k = k.reshape(groups, -1, *k.shape[1:])
    out = np.zeros((groups, seen.shape[1], k.shape[1], *places))
    windows = {
        tap: tuple(
            slice(t * spacing, t * spacing + stride * (q - 1) + 1, stride)
            for t, q, (stride, _, _, spacing) in zip(tap, places, steps, strict=True)
        )
        for tap in itertools.product(*map(range, k.shape[3:]))
    }
    for tap, window in windows.items():
        out += np.einsum("gni...,goi->gno...", seen[:, :, :, *window], k[:, :, :, *tap])

    def shown(out):  # G, N, O, Q as lax lays it out
        merged = np.moveaxis(out, 0, 1).reshape(out.shape[1], -1, *places)
        return np.transpose(merged, np.argsort(out_spec))

    cotangent = np.asarray(cotangent_of(shown(out).shape), float)
    dy = np.transpose(cotangent, out_spec).reshape(out.shape[1], groups, -1, *places)
    dy = np.moveaxis(dy, 1, 0)
    by_seen, by_k, letters = np.zeros_like(seen), np.zeros_like(k), "xyz"[:rank]
    for tap, window in windows.items():
        by_seen[:, :, :, *window] += np.einsum("gno...,goi->gni...", dy, k[:, :, :, *tap])
        summed = f"gni{letters},gno{letters}->goi"
        by_k[:, :, :, *tap] = np.einsum(summed, seen[:, :, :, *window], dy)
    if batches > 1:
        by_seen = by_seen.reshape(n, c, *lengths)
    else:
        by_seen = np.moveaxis(by_seen, 0, 1).reshape(n, c, *lengths)
    by_x = np.zeros(x.shape)
    by_x[here] = by_seen[there]
    by_k = by_k.reshape(-1, *k.shape[2:])
    by_lhs, by_rhs = (
        np.transpose(a, np.argsort(s)) for a, s in ((by_x, lhs_spec), (by_k, rhs_spec))
    )
    return shown(out), by_lhs, by_rhs
