"""Layers that no table lists: drawn at random, as real networks have them, the same for a seed.

They are held out: no lowering may be tuned on them (see README.md, "Held-out layers").
"""

import dataclasses
import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from benchmarks import table
from benchmarks.layer import Ints, Layer, layer_class

# Weight (per cent), family, word in the name, channels, rank, windows; one window is drawn evenly.
# A window is kernel, `s` stride, `d` dilation. The weights follow how many layers of published
# networks, classifiers most, are of a kind, with the rare kinds raised so that a hundred draws
# hold several of each: networks, not layers, are what a user picks.
_KINDS = """
18 conv   dense   dense     2  3 3 3 3 3s2 3s2 5 5 5s2 7 7s2 1x7 7x1 2s2 4s2
12 conv   pw      dense     2  1 1 1 1 1 1s2
12 conv   grouped grouped   2  3 3 3 3 3s2 3s2 5 1
16 conv   dw      depthwise 2  3 3 3 3s2 3s2 5 5 5s2 7 7 9
 5 conv   dilated dense     2  3d2 3d2 3d4 3d6 3d12
 2 conv   dilated depthwise 2  3d2 3d4 5d2
 4 conv   strided dense     2  3s3 4s4 5s3 7s4 8s4
 5 conv   stem    few-in    2  3 3s2 3s2 5 7s2 7s2 4s4
 2 conv   head    few-out   2  3 3 5 7 9
 6 deconv up      dense     2  4s2 4s2 3s2 3s2 2s2 2s2
 1 deconv up-grp  grouped   2  4s2 3s2 2s2
 2 deconv up-dw   depthwise 2  4s2 3s2
 4 conv   dense   dense     1  3 3 5 7 11 31 3d2 3d8 3d32 4s2 8s4 16s8
 1 conv   pw      dense     1  1
 1 conv   grouped grouped   1  3 5 15
 3 conv   dw      depthwise 1  3 5 9 15 31 31 5d4
 1 conv   stem    few-in    1  3 7 10s5 16s8 31
 2 deconv up      dense     1  4s2 8s4 16s8
 2 conv   dense   dense     3  3 3 3s2 1x3x3 3x1x1
 1 conv   dw      depthwise 3  3 3 3s2
"""

# Kinds that few networks have, each as likely as the others: those whose convolutions take many
# times as long as others of as much work, in one library or another. `@` lists sizes of src.
_RARE_KINDS = """
 1 conv   position  grouped    1  15 19 31 64 128
 1 conv   stem      few-in     1  16 16s2 31 50s2 64s4
 1 conv   narrow    narrow     1  8 16 31 64 64s2
 1 conv   dw        depthwise  2  13 21 31 31       @14 28 56
 1 conv   dw        wide-dw    2  3 3 5 7           @7 10 14 19
 1 conv   multiply  multiplier 2  3 3 5
 1 conv   late      wide       2  3 3 3s2 5         @4 5 7 8
 1 conv   grouped   grouped    2  3 3 3 3s2 5
 1 conv   stem      few-in     2  5 5 8s4 3         @28 32 84
"""

CHANNELS = (8, 16, 24, 32, 40, 48, 64, 64, 72, 80, 96, 112, 120, 128, 128, 144, 160, 192, 224)
CHANNELS += (240, 256, 256, 288, 320, 384, 480, 512, 512, 576, 640, 672, 768, 960, 1024)
UNEVEN_CHANNELS = (3, 20, 21, 36, 48, 50, 58, 96, 100, 116, 150, 201)
GROUPS, WIDTHS = (2, 3, 4, 5, 8, 8, 10, 16, 32, 32, 64), (4, 8, 8, 12, 16, 16, 24, 32, 48, 64)
NARROW_CHANNELS, WIDE_CHANNELS = (4, 8, 12, 16, 24, 32), (384, 480, 512, 576, 728, 768, 960, 1024)
BATCHES = (1, 1, 2, 4, 8, 8, 16, 32)
LENGTHS = (250, 256, 300, 400, 500, 512, 800, 1000, 1024, 1500, 2000, 2048, 4000, 8000, 16000)
SIZES = (7, 7, 8, 10, 12, 13, 14, 14, 16, 19, 20, 24, 28, 28, 32, 33, 38, 40, 48, 56, 56, 64, 75)
SIZES += (80, 96, 112, 112, 128, 160, 192, 224)
DEPTHS = (4, 7, 8, 13, 16, 32)

