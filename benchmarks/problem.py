"""Problem descriptors: `mb8ic64ih56oc64oh56kh3ph1n"name"` and the Layer that it means.

The grammar is that of oneDNN's benchmark lists. A field is a key and a number; `_` separates
and is ignored. Keys: g groups, mb batch (2 if absent), ic and oc channels, and per axis d, h, w:
i input, o output, k kernel, s stride (1), p left pad, d dilation counted from 0.
- A lower axis of which nothing is said copies the higher one: ih56, kh3 mean 56x56, 3x3.
- Without an output size it follows from symmetric pads; with one, the right pad is what is
  left over, and may be negative. A missing left pad is then half of the total.
"""

import math
import re

from benchmarks.layer import Layer

AXES = "dhw"
_FIELD = re.compile(r"(mb|g|ic|oc|[iokspd][dhw])(-?\d*)")
_SPATIAL = {"i": None, "o": None, "k": None, "s": 1, "p": None, "d": 0}


class ProblemError(ValueError):
    """A descriptor that cannot be read; the message points at the character."""

    def __init__(self, text: str, at: int, why: str):
        super().__init__(f"problem descriptor: {why}\n  {text}\n  {' ' * at}^")
        self.at = at


def parse(text: str, family: str = "conv", network: str = "", tags: tuple[str, ...] = ()) -> Layer:
    """The layer that a descriptor means."""
    fields, places, name = _fields(text)
    end = len(text)
    for key in ("ic", "oc"):
        if key not in fields:
            raise ProblemError(text, end, f"`{key}` is missing")
    groups = fields.get("g", 1)
    for key in ("ic", "oc"):
        if fields[key] % groups:
            raise ProblemError(text, places["g"], f"g{groups} must divide {key}{fields[key]}")
    spatial = _spatial(text, fields)
    sizes = [_axis(text, family, a, spatial[a], places) for a in spatial]
    src, dst, kernel, strides, dilations, pads = zip(*sizes, strict=True)
    return Layer.of(
        (src, fields["ic"]),
        (dst, fields["oc"]),
        family=family,
        kernel=kernel,
        strides=strides,
        dilations=dilations,
        pads_begin=pads,
        batch=fields.get("mb", 2),
        groups=groups,
        name=name or text,
        network=network,
        tags=tags,
    )


def spell(layer: Layer) -> str:
    """The full descriptor of a layer of at most three axes; `parse` reads it back."""
    axes = AXES[-layer.rank :]
    out = f"g{layer.groups}mb{layer.batch}"

    def field(key: str, values: tuple[int, ...]) -> str:
        return "".join(f"{key}{a}{v}" for a, v in zip(axes, values, strict=True))

    for key, (size, channels) in zip("io", layer.ends, strict=True):
        out += f"{key}c{channels}{field(key, size)}"
    out += field("k", layer.kernel) + field("s", layer.strides) + field("p", layer.pads_begin)
    return f'{out}{field("d", tuple(d - 1 for d in layer.dilations))}n"{layer.name}"'


def cell(layer: Layer) -> str:
    """What a row of results says of a layer; of an ensemble, the layer of each member."""
    members = f"*{layer.members}" if layer.members > 1 else ""
    return f"{layer.family}{members} {spell(layer)}"


def operand_count(text: str, op: str) -> int:
    """The numbers in both operands of `op` of such a cell's layer."""
    family, descriptor = text.split(" ", 1)
    family, _, members = family.partition("*")
    *operands, _ = parse(descriptor, family).op_shapes(op)
    return int(members or 1) * sum(map(math.prod, operands))


def _fields(text: str) -> tuple[dict[str, int], dict[str, int], str]:
    """The numbers by key, where each key stands, and the name."""
    fields: dict[str, int] = {}
    places: dict[str, int] = {}
    at = 0
    while at < len(text):
        if text[at] == "_":
            at += 1
            continue
        if text[at] == "n":
            return fields, places, text[at + 1 :].strip('"')
        match = _FIELD.match(text, at)
        if not match:
            raise ProblemError(text, at, "expected g, mb, ic, oc, n or one of [iokspd][dhw]")
        key, digits = match.groups()
        if not digits or digits == "-":
            raise ProblemError(text, match.end(), f"`{key}` needs a number")
        least = 0 if key[0] in "pd" else 1
        if int(digits) < least:
            raise ProblemError(text, match.start(2), f"`{key}` must be at least {least}")
        if key in fields:
            raise ProblemError(text, at, f"`{key}` is given twice")
        fields[key], places[key] = int(digits), at
        at = match.end()
    return fields, places, ""


def _spatial(text: str, fields: dict) -> dict[str, dict]:
    """Per axis that the problem has, its numbers; an axis of which nothing is said is a copy."""
    named = [a for a in AXES if any(k + a in fields for k in _SPATIAL)]
    if not named:
        raise ProblemError(text, len(text), "no spatial axis: `ih` or `iw` is missing")
    spatial: dict[str, dict] = {}
    higher = named[0]
    for axis in AXES[AXES.index(higher) :]:
        if axis in named:
            spatial[axis] = {k: fields.get(k + axis, default) for k, default in _SPATIAL.items()}
        else:
            spatial[axis] = spatial[higher]
        higher = axis
    return spatial


def _axis(text: str, family: str, axis: str, v: dict, places: dict) -> tuple[int, ...]:
    """(src, dst, kernel, stride, dilation, left pad) of one axis, with what was left out."""
    for key in "ik":
        if v[key] is None:
            raise ProblemError(text, len(text), f"`{key}{axis}` is missing")
    extent = (v["k"] - 1) * (v["d"] + 1) + 1
    dst, pad = v["o"], v["p"]
    if dst is None:
        pad = pad or 0
        if family == "conv":
            dst = (v["i"] - extent + 2 * pad) // v["s"] + 1
        else:
            dst = (v["i"] - 1) * v["s"] + extent - 2 * pad
        if dst < 1:
            raise ProblemError(text, places["k" + axis], f"kernel and pads leave no `o{axis}`")
    elif pad is None:
        fine, coarse = (v["i"], dst) if family == "conv" else (dst, v["i"])
        total = (coarse - 1) * v["s"] + extent - fine
        pad = max(total, 0) // 2  # a negative total is all at the right
    return v["i"], dst, v["k"], v["s"], v["d"] + 1, pad
