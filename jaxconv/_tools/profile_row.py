"""A row of `profile`'s report: convolutions that were lowered in the same way."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from jax import lax

from jaxconv._base.environment import Lowered
from jaxconv._base.geometry import Slot
from jaxconv._contract.contractions import SLOTS
from jaxconv._lax import max_pool
from jaxconv._tools.flops import count_flops
from jaxconv._tools.log import Origin, describe

#: Columns of what is printed, and those before the operands of a row, and before its place.
WIDTH, INDENT, PLACE = 100, 22, 70

#: Each slot that a contraction fills, in one word of the benchmarks' tables.
WORDS: dict[str | None, str] = {
    "coarse": "forward",
    "fine": "data",
    "kernel": "weights",
    "pool": "pool",
    None: "lax",
}


@dataclass(frozen=True)
class Row:
    """Convolutions of one kind; see `jaxconv.profile`."""

    #: how often JAX lowered one: a jitted function or a loop within a program is lowered once
    count: int
    #: "lax", or "jaxconv" for its operations and `jaxconv.lax`
    written_by: str
    #: the types of the operands and of the result, as lax or the contraction has them
    operands: str
    result: str
    #: strides, dilations and groups other than 1
    window: str
    #: the slot that the contraction fills, "pool" for a max pool's gradient; None for what stays
    #: with lax
    to: Slot | Literal["pool"] | None
    #: the forms that compute it, the outermost first; "lax" for what stays with it
    form: str
    #: the reasons for the forms, or why it stays with lax
    why: str
    #: multiplications and additions of one, 0 for a pool; None for symbolic extents
    flops: int | None
    #: over how many devices XLA splits it
    devices: int
    #: the innermost lines of a user's own code, or else of a library's
    lines: tuple[str, ...]
    #: the functions and scopes around it, where JAX knows them
    names: tuple[str, ...]

    @property
    def how(self) -> str:
        """What computes it and why, in words."""
        return self.why if self.to else f"stays with lax: {self.why}"

    @property
    def work(self) -> int:
        """Multiplications and additions of all of them, as far as they are known."""
        return self.count * (self.flops or 0)


def make_row(lowered: Lowered, origins: Sequence[Origin]) -> Row:
    """The row of convolutions that were lowered like this one, written at these lines."""
    equation, contraction, how, target, _ = lowered
    by_lax = equation.primitive in (lax.conv_general_dilated_p, max_pool.PRIMITIVE)
    forms = ["lax"] if isinstance(how, str) else list(dict.fromkeys(form for form, _ in how))
    return Row(
        count=len(origins),
        written_by="lax" if by_lax else "jaxconv",
        operands=" ".join(t.str_short() for t in equation.operands[:2]),
        result=equation.results[0].str_short(),
        window=_describe_window(equation.params),
        to=SLOTS.get(contraction.primitive, "pool") if contraction else None,
        form=", ".join(forms),
        why=how if isinstance(how, str) else describe(how),
        flops=count_flops(lowered),
        devices=target.devices,
        lines=tuple(dict.fromkeys(origin.line for origin in origins)),
        names=tuple(dict.fromkeys(origin.names for origin in origins if origin.names)),
    )


#: Parameters of lax's convolutions and max pools, and their words in a report.
_PARAMETERS = {
    "window_dimensions": "window", "window_strides": "stride", "lhs_dilation": "lhs_dilation",
    "rhs_dilation": "rhs_dilation", "feature_group_count": "groups",
    "batch_group_count": "batch groups",
}  # fmt: skip


def _describe_window(params: dict[str, Any]) -> str:
    """Name strides, dilations and groups other than 1, of lax's parameters or a contraction's."""
    if geometry := params.get("geometry"):
        named = {
            "stride": [a.stride for a in geometry.axes],
            "dilation": [a.dilation for a in geometry.axes],
            "groups": [geometry.groups],
        }
    else:
        given = {word: params[name] for name, word in _PARAMETERS.items() if name in params}
        named = {word: [*x] if isinstance(x, tuple) else [x] for word, x in given.items()}
    words = (
        f"{name} {'x'.join(map(str, values if len(set(values)) > 1 else values[:1]))}"
        for name, values in named.items()
        if set(values) - {1}
    )
    return ", ".join(words)


def to_cells(row: Row) -> tuple[str, str, str, str]:
    """How often, the MFLOP of all, what it is, and its operands, whose type is named once."""
    first, second = row.operands.split(" ", 1)
    operands = f"{first} {second.removeprefix(first.split('[')[0])} {row.window}".strip()
    return str(row.count), format_millions(row.flops and row.work), WORDS[row.to], operands


def format_cells(row: Row) -> str:
    """The cells in one line."""
    count, work, word, operands = to_cells(row)
    return f"{count:>4}{work:>8}  {word:8}{operands}"


def format_place(row: Row, with_line: bool) -> str:
    """The first line, and scope if there is any, and how many others there are."""
    scope, (path, _, line) = _scope(row.names), row.lines[0].rpartition(":")
    more = max(len(row.lines), len(row.names)) - 1
    words = [f"{Path(path).name}:{line}"] if with_line or not scope else []
    return " ".join([*words, *[scope] * bool(scope), *[f"+{more}"] * bool(more)])


def format_row(row: Row, with_line: bool) -> str:
    """All of it, in one line of a terminal or two."""
    words, place = cut(format_cells(row)), format_place(row, with_line)
    if len(words) <= PLACE - 2 and len(place) <= WIDTH - PLACE:
        return f"{words:{PLACE}}{place}"
    most = WIDTH - INDENT
    place = place if len(place) <= most else f"…{place[1 - most :]}"
    return f"{words}\n{'':{INDENT}}{place}"


#: What stands in parentheses, which a user's own name may have, too; and a name of JAX's around it.
INNER = r"(?:[^()]|\((?:[^()]|\([^()]*\))*\))*"
WRAPPED = re.compile(rf"\b(?:transpose|jvp|vmap)\(({INNER})\)")


def _scope(names: Iterable[str]) -> str:
    """The scopes in a name such as jit(step)/transpose(jvp(Net))/block/conv."""
    for name in names:
        bare, wrapped = re.sub(rf"\b\w+\(\)|\bjit\({INNER}\)", "", name), ""
        while bare != wrapped:
            wrapped, bare = bare, WRAPPED.sub(r"\1", bare)
        if scope := "/".join(filter(None, bare.split("/"))):
            return scope
    return ""


def format_millions(flops: int | None) -> str:
    """Write millions."""
    if flops is None:
        return "?"
    millions = flops / 1e6
    return "<0.01" if 0 < millions < 0.01 else f"{millions:,.{2 if millions < 10 else 0}f}"


def cut(text: str) -> str:
    """Cut a line to the columns of what is printed."""
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…"
