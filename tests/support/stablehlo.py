"""Which of cuDNN's convolutions XLA:GPU makes of one in StableHLO, by its own rules.

They are tried in this order; `fine` below is the real convolution's input, k its kernel's taps.

    backward_data     no feature groups; stride 1, rhs dilation 1, nothing reversed in the window;
                      the rhs comes straight from a `reverse` of exactly its spatial axes, or has
                      one tap while the lhs is dilated (the real stride);
                      the real padding, k - 1 - low and what the sizes leave for high, is >= 0
    backward_filter   no feature groups; stride 1, lhs dilation 1, nothing reversed;
                      batch groups, or a rhs longer than the result along some axis;
                      without rhs dilation (the real stride), longer along every axis, or all but
                      the one of a rhs that is reshaped from 1-D;
                      the real padding, low and what the sizes leave for high, is >= 0
    forward           at most three axes, no empty operand, nothing reversed
    none              the rest: compiled to loops, or not at all

Left out, for nothing here makes it: a kernel that is reversed in 1-D and reshaped to 2-D then.

XLA leaves high padding a choice as wide as the real stride less one. Where low padding is not
among the choices, or is negative, or a forward convolution has a dilated lhs, XLA first writes
an operand out in memory: `copies` says which.

    backward_data     a larger result, to be cropped
    backward_filter   the lhs, padded
    forward           the lhs, padded, cropped and spread out; with it a dilated rhs, spread out;
                      also the lhs of batch groups, regrouped
"""

import re
from dataclasses import dataclass

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Convolution:
    """One `stablehlo.convolution`: its text, parsed."""

    strides: Shape
    padding: tuple[tuple[int, int], ...]
    lhs_dilation: Shape
    rhs_dilation: Shape
    reversed: bool  # any axis, in the window
    batch_groups: int
    feature_groups: int
    # axis letters as StableHLO writes them: b f 0 1, 0 1 i o, b f 0 1
    lhs_axes: tuple[str, ...]
    rhs_axes: tuple[str, ...]
    out_axes: tuple[str, ...]
    lhs: Shape
    rhs: Shape
    out: Shape
    dtypes: tuple[str, str, str]
    rhs_made_by: str  # the text of the operation that gives the rhs, "" for an argument

    @property
    def rank(self) -> int:
        return len(self.strides)

    def spatial(self, which: str) -> Shape:
        """Extents of the spatial axes of `lhs`, `rhs` or `out`, in order."""
        return tuple(self._extent(which, str(axis)) for axis in range(self.rank))

    def _extent(self, which: str, letter: str) -> int:
        return getattr(self, which)[getattr(self, f"{which}_axes").index(letter)]

    @property
    def rhs_is_reversed(self) -> bool:
        """Straight from a `reverse` of all spatial axes of the rhs, and of no others."""
        found = re.search(r"stablehlo\.reverse .*dims = \[([\d, ]*)\]", self.rhs_made_by)
        spatial = {at for at, letter in enumerate(self.rhs_axes) if letter.isdigit()}
        return found is not None and set(_ints(found[1])) == spatial

    @property
    def rhs_is_reshaped_from_1d(self) -> bool:
        """Two spatial axes, one of which a reshape has put in."""
        found = re.search(r"stablehlo\.reshape .*\(tensor<([\dx]+)x\w+>\)", self.rhs_made_by)
        if self.rank != 2 or not found:
            return False
        source = tuple(map(int, found[1].split("x")))
        return any(
            letter.isdigit() and self.rhs[at] == 1 and source == self.rhs[:at] + self.rhs[at + 1 :]
            for at, letter in enumerate(self.rhs_axes)
        )


@dataclass(frozen=True)
class Match:
    """What a convolution becomes, and what XLA has to write out for it."""

    kind: str
    copies: tuple[str, ...] = ()


def match(conv: Convolution) -> Match:
    """By the table; the backward rules forget to count axes, and cuDNN's runner fails then."""
    if conv.rank > 3:
        return Match("none")
    return _backward_data(conv) or _backward_filter(conv) or _forward(conv) or Match("none")


