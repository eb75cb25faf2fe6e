"""Which spelling for which contraction on CPU: the first rule that holds."""

import math
from collections.abc import Callable

from jaxconv._lowering import abreast, blocks, columns, swapped
from jaxconv._lowering.problem import NEWER, TINY, Problem, Rule

#: As many multiply-adds as one fused loop may hold, to coarse and to kernel, before XLA's code for
#: it becomes several times slower: 127 taps, depthwise, forward, 80, in pieces 12; 9x9, weights,
#: 42, in pieces 21 (AMD).
MOST_TERMS, MOST_TERMS_TO_KERNEL = 100, 64

#: The same to coarse, of groups that sum several channels and have so few pairs of channels: other
#: spellings are slow there. inceptionv2-stem-dw7-s2-m8, data, 12 and 69; 4 channels to 4, 3x3x3,
#: 3.0 and 17; but 8 to 8, 4x4, 9.9 and 2.7 (AMD).
MORE_TERMS, OF_PRODUCTS = 128, 16

#: Where there is little work, so many multiply-adds to coarse, of groups of so many channels, are
#: faster than what starts a grouped convolution: 4 images of 28 x 28, 10 groups of 16, 4x4, stride
#: 2, data, 1.1 and 3.1 (AMD, AVX-512).
SHORT, OF_CHANNELS = 64, 16

#: Of one tap, so many summed channels of a group are as fast by multiply-adds as by a dot: 4 groups
#: of 16 to 64 0.64 and 0.88, of 32 to 128 5.8 and 3.9 (AMD, AVX-512).
THIN = 24

#: Of as few taps, strided weights gradients of data with channels first are no windows, but
#: convolutions, for each group by itself: resnext50-28-g32x8-s2 11 and 27, since that is much to
#: transpose; but of 2 images of 56 x 56, 16 groups of 8, 5x5, 14 and 3 (AMD, AVX-512).
KEPT = 9

#: Of fewer channels, all groups together, a skew adds too much: it is 16 more.
FEWEST_SKEWED = 32

#: More data than this takes longer to transpose than multiply-adds save: strided data gradients,
#: 3x3, 256 channels in groups of 8, channels first, 2 images of 56 x 56 3.7, transposed for each
#: phase 14; 8 images 28 and 21 (AMD, AVX-512).
MOVED = 4 << 20

#: As many taps as may each have a piece of the program: a slice of the windows, or a dot.
MOST_TAPS = 256

#: So few result channels are too few for a dot by windows to be fast.
FEWEST = 4

#: So few places and channels of a result are one block to Eigen, for one core. So is a row of fewer
#: multiply-adds of the next few channels, with fewer terms: 28 places to 128 channels of 576 terms
#: take one core, of 1,152 two (JAX 0.10.2; AMD, AVX-512).
NARROW, LONG_ROW, NEXT_FEW, FEWER_TERMS = 96, 4_000_000, 128, 1024

#: As many products of each value that is copied, to have images abreast, are worth it: 8 images of
#: 56 x 56, 3x3, 32 channels to 64 9.8 and 5.8, but 16 to 64 5.2 and 6.5 (AMD, AVX-512).
WORTH_COPYING = 192

#: Products of a pair of groups' channels, of which multiply-adds give a weights gradient. With 32,
#: resnext-mirrored-up-g32x8 takes 3.2 instead of 6.5, and 1.9 s to compile; with 64,
#: resnext50-28-g32x8-s2 takes 35, and by windows 11 (AMD).
FEW_PRODUCTS = 32

#: The first cache of most processors keeps addresses that are a page apart in the same few lines.
#: So reads that are a multiple of n bytes apart share 64 / n of it, which is too little for more
#: than CROWD / n of them. Each tap reads from the kernel, too, and how that lies to the data is
#: chance, which is bad for one that is reversed for a data gradient: 25 taps of 256 channels 1.9 to
#: 1.2 by more channels, 49 of 384 1.3 to 0.9, but 9 of 512 0.8 both (AMD, AVX-512).
PAGE, CROWD = 4 << 10, 24 << 10