LEAST_FLOPS, MOST_FLOPS = 2e7, 3e9  # of one contraction; a depthwise layer has a tenth at least
MOST_BYTES = 64e6  # of one tensor in f32

MEMBERS = (2, 3, 4, 5, 8, 8, 10, 16)
LEAST_MEMBER_FLOPS, MOST_MEMBER_FLOPS = 1e5, 1e8  # limits are drawn: tiny, or worth a call


@dataclass(frozen=True)
class Kind:
    """One line of the table."""

    family: str
    word: str
    channels: str  # dense, grouped, depthwise, few-in, few-out; in rare kinds, more
    rank: int
    windows: Sequence[str]
    sizes: Ints = ()


def layers(number: int, seed: int, rare: bool = False) -> list[Layer]:
    """The first layers of a seed; a larger number only adds to them."""
    # Only random() is used: of all methods, only its values are promised to every Python.
    rng, kinds, drawn = random.Random(seed), _kinds(_RARE_KINDS if rare else _KINDS), []
    while len(drawn) < number:
        kind = _pick(rng, kinds)
        while not _fits(layer := _draw(rng, kind)):
            pass
        name = f"{'rare' if rare else 'r'}{seed}-{len(drawn) + 1} {_describe(kind, layer)}"
        drawn.append(table.tagged(dataclasses.replace(layer, name=name)))
    return drawn


def ensembles(number: int, seed: int) -> list[Layer]:
    """The first ensembles of a seed: members that share a layer, and no operands."""
    rng, kinds, drawn = random.Random(seed), _kinds(_KINDS), []
    while len(drawn) < number:
        members, share = _pick(rng, MEMBERS), rng.random()
        most = LEAST_MEMBER_FLOPS * (MOST_MEMBER_FLOPS / LEAST_MEMBER_FLOPS) ** share
        while True:
            layer = _draw(rng, kind := _pick(rng, kinds))
            if _is_between(layer, most / 10, most, MOST_BYTES / members):
                break
        name = f"r{seed}-{len(drawn) + 1} {members} of {_describe(kind, layer)}"
        drawn.append(table.tagged(dataclasses.replace(layer, name=name, members=members)))
    return drawn


def _kinds(text: str) -> list[Kind]:
    """Each line of a table, as often as its weight says."""
    drawn = []
    for line in text.strip().splitlines():
        words, _, sizes = line.partition("@")
        weight, family, word, channels, rank, *windows = words.split()
        at = tuple(map(int, sizes.split()))
        drawn += [Kind(family, word, channels, int(rank), windows, at)] * int(weight)
    return drawn


