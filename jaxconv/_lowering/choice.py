"""Which spelling for which contraction on CPU: the first rule that holds."""

from collections.abc import Callable

from jaxconv._lowering import alike, blocks, columns, strips, swapped
from jaxconv._lowering.conditions import (
    by_image,
    by_windows,
    crowded,
    few,
    holes_in_kernel,
    many_taps,
    much_kernel,
    on_one_core,
    one_dot,
    plane_to_fine,
    short,
    thin,
    to_many,
    worth_each,
    worth_transposing,
)
from jaxconv._lowering.problem import MOST_TAPS, NEWER, Problem, Rule

#: Of fewer channels, all groups together, a skew adds too much: it is 16 more.
FEWEST_SKEWED = 32

#: A waveform's data gradient by a dot and a scatter is slow of larger strides: 160 of 400 taps,
#: 4,000 places of 201 channels, newer, 10, and 5.2; but 16 of 32 taps 1.2 and 2.3 (AMD, AVX-512).
WIDE = 64

#: Contractions that one program may have for strides of many phases. Undilated, there are up to 27
#: in three dimensions; of dilated kernels of many taps, few phases meet the same places.
MOST_ALIKE = 64

#: Channels first, larger images are rows of vectors already: 7x7, 8 images of 10 x 10, 640 channels
#: by strips 1.1, and else 1.6; but 14 x 14, 384 channels 2.1 and 1.8 (AMD).
FEW_PIXELS = 128

#: So few result channels are too few for a dot by windows to be fast.
FEWEST = 4

#: What a spelling cannot do at all; one that is not named can do everything.
POSSIBLE: dict[str, Callable[[Problem], bool]] = {
    "matmul": lambda p: p.pointwise or p.patches,
    "planes": lambda p: p.pointwise or (p.result == "kernel" and p.rank == 1),
    "blocks": lambda p: p.result == "coarse" and max(blocks.counts(p.geometry, p.devices)) > 1,
    "abreast": lambda p: p.result != "kernel" and p.counted,
    "phases": lambda p: p.result == "fine",
    "alike": lambda p: p.result == "fine" and p.strided,
    "slabs": lambda p: p.rank > 1,
    "depth": lambda p: p.dense and p.result != "coarse" and p.foldable,
    "each": lambda p: not p.dense,
    "images": lambda p: p.result == "kernel" and p.counted,
    "products": lambda p: p.dense and p.result != "kernel",
    "skewed": lambda p: not p.dense and p.result != "kernel",
    "strips": lambda p: (
        p.result != "kernel"
        and p.depthwise
        and p.coarse == 1
        and p.geometry.groups % strips.CHANNELS == 0
    ),
    "swapped": lambda p: (
        p.result == "coarse"
        and p.depthwise
        and p.coarse == 1
        and p.counted
        and swapped.possible(p.geometry)
    ),
}