#: The weights gradient of one image, to so many channels, is a convolution that newer XLA is good
#: at: 112 x 112, 64 to 64, 3x3, 5.1, by windows 8.2; but 64 to 128 13.9 and 13.5, and 224 x 224, 16
#: to 16, 23 and 5.4. Of several images, each of so many places may be one: 16 of 32 x 32, 32 to 32,
#: 3.6 and 4.1; but 32 of 16 x 16, 64 to 64, 6.8 and 5.2 (AMD, AVX-512).
FEW_COARSE, LARGE_IMAGE = range(24, 65), 1024

#: What a spelling cannot do at all; one that is not named can do everything.
POSSIBLE: dict[str, Callable[[Problem], bool]] = {
    "matmul": lambda p: p.pointwise or p.patches,
    "planes": lambda p: p.pointwise or (p.result == "kernel" and p.rank == 1),
    "blocks": lambda p: p.result == "coarse" and max(blocks.counts(p.geometry, p.devices)) > 1,
    "abreast": lambda p: p.result != "kernel" and p.counted,
    "phases": lambda p: p.result == "fine",
    "slabs": lambda p: p.rank > 1,
    "depth": lambda p: p.dense and p.result != "coarse" and p.foldable,
    "each": lambda p: not p.dense,
    "images": lambda p: p.result == "kernel" and p.counted,
    "products": lambda p: p.dense and p.result != "kernel",
    "skewed": lambda p: not p.dense and p.result != "kernel",
    "swapped": lambda p: (
        p.result == "coarse"
        and p.depthwise
        and p.coarse == 1
        and p.counted
        and swapped.possible(p.geometry)
    ),
}


def _few(p: Problem, most: int) -> bool:
    """At most so few channels of each group are summed that multiply-adds are fast."""
    if p.result == "kernel" and p.fine * p.coarse > FEW_PRODUCTS:
        return False
    return not p.dense and p.summed <= most and p.taps * p.summed <= most_terms(p)


def _crowded(p: Problem) -> bool:
    """What all taps read for a place of the result falls on too few lines of the first cache."""
    place = p.geometry.groups * p.fine * max(p.bits, 32) // 8
    return p.taps * p.fine * math.gcd(place, PAGE) > CROWD


def _grouped(p: Problem) -> bool:
    """Worth a contraction for each group."""
    return not (p.dense or p.bits == 16 or p.tiny or p.partitioned or _many_taps(p))


def _many_taps(p: Problem) -> bool:
    """Too many for one program that has a piece for each."""
    return not p.dense and p.taps > (most_terms(p) if p.depthwise else MOST_TAPS)