def _draw(rng: random.Random, kind: Kind) -> Layer:
    kernel, stride, dilation = _window(_pick(rng, kind.windows), kind.rank)
    groups, src_channels, dst_channels = _channels(rng, kind)
    size = (_pick(rng, kind.sizes),) * kind.rank if kind.sizes else _size(rng, kind.rank)
    if kind.family == "deconv":
        size = tuple(max(n // stride, 4) for n in size)
    style = _pick(rng, ("symmetric",) * 12 + ("SAME",) * 4 + ("valid",) * 3 + ("uneven",))
    axes = [
        _axis(rng, kind.family, n, k, stride, dilation, style)
        for n, k in zip(size, kernel, strict=True)
    ]
    return Layer.of(
        (size, src_channels),
        (tuple(dst for dst, _ in axes), dst_channels),
        family=kind.family,
        kernel=kernel,
        strides=(stride,) * kind.rank,
        dilations=(dilation,) * kind.rank,
        pads_begin=tuple(begin for _, begin in axes),
        batch=_pick(rng, BATCHES),
        groups=groups,
        network="random",
    )


def _fits(layer: Layer) -> bool:
    """Whether it is a layer at all, and neither too small nor too large to be timed."""
    least = LEAST_FLOPS / 10 if "depthwise" in layer_class(layer) else LEAST_FLOPS
    return _is_between(layer, least, MOST_FLOPS, MOST_BYTES)


def _is_between(layer: Layer, least: float, most: float, most_bytes: float) -> bool:
    _, (dst, _) = layer.ends
    if min(dst) < 1:
        return False
    largest = max(map(math.prod, layer.shapes.values()))
    return least <= layer.flops <= most and largest * 4 <= most_bytes


def _channels(rng: random.Random, kind: Kind) -> tuple[int, int, int]:
    """Groups, src channels, dst channels."""
    if kind.channels == "grouped":
        groups, width = _pick(rng, GROUPS), _pick(rng, WIDTHS)
        other = _pick(rng, (width,) * 6 + (2 * width, width // 2))
        return groups, groups * width, groups * other
    if kind.channels == "narrow":
        return 1, _pick(rng, NARROW_CHANNELS), _pick(rng, NARROW_CHANNELS)
    if kind.channels.startswith("wide"):
        wide = _pick(rng, WIDE_CHANNELS)
        return wide if kind.channels == "wide-dw" else 1, wide, wide
    src = _channel_count(rng)
    if kind.channels == "multiplier":
        return src, src, src * _pick(rng, (2, 2, 3, 4))
    if kind.channels == "depthwise":
        many = kind.family == "conv" and rng.random() < 0.06
        return src, src, 2 * src if many else src
    dst = src if rng.random() < 0.5 else _channel_count(rng)
    few = _pick(rng, (1, 2, 3, 3, 3, 4))
    return 1, few if kind.channels == "few-in" else src, few if kind.channels == "few-out" else dst


def _channel_count(rng: random.Random) -> int:
    return _pick(rng, UNEVEN_CHANNELS if rng.random() < 0.15 else CHANNELS)


def _size(rng: random.Random, rank: int) -> Ints:
    if rank == 1:
        return (_pick(rng, LENGTHS),)
    rows, columns = _pick(rng, SIZES), _pick(rng, SIZES)
    plane = (rows, columns) if rng.random() < 0.15 else (rows, rows)
    return (_pick(rng, DEPTHS), *plane) if rank == 3 else plane


def _axis(
    rng: random.Random, family: str, src: int, kernel: int, stride: int, dilation: int, style: str
) -> tuple[int, int]:
    """The dst size and the pad at the beginning of one axis; both follow from the style."""
    extent = dilation * (kernel - 1) + 1
    half = max(math.ceil((extent - stride) / 2), 0)  # what PyTorch's users write
    if family == "deconv":  # each src element becomes `stride` of them
        valid = style == "valid"
        return (stride * (src - 1) + extent, 0) if valid else (stride * src, half)
    if style == "SAME":
        dst = math.ceil(src / stride)
        return dst, max(stride * (dst - 1) + extent - src, 0) // 2
    begin, end = half, half
    if style == "valid":
        begin, end = 0, 0
    if style == "uneven":  # as in causal convolutions, or anything between
        begin, end = _pick(rng, ((extent - 1, 0), (half, 0), (half // 2, half)))
    return (src + begin + end - extent) // stride + 1, begin


def _window(text: str, rank: int) -> tuple[Ints, int, int]:
    """Kernel, stride and dilation: "3", "3s2", "3d4", "1x7"."""
    text, _, dilation = text.partition("d")
    text, _, stride = text.partition("s")
    kernel = tuple(map(int, text.split("x")))
    return (kernel * rank)[:rank], int(stride or 1), int(dilation or 1)


def _describe(kind: Kind, layer: Layer) -> str:
    """A name for people: kind, window, src size, channels, batch."""
    (src, src_channels), (_, dst_channels) = layer.ends
    parts = [kind.word, _by(layer.kernel)]
    parts += [f"s{layer.strides[0]}"] * (layer.strides[0] > 1)
    parts += [f"d{layer.dilations[0]}"] * (layer.dilations[0] > 1)
    parts.append(_by(src))
    parts += [f"g{layer.groups}"] * (kind.channels == "grouped")
    same = src_channels == dst_channels
    parts.append(f"c{src_channels}" + ("" if same else f"-{dst_channels}"))
    return " ".join([*parts, f"n{layer.batch}"])


def _by(sizes: Ints) -> str:
    return "x".join(map(str, sizes))


def _pick(rng: random.Random, values: Sequence):
    return values[int(rng.random() * len(values))]