#: Beside each rule, what earned it: a row of the layer benchmark, or a shape, and milliseconds by
#: this spelling and the next best. The few without are for what no other spelling can do.
RULES = (
    Rule(
        "swapped",  # replknet-14-dw27, forward: 2.0, 28; newer 2.8, 55 (AMD)
        lambda p: (
            POSSIBLE["swapped"](p) and many_taps(p) and 2 * p.pixels <= p.taps and not p.partitioned
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
        "direct",  # wav2vec2-k10-s5, data: 1.6, 10; with more axes XLA:CPU may abort the process
        lambda p: (
            p.result == "fine"
            and p.fine == 1
            and p.dense
            and p.strided
            and p.rank == 1
            and p.geometry.axes[0].stride < WIDE
            and not one_dot(p)
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
            and not one_dot(p)
            and p.bits > 16
            and not p.partitioned
            and not (NEWER and p.small_images)
        ),
        "strides that divide the kernel: one convolution to more channels, not several phases",
    ),
    Rule(
        # depthwise 32x32, stride 16, 21 channels of 16 x 16, data: 0.9, 1.1, and 0.2 s to compile
        # instead of 7.8; 500 places of 256 channels to a waveform, 1,000 taps, stride 256: 3.1, 9.7
        # (AMD, AVX-512)
        "alike",
        lambda p: p.many_phases and not one_dot(p) and alike.contractions(p.geometry) <= MOST_ALIKE,
        "strides of many phases: those that meet the same places are channels of one contraction",
        channels_first=None,
    ),
    Rule(
        "phases",  # mobilenetv2-56-dw3-s2, channels first, data: 2.8, 5.8 (AMD, AVX-512)
        lambda p: (
            p.channels_first
            and p.result == "fine"
            and (few(p, 4) or worth_each(p) or (p.dense and not p.strided))
            and not (p.patches or p.many_phases or worth_transposing(p))
        ),
        "as stride-1 convolutions, of which only groups are transposed",
        channels_first=True,
    ),
    Rule(
        # convnext-7-dw7, forward: 1.2, 2.5; 7x7, 32 images of 14 x 14, 384 channels 6.5, 9.3; but
        # one of 56 x 56 4.2, 3.8 (AMD)
        "strips",
        lambda p: (
            p.result == "coarse"
            and POSSIBLE["strips"](p)
            and few(p, 1)
            and much_kernel(p)
            and p.bits == 32
            and not (p.strided or p.partitioned)
            and not (p.channels_first and (p.pixels > FEW_PIXELS or p.rank == 1))
        ),
        "a depthwise kernel larger than a first cache: strips of channels, each by itself",
        channels_first=None,
    ),
    Rule(
        # not for phases: 256 channels to 56 x 56, stride 2, on 2 devices 21, 7.4 (AMD, AVX-512)
        "blocks",
        lambda p: p.channels_first and POSSIBLE["blocks"](p) and few(p, 4) and not p.phase,
        "grouped, and split over devices: multiply-adds would exchange more than halos",
        channels_first=True,
    ),
    Rule(
        "taps",  # mobilenetv2-56-dw3, channels first, forward: 2.7, 11 (AMD)
        lambda p: p.channels_first and p.result == "coarse" and few(p, 1 if p.strided else 4),
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
            and few(p, 8)
            and p.geometry.groups * p.fine >= FEWEST_SKEWED
        ),
        "few channels a group: multiply-adds, of what is transposed and written once",
    ),
    Rule(
        "taps",  # mobilenetv2-56-dw3, channels first, weights: 5.0, 16 (AMD)
        lambda p: p.channels_first and p.result == "kernel" and p.long_rows and few(p, 2),
        "few channels a group: multiply-adds, and no transposition",
        channels_first=True,
    ),
    Rule(
        "each",  # resnext50-28-g32x8-s2, channels first, weights: 20, 85 (AMD)
        lambda p: (
            p.channels_first
            and p.result != "fine"
            and worth_each(p)
            and not few(p, 2 if p.result == "kernel" else 4)
            and not holes_in_kernel(p)
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
            p.dense
            and p.pointwise
            and p.result == "fine"
            and p.channels_first
            and p.bits == 32
            and not p.many_phases
        ),
        "one tap: a dot of a kernel that is transposed for it, which with OIX is no more to do",
    ),
    Rule(
        "matmul",  # resnet50-56-1x1, weights: 4.9, 50; eegnet-spatial-m2, data: 0.7, 50
        one_dot,
        "one tap, or windows that tile: one dot, or one for each group",
    ),
    Rule(
        "direct",  # resnet50-14-3x3-s2, data: 17, 24; newer 16, 17 (AMD)
        lambda p: plane_to_fine(p) and p.small_images and not NEWER,
        "small images, whose phases would be smaller still",
    ),
    Rule(
        "phases",  # mobilenetv2-56-dw3-s2, data: 1.1, 201
        lambda p: p.result == "fine" and not p.many_phases,
        "as stride-1 convolutions, which are fast forms",
    ),
    Rule(
        "direct",
        lambda p: p.result == "fine",
        "large strides and dilations, of which few phases are alike: one slow convolution",
    ),
    Rule(
        "each",  # resnext50-56-g32x4, weights: 24, 33; newer 24, 39 (AMD)
        lambda p: (
            p.result == "kernel"
            and p.large
            and p.bits == 32
            and p.fine > 1
            and not p.strided
            and few(p, 8)
            and worth_each(p)
        ),
        "few channels a group of much data: windows group by group, which is transposed for that",
        channels_first=True,
    ),
    Rule(
        # 16 images of 28 x 28, 32 groups of 8, forward, on 2 devices: rows split, 25, by taps 188;
        # the batch split, 19 and 18 (AMD)
        "blocks",
        lambda p: POSSIBLE["blocks"](p) and (few(p, 8) or many_taps(p)),
        "grouped, and split over devices: multiply-adds would exchange more than halos",
    ),
    Rule(
        # resnext50-28-g32x8, forward: 3.6, 6.8; depthwise 5x5, 6 images of 14 x 14 with 512
        # channels 0.4, 0.8 (AMD)
        "skewed",
        lambda p: p.result == "coarse" and few(p, 8) and crowded(p) and not p.partitioned,
        "multiply-adds, and places a multiple of a power of two apart would crowd in the cache",
    ),
    Rule(
        # 4 images of 17 x 17, 8 groups of 8 to 128, 2x2, forward: 0.96, 6.3; but 8 to 32 0.28, 0.17
        # (AMD, AVX-512)
        "columns",
        lambda p: p.result == "coarse" and few(p, 8) and to_many(p) and not p.partitioned,
        "few channels a group to many: dots, of windows that are few",
    ),
    Rule(
        "taps",  # resnext50-56-g32x4, forward: 6.7, 45; mobilenetv2-56-dw3, weights: 12, 390
        lambda p: few(p, 8) or thin(p) or (short(p) and not p.channels_first),
        "few channels a group: multiply-adds instead of XLA's scalar loops",
    ),
    Rule(
        # depthwise 31x31, 4 images of 32 x 32 with 128 channels, forward: 32, 1,731 (AMD)
        "pieces",
        many_taps,
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
        lambda p: worth_each(p) and holes_in_kernel(p),
        "strided and grouped: XLA would spread the coarse tensor out for a convolution",
    ),
    Rule(
        "each",  # regnet-28-g5x24, forward: 4.6, 8.5; resnext50-56-g32x4, weights: 18, 32
        worth_each,
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
            and p.dense
            and p.rank == 1
            and p.fine == 1
            and p.bits > 16
            and p.windows * p.bits / 8 <= columns.WHOLE
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
        lambda p: by_image(p) and p.batch == 1,
        "one image and few channels: newer XLA has a convolution for it",
    ),
    Rule(
        "images",  # resnet50-56-3x3, weights, newer: 11, 16; channels first 11, 18 (AMD, AVX-512)
        by_image,
        "large images of few channels: newer XLA has a convolution for each",
        channels_first=None,
    ),
    Rule(
        # r2plus1d-1x3x3, channels first, weights: 15, 22; vgg16-conv5_1 11.6, 12.8; but, in blocks
        # and strided, resnet50-28-3x3-s2: 15.9, 14.8 (AMD, AVX-512)
        "columns",
        lambda p: (
            p.channels_first
            and by_windows(p)
            and (not p.strided or p.fine < columns.FEW or p.small_images)
        ),
        "channels first: only the coarse tensor is transposed",
        channels_first=True,
    ),
    Rule(
        "columns",  # resnet50-56-3x3, weights: 19, 47; resnet50-stem: 13, 55 (AMD)
        by_windows,
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
        lambda p: p.result == "coarse" and not NEWER and on_one_core(p),
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
