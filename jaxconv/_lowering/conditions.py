"""What the rules of a choice ask about a contraction, and the limits that were measured for it."""

import math

from jaxconv._lowering import abreast, strips
from jaxconv._lowering.problem import MOST_TAPS, NEWER, TINY, Problem

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

#: More data than this takes longer to transpose than multiply-adds save: strided data gradients,
#: 3x3, 256 channels in groups of 8, channels first, 2 images of 56 x 56 3.7, transposed for each
#: phase 14; 8 images 28 and 21 (AMD, AVX-512).
MOVED = 4 << 20

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


#: A depthwise kernel of so many elements takes twice the first cache of most cores: by strips 7x7,
#: 384 channels 1.7, and else 2.4; 5x5, 672 channels 1.8 and 1.9, 3x3, 1,024 2.0 and 1.6 (AMD).
MUCH_KERNEL = 16 << 10


def few(p: Problem, most: int) -> bool:
    """At most so few channels of each group are summed that multiply-adds are fast."""
    if p.result == "kernel" and p.fine * p.coarse > FEW_PRODUCTS:
        return False
    return not p.dense and p.summed <= most and p.taps * p.summed <= most_terms(p)


def one_dot(p: Problem) -> bool:
    """One tap or windows that tile, of one group, or to the fine tensor of several."""
    tiles = p.patches and not p.pointwise and p.result == "fine" and not p.partitioned
    return p.pointwise or p.patches if p.dense else tiles


def to_many(p: Problem) -> bool:
    """Each of several channels of a group contributes to so many results that a dot is faster."""
    return p.fine > 4 and p.coarse > 64


def crowded(p: Problem) -> bool:
    """What all taps read for a place of the result falls on too few lines of the first cache."""
    place = p.geometry.groups * p.fine * max(p.bits, 32) // 8
    return p.taps * p.fine * math.gcd(place, PAGE) > CROWD


def much_kernel(p: Problem) -> bool:
    """The kernel outgrows a core's first cache, and an image does not outgrow the next."""
    kernel, image = (n * p.geometry.groups for n in (p.taps, p.pixels))
    return kernel >= MUCH_KERNEL and image <= strips.TOGETHER


def worth_each(p: Problem) -> bool:
    """Worth a contraction for each group."""
    return not (p.dense or p.bits == 16 or p.tiny or p.partitioned or many_taps(p))


def many_taps(p: Problem) -> bool:
    """Too many for one program that has a piece for each."""
    return not p.dense and p.taps > (most_terms(p) if p.depthwise else MOST_TAPS)


def short(p: Problem) -> bool:
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


def thin(p: Problem) -> bool:
    """One tap of few channels: shufflenet-28-1x1-g3, data, 0.5 and 1.0; newer 0.9 and 1.6."""
    little = p.result != "kernel" and p.summed <= THIN
    return little and p.pointwise and p.bits == 32 and not (p.dense or p.channels_first)


def worth_transposing(p: Problem) -> bool:
    """Channels last, the phases of this data gradient are multiply-adds, unlike channels first."""
    data = p.geometry.groups * p.fine * p.pixels * (math.inf if p.batch is None else p.batch)
    strided = p.strided and p.bits == 32 and few(p, 8) and data <= MOVED
    return p.summed > 4 and (strided or short(p))


def holes_in_kernel(p: Problem) -> bool:
    """A weights gradient that as a convolution has a kernel with holes."""
    windows = p.rank > 1 and not (p.pointwise or p.patches)
    spread = p.result == "kernel" and p.strided and p.bits == 32 and windows
    return spread and not (p.channels_first and p.taps <= KEPT)


def by_windows(p: Problem) -> bool:
    """A weights gradient of planes or more, with work enough for a dot, or no better form."""
    little = p.tiny and p.rank == 2 and not holes_in_kernel(p)
    return p.result == "kernel" and p.rank > 1 and not little


def plane_to_fine(p: Problem) -> bool:
    """A strided data gradient in float32 that lax has one convolution for."""
    return p.result == "fine" and p.strided and p.dense and p.rank == 2 and p.bits == 32


def by_image(p: Problem) -> bool:
    """A weights gradient of one image, or of several large ones, of few channels."""
    plane = p.dense and p.rank == 2 and p.bits == 32 and not (p.strided or p.small_images)
    narrow = p.coarse in FEW_COARSE and p.fine >= FEW_COARSE.start
    large = p.batch == 1 or (p.counted and p.positions >= LARGE_IMAGE)
    return NEWER and p.result == "kernel" and plane and narrow and large


def most_terms(p: Problem) -> int:
    """As many multiply-adds as one fused loop may hold."""
    if p.result == "kernel":
        return MOST_TERMS_TO_KERNEL
    several = p.summed > 1 and p.fine * p.coarse <= OF_PRODUCTS
    return MORE_TERMS if several else MOST_TERMS


def on_one_core(p: Problem) -> bool:
    """What older XLA convolves one row after the other, on one core, though all would fill several.

    Phases are several convolutions side by side, but not their slabs, which are summed: 3-D, 2
    volumes of 16 x 56 x 56, 64 channels, stride 2 along the first axis, data, 71 and 131 (AMD,
    AVX-512).
    """
    if not (p.dense and p.rank <= 2 and p.bits > 16 and p.batch and p.batch > 1) or p.phase:
        return False
    axis, terms = p.geometry.axes[-1], p.taps * p.fine
    row = axis.coarse * terms * p.coarse
    narrow = p.coarse < NARROW or (p.coarse <= NEXT_FEW and terms < FEWER_TERMS)
    alone = max(axis.coarse, p.coarse) < NARROW or (narrow and row < LONG_ROW)
    worth = terms * p.coarse >= WORTH_COPYING * (p.fine + p.coarse)
    dropped = abreast.places(axis) / axis.coarse
    return alone and worth and p.batch * row >= LONG_ROW and dropped <= 1.25