def _backward_data(conv: Convolution) -> Match | None:
    one_tap = set(conv.spatial("rhs")) == {1} and max(conv.lhs_dilation) > 1
    if (
        conv.feature_groups > 1
        or {*conv.strides, *conv.rhs_dilation} != {1}
        or conv.reversed
        or not (conv.rhs_is_reversed or one_tap)
    ):
        return None
    lows = [k - 1 - low for k, (low, _) in zip(conv.spatial("rhs"), conv.padding, strict=True)]
    sizes = (conv.spatial("out"), conv.spatial("rhs"), conv.spatial("lhs"))
    return _backward("backward_data", "result", lows, sizes, conv.lhs_dilation)


def _backward_filter(conv: Convolution) -> Match | None:
    longer = [k > o for k, o in zip(conv.spatial("rhs"), conv.spatial("out"), strict=True)]
    enough = conv.rank - 1 if conv.rhs_is_reshaped_from_1d else conv.rank
    if (
        conv.feature_groups > 1
        or {*conv.strides, *conv.lhs_dilation} != {1}
        or conv.reversed
        or (conv.batch_groups == 1 and not any(longer))
        or (max(conv.rhs_dilation) == 1 and sum(longer) < enough)
    ):
        return None
    lows = [low for low, _ in conv.padding]
    sizes = (conv.spatial("lhs"), conv.spatial("out"), conv.spatial("rhs"))
    return _backward("backward_filter", "lhs", lows, sizes, conv.rhs_dilation)


def _backward(kind: str, copy: str, lows, sizes, strides) -> Match | None:
    """The padding of the real convolution, of sizes (fine, kernel, coarse): each must be >= 0."""
    even = True
    for low, fine, kernel, coarse, stride in zip(lows, *sizes, strides, strict=True):
        least = kernel + stride * (coarse - 1) - fine - low
        high = min(max(low, least), least + stride - 1)
        if low < 0 or high < 0:
            return None
        even = even and low == high
    return Match(kind, () if even else (copy,))


def _forward(conv: Convolution) -> Match | None:
    if 0 in conv.lhs + conv.rhs or conv.reversed:
        return None
    if max(conv.lhs_dilation) == 1 and all(low == high >= 0 for low, high in conv.padding):
        return Match("forward", ("lhs",) if conv.batch_groups > 1 else ())
    return Match("forward", ("lhs", "rhs") if max(conv.rhs_dilation) > 1 else ("lhs",))


def convolutions(text: str) -> list[Convolution]:
    """All convolutions of a module's text, in order."""
    found = []
    for function in re.split(r"(?=func\.func )", text):
        made = dict(re.findall(r"(%[\w#:]+) = (.*)", function))
        found += [_parse(line, made) for line in made.values() if line.startswith(_NAME)]
    if len(found) != text.count(f"{_NAME}("):
        raise ValueError(f"unreadable: {text.count(_NAME)} convolutions, {len(found)} understood")
    return found


_NAME = "stablehlo.convolution"


def _parse(line: str, made: dict[str, str]) -> Convolution:
    _, rhs = re.search(r"\((\S+), (\S+)\)", line).groups()
    lhs_axes, rhs_axes, out_axes = (
        tuple(axes.split(", "))
        for axes in re.search(r"\[([\w, ]+)\]x\[([\w, ]+)\]->\[([\w, ]+)\]", line).groups()
    )
    types = re.findall(r"tensor<([\dx]*)x(\w+)>", line[line.rindex(" : ") :])
    lhs, right, out = (tuple(map(int, extents.split("x"))) for extents, _ in types)
    pads = re.search(r"pad = \[(\[.*?\])\], ", line)[1]
    return Convolution(
        strides=_ints(re.search(r"stride = \[(.*?)\]", line)[1]),
        padding=tuple(_ints(pair) for pair in re.findall(r"\[(.*?)\]", pads)),
        lhs_dilation=_ints(re.search(r"lhs_dilate = \[(.*?)\]", line)[1]),
        rhs_dilation=_ints(re.search(r"rhs_dilate = \[(.*?)\]", line)[1]),
        reversed="true" in re.search(r"reverse = \[(.*?)\]", line)[1],
        batch_groups=int(re.search(r"batch_group_count = (\d+)", line)[1]),
        feature_groups=int(re.search(r"feature_group_count = (\d+)", line)[1]),
        lhs_axes=lhs_axes,
        rhs_axes=rhs_axes,
        out_axes=out_axes,
        lhs=lhs,
        rhs=right,
        out=out,
        dtypes=tuple(dtype for _, dtype in types),
        rhs_made_by=made.get(rhs, ""),
    )


def _ints(text: str) -> Shape:
    return tuple(map(int, text.split(", ")))
