"""CPU, to fine: data gradients and transposed convolutions. Most are rewritten as to coarse."""

import math
from dataclasses import replace

from jaxconv._lowering.cpu import common
from jaxconv._lowering.forms import col2im, phases, reference, split
from jaxconv._lowering.problem import Line, Problem, Table, wherever_it_can


def _much_data(p: Problem) -> bool:
    """Whether data is copied, and blocks cost less; the form knows how much is too much."""
    return (p.strided or p.depthwise) and not p.channels_last and not common.is_native(p)


#: Coarse channels a pixel for which the weights are most of the data, with stride 1.
MIN_CHANNELS_PER_PIXEL = 2


def _few_pixels(p: Problem) -> bool:
    """Whether to add up windows costs less than to copy the kernel, which phases do most."""
    if not p.counted:
        return False
    coarse, fine, _ = p.geometry.kernel
    as_it_lies = coarse in (0, 1 + p.rank) or (p.strided and fine == 1 + p.rank)
    least = p.pixels * (1 if p.strided else MIN_CHANNELS_PER_PIXEL)
    return as_it_lies and p.coarse_channels >= least


#: Coarse channels that phases read faster than windows are added up.
MAX_PHASED_CHANNELS = 64


def _few_results(p: Problem) -> bool:
    """Whether so few channels result that adding windows up is cheaper than a read for each tap."""
    few = p.fine_channels <= common.MAX_STEM_CHANNELS
    many = p.coarse_channels >= common.MIN_SUMMED_PER_RESULT * p.fine_channels
    if p.onednn:
        wide = p.bits < 64 and not common.is_native(p)
        return p.counted and wide and few and many and p.coarse_channels > MAX_PHASED_CHANNELS
    return p.counted and p.bits < 64 and (few or many)


def _spread(p: Problem) -> bool:
    """Whether multiply-adds, channels first, over zeros as well, cost less than transpositions."""
    pixels = math.prod(a.stride for a in p.geometry.axes)
    few = not p.dense and p.bits > 16 and pixels <= phases.MAX_SEPARATE_RESIDUES
    return few and all(map(common.few_terms_channels_first, phases.spread_problem(p)))


TABLE: Table = (
    common.ONE_TAP_CHANNELS_FIRST,
    common.IN_FLOAT32,
    Line("much-data", split.BLOCKS, _much_data, "much data is copied: in blocks"),
    Line(
        "few-pixels",
        col2im.FORM,
        _few_pixels,
        "few pixels: a dot reads the weights, which are much of the data, as they lie",
    ),
    Line("stride-1", phases.FLIP, wherever_it_can, "a convolution by the reversed kernel"),
    Line("few-results", col2im.FORM, _few_results, "few result channels: a dot, and added windows"),
    replace(common.SHARDED, when=lambda p: p.partitioned and p.dense),
    Line("spread", phases.SPREAD, _spread, "few channels a group, channels first: as stride 1"),
    Line(
        "strided",
        phases.PHASES,
        wherever_it_can,
        "stride-1 convolutions, one for each kind of residues",
    ),
    Line("tap-by-tap", split.TAPS, wherever_it_can, "too many phases, or strides beyond the data"),
    replace(common.ALL_OTHERS, form=reference.FORM),
)