def _short(p: Problem) -> bool:
    """Little work of few terms, in each phase of a strided gradient by itself."""
    axes = p.geometry.axes
    steps = [a.stride // math.gcd(a.stride, a.dilation) if p.result == "fine" else 1 for a in axes]
    taps = math.prod(-(-a.kernel // step) for a, step in zip(axes, steps, strict=True))
    return (
        not (p.dense or p.partitioned or p.result == "kernel")
        and p.bits == 32
        and max(p.fine, p.coarse) <= OF_CHANNELS
        and taps * p.summed <= SHORT
        and p.work < math.prod(steps) * TINY
    )


def _thin(p: Problem) -> bool:
    """One tap of few channels: shufflenet-28-1x1-g3, data, 0.5 and 1.0; newer 0.9 and 1.6."""
    few = p.result != "kernel" and p.summed <= THIN
    return few and p.pointwise and p.bits == 32 and not (p.dense or p.channels_first)


def _worth_transposing(p: Problem) -> bool:
    """Channels last, the phases of this data gradient are multiply-adds, unlike channels first."""
    data = p.geometry.groups * p.fine * p.pixels * (math.inf if p.batch is None else p.batch)
    strided = p.strided and p.bits == 32 and _few(p, 8) and data <= MOVED
    return p.summed > 4 and (strided or _short(p))


def _spread_out(p: Problem) -> bool:
    """A weights gradient that as a convolution has a kernel with holes."""
    windows = p.rank > 1 and not (p.pointwise or p.patches)
    spread = p.result == "kernel" and p.strided and p.bits == 32 and windows
    return spread and not (p.channels_first and p.taps <= KEPT)


def _windows(p: Problem) -> float:
    """Bytes of all windows; of a symbolic batch any number of them."""
    batch = math.inf if p.batch is None else p.batch
    return batch * p.positions * p.taps * p.geometry.groups * p.fine * p.bits / 8


def _by_image(p: Problem) -> bool:
    """A weights gradient of one image, or of several large ones, of few channels."""
    plane = p.dense and p.rank == 2 and p.bits == 32 and not (p.strided or p.small_images)
    few = p.coarse in FEW_COARSE and p.fine >= FEW_COARSE.start
    large = p.batch == 1 or (p.counted and p.positions >= LARGE_IMAGE)
    return NEWER and p.result == "kernel" and plane and few and large


def most_terms(p: Problem) -> int:
    """As many multiply-adds as one fused loop may hold."""
    if p.result == "kernel":
        return MOST_TERMS_TO_KERNEL
    several = p.summed > 1 and p.fine * p.coarse <= OF_PRODUCTS
    return MORE_TERMS if several else MOST_TERMS


def _on_one_core(p: Problem) -> bool:
    """What older XLA convolves one row after the other, on one core, though all would fill several.

    Phases are several convolutions side by side.
    """
    if not (p.dense and p.rank <= 2 and p.bits > 16 and p.batch and p.batch > 1) or p.phase:
        return False
    axis, terms = p.geometry.axes[-1], p.taps * p.fine
    row = axis.coarse * terms * p.coarse
    few = p.coarse < NARROW or (p.coarse <= NEXT_FEW and terms < FEWER_TERMS)
    alone = max(axis.coarse, p.coarse) < NARROW or (few and row < LONG_ROW)
    worth = terms * p.coarse >= WORTH_COPYING * (p.fine + p.coarse)
    dropped = abreast.places(axis) / axis.coarse
    return alone and worth and p.batch * row >= LONG_ROW and dropped <= 1.25


#: Beside each rule, a row of the layer benchmark that earned it: milliseconds, this spelling
#: against the next best.
RULES = (
    Rule(
        "swapped",  # replknet-14-dw27, forward: 2.0, 28; newer 2.8, 55 (AMD)
        lambda p: (
            POSSIBLE["swapped"](p)
            and _many_taps(p)
            and 2 * p.pixels <= p.taps
            and not p.partitioned
        ),
        "a depthwise kernel larger than the image: each in the place of the other",
    ),
    Rule(
        "planes",  # resnet50-56-1x1, channels first, forward: 8.9, 17; weights: 8.4, 15 (AMD)
        lambda p: (
            p.pointwise
            and p.channels_first
            and max(p.fine, p.coarse) <= p.positions
            and not (p.bits == 16 and p.result == "kernel")
            and not p.partitioned
        ),
        "one tap, channels first: a dot for each image, and no transposition",
        channels_first=True,
    ),
    Rule(
        "phases",  # mobilenetv2-56-dw3-s2, channels first, data: 2.8, 5.8 (AMD, AVX-512)
        lambda p: (
            p.channels_first
            and p.result == "fine"
            and (_few(p, 4) or _grouped(p) or (p.dense and not p.strided))
            and not (p.patches or _worth_transposing(p))
        ),
        "as stride-1 convolutions, of which only groups are transposed",
        channels_first=True,
    ),
    Rule(
        # not for phases: 256 channels to 56 x 56, stride 2, on 2 devices 21, 7.4 (AMD, AVX-512)
        "blocks",
        lambda p: p.channels_first and POSSIBLE["blocks"](p) and _few(p, 4) and not p.phase,
        "grouped, and split over devices: multiply-adds would exchange more than halos",
        channels_first=True,
    ),
    Rule(
        "taps",  # mobilenetv2-56-dw3, channels first, forward: 2.7, 11 (AMD)
        lambda p: p.channels_first and p.result == "coarse" and _few(p, 1 if p.strided else 4),
        "few channels a group: multiply-adds, and no transposition",
        channels_first=True,
    ),
    Rule(
        # resnext50-28-g32x8, channels first, forward: 4.8, 8.8; strided 18, 9.8 (AMD, AVX-512).
        # Without more channels, XLA would transpose what is read for each tap anew: 12.
        "skewed",
        lambda p: (
            p.channels_first
            and p.result == "coarse"
            and not (p.strided or p.partitioned or p.bits != 32)
            and _few(p, 8)
            and p.geometry.groups * p.fine >= FEWEST_SKEWED
        ),
        "few channels a group: multiply-adds, of what is transposed and written once",
    ),
    Rule(
        "taps",  # mobilenetv2-56-dw3, channels first, weights: 5.0, 16 (AMD)
        lambda p: p.channels_first and p.result == "kernel" and p.long_rows and _few(p, 2),
        "few channels a group: multiply-adds, and no transposition",
        channels_first=True,
    ),
    Rule(
        "each",  # resnext50-28-g32x8-s2, channels first, weights: 20, 85 (AMD)
        lambda p: (
            p.channels_first
            and p.result != "fine"
            and _grouped(p)
            and not _few(p, 2 if p.result == "kernel" else 4)
            and not _spread_out(p)
        ),
        "grouped: one contraction for each group, transposed by itself",
        channels_first=True,
    ),
    Rule(
        "direct",  # convnext-patchify, forward, newer: 2.4, 4.7; vit-patchify 9.9, 10.6 (AMD)
        lambda p: (
            NEWER
            and p.result == "coarse"
            and p.dense
            and p.tiled
            and p.rank == 2
            and p.bits == 32
            and not p.small_images
        ),
        "windows that tile: newer XLA has a convolution for them",
    ),
    Rule(
        "phases",  # resnet50-7-1x1-s2, channels first, data: 19, by matmul 25 (AMD, AVX-512)
        lambda p: (
            p.dense and p.pointwise and p.result == "fine" and p.channels_first and p.bits == 32
        ),
        "one tap: a dot of a kernel that is transposed for it, which with OIX is no more to do",
    ),
    Rule(
        "matmul",  # resnet50-56-1x1, weights: 4.9, 50
        lambda p: p.dense and POSSIBLE["matmul"](p),
        "one tap, or windows that tile: one dot",
    ),
    Rule(
        "matmul",  # eegnet-spatial-m2, data: 0.7, 50
        lambda p: p.patches and not p.pointwise and p.result == "fine" and not p.partitioned,
        "windows that tile: a dot for each group, not a phase for each tap",
    ),
    Rule(
        "direct",  # wav2vec2-k10-s5, data: 1.6, 10; with more axes XLA:CPU may abort the process
        lambda p: (
            p.result == "fine"
            and p.fine == 1
            and p.dense
            and p.strided
            and p.rank == 1
            and p.bits < 64
        ),
        "a one-channel waveform: XLA has a dot and a scatter for it",
    ),
    Rule(
        # demucs-k8-s4, data: 6.5, 7.8; dcgan-image, forward, newer: 1.6, 2.0; but 4 x 4 images of
        # 512 channels, transposed 4x4 to 256, newer: 16, 12 (AMD)
        "depth",
        lambda p: (
            p.result == "fine"
            and POSSIBLE["depth"](p)
            and p.bits > 16
            and not p.partitioned
            and not (NEWER and p.small_images)
        ),
        "strides that divide the kernel: one convolution to more channels, not several phases",
    ),
    Rule(
        "direct",  # resnet50-14-3x3-s2, data: 17, 24; newer 16, 17 (AMD)
        lambda p: p.spread and p.small_images and not NEWER,
        "small images, whose phases would be smaller still",
    ),
    Rule(
        "phases",  # mobilenetv2-56-dw3-s2, data: 1.1, 201
        lambda p: p.result == "fine",
        "as stride-1 convolutions, which are fast forms",
    ),
    Rule(
        "each",  # resnext50-56-g32x4, weights: 24, 33; newer 24, 39 (AMD)
        lambda p: (
            p.result == "kernel"
            and p.large
            and p.bits == 32
            and p.fine > 1
            and not p.strided
            and _few(p, 8)
            and _grouped(p)
        ),
        "few channels a group of much data: windows group by group, which is transposed for that",
        channels_first=True,
    ),
    Rule(
        # 16 images of 28 x 28, 32 groups of 8, forward, on 2 devices: rows split, 25, by taps 188;
        # the batch split, 19 and 18 (AMD)
        "blocks",
        lambda p: POSSIBLE["blocks"](p) and (_few(p, 8) or _many_taps(p)),
        "grouped, and split over devices: multiply-adds would exchange more than halos",
    ),
    Rule(
        # resnext50-28-g32x8, forward: 3.6, 6.8; depthwise 7x7, 3 images of 14 x 14 with 1,024
        # channels 1.9, 10 (AMD)
        "skewed",
        lambda p: p.result == "coarse" and _few(p, 8) and _crowded(p) and not p.partitioned,
        "multiply-adds, and places a multiple of a power of two apart would crowd in the cache",
    ),
    Rule(
        "taps",  # resnext50-56-g32x4, forward: 6.7, 45; mobilenetv2-56-dw3, weights: 12, 390
        lambda p: _few(p, 8) or _thin(p) or (_short(p) and not p.channels_first),
        "few channels a group: multiply-adds instead of XLA's scalar loops",
    ),
    Rule(
        # depthwise 31x31, 4 images of 32 x 32 with 128 channels, forward: 32, 1,731 (AMD)
        "pieces",
        _many_taps,
        "grouped, and too many taps for one program: a loop over pieces of the kernel",
    ),
    Rule(
        "direct",
        lambda p: p.taps > MOST_TAPS,
        "too many taps to have a piece of the program for each",
    ),
    Rule(
        "dots",
        lambda p: p.partitioned and not p.dense,
        "grouped, and split over devices: a grouped convolution would gather the batch",
    ),
    Rule(
        "direct",
        lambda p: p.partitioned,
        "split over devices: other spellings would loop over an axis that may be split",
    ),
    Rule(
        "slabs",  # unet3d-16-3x3x3, forward: 11, 21
        lambda p: (
            p.result == "coarse"
            and p.dense
            and p.rank > 2
            and not (p.along_first or (p.bits == 16 and p.coarse > FEWEST))
        ),
        "XLA's fast convolution has two spatial axes",
    ),
    Rule(
        "columns",  # resnext50-28-g32x8-s2, weights: 11, 20 (AMD, AVX-512)
        lambda p: _grouped(p) and _spread_out(p),
        "strided and grouped: XLA would spread the coarse tensor out for a convolution",
    ),
    Rule(
        "each",  # regnet-28-g5x24, forward: 4.6, 8.5; resnext50-56-g32x4, weights: 18, 32
        _grouped,
        "grouped: one contraction for each group is twice as fast as one for all",
    ),
    Rule(
        "matmul",  # shufflenet-28-1x1-g3, forward, bfloat16: 2.2, by direct 4.3 (AMD)
        lambda p: p.pointwise,
        "grouped, one tap: one dot with the groups as its batch",
    ),
    Rule(
        # resnext50-7-g32x32, forward, bfloat16: 12, by direct 19; each 10 there, and 10 against 14
        # for its weights, but it was never measured with 16-bit arithmetic (AMD)
        "columns",
        lambda p: not p.dense and (p.bits == 16 or p.result == "kernel"),
        "grouped: dots with several groups as their batch",
    ),
    Rule(
        "planes",  # wav2vec2-k10-s5, channels first, weights: 2.6, 4.3 (AMD, AVX-512)
        lambda p: (
            p.channels_first
            and p.result == "kernel"
            and POSSIBLE["planes"](p)
            and p.fine == 1
            and p.bits > 16
            and _windows(p) <= columns.WHOLE
        ),
        "a one-channel waveform, channels first: dots of windows for each image, no transposition",
        channels_first=True,
    ),
    Rule(
        "columns",  # wav2vec2-k10-s5, weights: 2.6, 4.9; newer 2.5, 4.1 (AMD, AVX-512)
        lambda p: p.result == "kernel" and p.rank == 1 and (p.fine == 1 or p.bits == 64),
        "a one-channel waveform, or one in float64, whose convolutions XLA may run naively",
    ),
    Rule(
        "depth",  # hifigan-up-k4-s2, weights: 4.2, 5.3; newer 3.2, 4.2 (AMD)
        lambda p: p.result == "kernel" and POSSIBLE["depth"](p) and p.bits > 16 and not p.tiny,
        "a stride that divides the kernel: fewer taps of more channels",
    ),
    Rule(
        "products",  # dcgan-image, forward, bfloat16: 1.6, 16
        lambda p: p.result == "coarse" and p.few_results and (p.bits == 16 or not NEWER),
        "few result channels: one dot gives the products with all taps",
    ),
    Rule(
        "columns",  # resnet50-28-3x3, forward, bfloat16: 3.6, 7.6
        lambda p: p.bits == 16 and (p.result == "kernel" or p.coarse > FEWEST),
        "16 bits: dots are several times faster than convolutions, which XLA widens",
    ),
    Rule(
        "direct",  # unet-enc1, weights, newer: 7.6, 13 (AMD, AVX-512); 20, 29 (AMD)
        lambda p: _by_image(p) and p.batch == 1,
        "one image and few channels: newer XLA has a convolution for it",
    ),
    Rule(
        "images",  # resnet50-56-3x3, channels first, weights, newer: 11, 18 (AMD, AVX-512)
        lambda p: _by_image(p) and p.channels_first,
        "large images of few channels: newer XLA has a convolution for each",
        channels_first=True,
    ),
    Rule(
        "images",  # resnet50-56-3x3, weights, newer: 11, 16 (AMD, AVX-512)
        _by_image,
        "large images of few channels: newer XLA has a convolution for each",
    ),
    Rule(
        # r2plus1d-1x3x3, channels first, weights: 15, 22; vgg16-conv5_1 11.6, 12.8; but, in blocks
        # and strided, resnet50-28-3x3-s2: 15.9, 14.8 (AMD, AVX-512)
        "columns",
        lambda p: (
            p.channels_first
            and p.result == "kernel"
            and p.rank > 1
            and (not (p.tiny and p.rank == 2) or _spread_out(p))
            and (not p.strided or p.fine < columns.FEW or p.small_images)
        ),
        "channels first: only the coarse tensor is transposed",
        channels_first=True,
    ),
    Rule(
        "columns",  # resnet50-56-3x3, weights: 19, 47; resnet50-stem: 13, 55 (AMD)
        lambda p: (
            p.result == "kernel" and p.rank > 1 and (not (p.tiny and p.rank == 2) or _spread_out(p))
        ),
        "a weights gradient: its windows are large, and a dot has one sum over all of them",
    ),
    Rule(
        "columns",  # r2plus1d-3x1x1, forward: 14, 19
        lambda p: p.result == "coarse" and p.dense and p.rank > 2 and p.along_first,
        "taps along the first axis only: the windows are few",
    ),
    Rule(
        # resnet50-7-3x3, forward, newer: 15, 30; before, only with a heavy kernel that is not
        # transposed first: 23, 30 (AMD)
        "columns",
        lambda p: (
            p.result == "coarse"
            and p.dense
            and p.small_images
            and (NEWER or (p.heavy and p.bits == 32 and not p.channels_first))
        ),
        "small images, which XLA convolves slowly",
    ),
    Rule(
        "abreast",  # resnet50-56-3x3, forward: 11, 19 (AMD, AVX-512)
        lambda p: p.result == "coarse" and not NEWER and _on_one_core(p),
        "short rows, which older XLA convolves on one core: one row of all images",
    ),
    Rule("direct", lambda p: True, "no faster form is known: one convolution"),
)


def choose(problem: Problem) -> Rule:
    """The first rule that holds."""
    return next(rule for rule in RULES if rule.when(problem))


def by_hand(spelling: str, why: str) -> Rule:
    """A choice without the rules."""
    return Rule(spelling, lambda p: True, why, channels_first=spelling == "planes")


def possible(spelling: str, problem: Problem) -> bool:
    """Whether a spelling can spell a problem."""
    return spelling not in POSSIBLE or POSSIBLE[spelling](problem)
