"""Depthwise weights gradients: the coarse pixels of an image slide over its fine pixels.

    dW[t, c] = sum over images n of
        (sum over q of fine[n, stride*q + dilation*t, c] * coarse[n, q, c])

The inner sum is itself a depthwise contraction to coarse: its kernel is the coarse image, its
results are the taps, and stride and dilation are exchanged. oneDNN computes such a contraction for
each image, or for some rows of a large image. A group of several channels has a depthwise channel
for each pair of a fine and a coarse channel: the data of a block is copied for each.
"""

import math
from dataclasses import replace

import jax.numpy as jnp
from jax import Array, lax

from jaxconv._base.geometry import Axis
from jaxconv._base.reshape import merge_groups, reorder, split_groups
from jaxconv._base.typing import Index
from jaxconv._lowering.forms import onednn, window
from jaxconv._lowering.forms.blocks import find_divisor, slice_along, sum_over_blocks
from jaxconv._lowering.problem import Call, Form, Problem


def _choose_rows(problem: Problem) -> int:
    """Choose how many coarse rows of an image a block has: all, or a divisor."""
    rows, *others = (a.coarse for a in problem.geometry.axes)
    return find_divisor(rows, onednn.MAX_TAPS // math.prod(others))


def _view_rows(problem: Problem) -> tuple[Axis, ...]:
    """The axes of a block; if an image has several, the first axis is padded before."""
    first, *others = problem.geometry.axes
    rows = _choose_rows(problem)
    if rows < first.coarse:
        first = replace(first, coarse=rows).padded()
    return (first, *others)


def split_images(problem: Problem) -> tuple[Problem, ...]:
    channels = problem.geometry.groups * problem.fine_channels * problem.coarse_channels
    axes = tuple(a.exchanged() for a in _view_rows(problem))
    geometry = replace(problem.geometry.canonical(), axes=axes).with_groups(channels)
    part = replace(problem, result="coarse", geometry=geometry, batch=1)
    return (replace(part, fine_channels=1, coarse_channels=1),)


def images_to_kernel(fine: Array, coarse: Array, call: Call) -> Array:
    """Sum over blocks of rows of all images."""
    problem, geometry, groups = call.problem, call.geometry, call.geometry.groups
    i, o = problem.fine_channels, problem.coarse_channels
    last, batch, at = geometry.canonical(), geometry.data.batch, geometry.data.spatial[0]
    rows, first = _choose_rows(problem), geometry.axes[0]
    blocks = first.coarse // rows
    if blocks > 1:
        fine = window.pad_axis(fine, geometry, 0)

    def read(x: Array, n: Index, step: int, count: int) -> Array:
        """Read some rows of an image, with the channels last and the groups apart."""
        x = slice_along(x, lax.div(jnp.int32(n), jnp.int32(blocks)), 1, batch)
        x = slice_along(x, lax.rem(jnp.int32(n), jnp.int32(blocks)) * step, count, at)
        return split_groups(reorder(x, geometry.data.spec, last.data.spec), groups)

    def block(n: Index) -> Array:
        data = read(fine, n, rows * first.stride, _view_rows(problem)[0].fine)
        kernel = read(coarse, n, rows, rows)[0]
        # For each pair of channels of a group, (g, i, o).
        data = jnp.broadcast_to(data[..., None], (*data.shape, o))
        kernel = jnp.broadcast_to(kernel[..., None, :], (*kernel.shape[:-1], i, o))
        data, kernel = (x.reshape(*x.shape[:-3], -1) for x in (data, kernel))
        return call.part(data, jnp.expand_dims(kernel, -2), call.numerics.wide)[0]

    out = sum_over_blocks(block, fine.shape[batch] * blocks, fine, coarse)
    out = out.reshape(*out.shape[:-1], groups, i, o)
    out = merge_groups(jnp.swapaxes(out, -3, -2))  # X, i, (g, o)
    return reorder(out, last.kernel.spec, geometry.kernel.spec)


FORM = Form(
    "slide",
    {"kernel": images_to_kernel},
    cannot=lambda p: p.dense or not p.counted or p.empty or p.rank > 2,
    layouts="any",
    gathers=True,
    parts=split_images,
    contender=True,
)
