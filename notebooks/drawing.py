"""Pictures of one operation's geometry: which cells meet, and under which tap.

    draw("convolution", 8, 3, strides=2, pads_begin=1)
    draw("conv_transpose", (3, 4), (3, 2), cell=(2, 5), strides=2, output_padding=(1, 0))

Sizes are spatial: an int for one dimension, a pair for two. Batch and channels are left out,
they are plain sums.
"""

from dataclasses import dataclass
from itertools import product

import matplotlib.pyplot as plt
from matplotlib.patches import Patch, Rectangle

import jaxconv

SLOTS = ("fine", "kernel", "coarse")
#: op -> the slots of its two inputs and of its result
ROLES = {
    "convolution": ("fine", "kernel", "coarse"),
    "convolution_backward_data": ("coarse", "kernel", "fine"),
    "convolution_backward_weights": ("fine", "coarse", "kernel"),
    "conv_transpose": ("coarse", "kernel", "fine"),
    "conv_transpose_backward_data": ("fine", "kernel", "coarse"),
    "conv_transpose_backward_weights": ("coarse", "fine", "kernel"),
}

# Okabe and Ito's colours: told apart by every kind of eye.
BLUE, ORANGE, GREEN, PINK, RED, SKY, BLACK = COLOURS = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#D55E00", "#56B4E9", "#000000",
)  # fmt: skip
PALE = {SKY: "#d6ecf9", GREEN: "#ccebe1", ORANGE: "#f9dfa6"}

#: what a cell is -> how it is drawn, and the words of the key
STYLES = {
    "read": ({"facecolor": PALE[SKY]}, "input"),
    "unread": ({"facecolor": "#f2f2f2", "hatch": "///", "edgecolor": "#999999"}, "never read"),
    "pad": ({"facecolor": "white", "linestyle": (0, (2, 2))}, "padding (zero)"),
    "gap": ({"facecolor": "#ececec"}, "inserted zero"),
    "result": ({"facecolor": PALE[GREEN]}, "output"),
    "extra": ({"facecolor": PALE[GREEN], "hatch": "...", "edgecolor": GREEN}, "output padding"),
    "cropped": ({"facecolor": "white", "linestyle": (0, (1, 2))}, "cropped by the pads"),
    "window": ({"facecolor": PALE[ORANGE], "edgecolor": RED, "linewidth": 2}, "the window"),
    "chosen": ({"facecolor": GREEN}, "the cell it makes"),
}


@dataclass(frozen=True)
class Axis:
    """One spatial axis; fine cell = stride * coarse cell + dilation * tap - pad_begin."""

    fine: int
    kernel: int
    coarse: int
    stride: int
    dilation: int
    pad_begin: int
    pad_end: int
    output_padding: int

    @property
    def reach(self) -> int:
        """From the window's first tap to its last."""
        return self.dilation * (self.kernel - 1)

    def terms(self):
        """Every (fine, tap, coarse) of the defining sum."""
        for q, t in product(range(self.coarse), range(self.kernel)):
            p = self.stride * q + self.dilation * t - self.pad_begin
            if 0 <= p < self.fine:
                yield p, t, q


def axes_of(op, first, second, *, weights_shape=None, dst_shape=None, **attributes):
    """The geometry of an operation, an `Axis` for each dimension; all sizes are spatial."""
    inputs = [_pair(op, size) for size in (first, second)]
    kernel = [role == "kernel" for role in ROLES[op]]
    shapes = [(*x, 1, 1) if k else (1, *x, 1) for x, k in zip(inputs, kernel, strict=False)]
    given = {}
    if weights_shape is not None:
        given["weights_shape"] = (*_pair(op, weights_shape), 1, 1)
    if dst_shape is not None:
        given["dst_shape"] = (1, *_pair(op, dst_shape), 1)
    sizes = jaxconv.resolve(op, *shapes, **given, **attributes)
    src, dst = sizes.src_shape[1:-1], sizes.dst_shape[1:-1]
    fine, coarse = (dst, src) if "transpose" in op else (src, dst)
    rows = zip(
        fine, sizes.weights_shape[:-2], coarse, sizes.strides, sizes.dilations,
        sizes.pads_begin, sizes.pads_end, sizes.output_padding, strict=True,
    )  # fmt: skip
    return [Axis(*row) for row in rows]


def _pair(op, size):
    size = (size,) if isinstance(size, int) else tuple(size)
    if len(size) not in (1, 2):
        raise ValueError(f"{op}: only one or two dimensions can be drawn; got spatial size {size}")
    return size


def connections(op, axes, cell):
    """What is multiplied to make one cell of the result: pairs of cells of the other two slots."""
    result = SLOTS.index(ROLES[op][2])
    found = set()
    for per_axis in product(*(axis.terms() for axis in axes)):
        slots = list(zip(*per_axis, strict=True))
        if slots.pop(result) == tuple(cell):
            found.add(tuple(slots))
    return found


def lattice(axis, result):
    """What the window slides over: {position: kind}."""
    if result == "fine":  # the coarse cells, spread out by inserted zeros
        last = axis.stride * (axis.coarse - 1)
        low = min(0, axis.pad_begin - axis.reach)
        high = max(last, axis.fine - 1 + axis.pad_begin)
        read = {axis.stride * q for _, _, q in axis.terms()}
        inside, step = range(last + 1), axis.stride
    else:  # the fine cells
        low, high = -axis.pad_begin, axis.fine - 1 + axis.pad_end
        read = {p for p, _, _ in axis.terms()}
        inside, step = range(axis.fine), 1

    def kind(at):
        if at not in inside:
            return "pad"
        return "gap" if at % step else "read" if at in read else "unread"

    return {at: kind(at) for at in range(low, high + 1)}


def window(axis, result, cell):
    """Where on the lattice the window lies that makes this cell: {position: its label}."""
    start = cell * {"fine": 1, "kernel": axis.dilation, "coarse": axis.stride}[result]
    if result == "fine":
        return {start + axis.pad_begin - axis.dilation * t: t for t in range(axis.kernel)}
    step, count = (axis.stride, axis.coarse) if result == "kernel" else (axis.dilation, axis.kernel)
    return {start - axis.pad_begin + step * n: n for n in range(count)}


def results(axis, result):
    """The cells of the result and, where it is fine, what is cropped from it: {cell: kind}."""
    size = getattr(axis, result)
    if result != "fine":
        return dict.fromkeys(range(size), "result")
    end = size + max(axis.pad_end - axis.output_padding, 0)
    kinds = dict.fromkeys(range(-axis.pad_begin, end), "cropped")
    kinds |= dict.fromkeys(range(size), "result")
    return kinds | dict.fromkeys(range(max(size - axis.output_padding, 0), size), "extra")


def draw(op, first, second, *, cell=None, ax=None, title=None, key=True, **attributes):
    """Draw an operation and the window that makes one cell (the middle one) of its result.

    Numbers on the window are its taps. Of a weights gradient, whose window is the coarse
    tensor, they are the coarse cells.
    """
    axes = axes_of(op, first, second, **attributes)
    result = ROLES[op][2]
    extents = [getattr(axis, result) for axis in axes]
    cell = tuple(n // 2 for n in extents) if cell is None else _pair(op, cell)
    if len(cell) != len(axes) or not all(0 <= c < n for c, n in zip(cell, extents, strict=True)):
        raise ValueError(f"{op}: `cell` must lie in the result, of size {extents}; got {cell}")
    kinds = (_draw_line if len(axes) == 1 else _draw_planes)(op, axes, cell, result, ax)
    ax = plt.gca() if ax is None else ax
    ax.set_title(title or _title(op, axes), fontsize=11)
    if key:
        handles = [Patch(**_style(kind), label=STYLES[kind][1]) for kind in STYLES if kind in kinds]
        ax.legend(
            handles=handles, loc="upper center", bbox_to_anchor=(0.5, 0.0), frameon=False,
            fontsize=9, ncols=min(4, len(handles)), handlelength=1.2, handleheight=1.2,
        )  # fmt: skip
    return ax.figure


def _draw_line(op, axes, cell, result, ax):
    """One dimension: the lattice above, the result below, a line for every product."""
    [axis], [chosen] = axes, cell
    over, out = lattice(axis, result), results(axis, result)

    def below(n):  # a cell stands under the middle of its window
        at = window(axis, result, n)
        return (min(at) + max(at)) / 2

    spots = [*over, *map(below, out)]
    ax = ax or plt.subplots(figsize=(0.42 * (max(spots) - min(spots)) + 1.6, 2.6))[1]
    for n in sorted(out, key=lambda n: n == chosen):
        if out[n] == "cropped":
            continue
        for at, label in window(axis, result, n).items():
            if over[at] in ("read", "unread"):
                tap = n if result == "kernel" else label
                style = {"lw": 2.6, "zorder": 2} if n == chosen else {"lw": 0.9, "alpha": 0.6}
                ax.plot([at, below(n)], [-0.5, -2.1], color=COLOURS[tap % 6], **style)
    kinds = {_cell(ax, at, 0, kind) for at, kind in over.items()}
    kinds |= {
        _cell(ax, at, 0, "window", label, over[at])
        for at, label in window(axis, result, chosen).items()
    }
    kinds |= {_cell(ax, below(n), -2.6, kind) for n, kind in out.items() if n != chosen}
    kinds.add(_cell(ax, below(chosen), -2.6, "chosen", chosen))
    for name, x, y in zip(_names(op), (min(over), min(map(below, out))), (0, -2.6), strict=True):
        ax.text(x - 0.8, y, name, ha="right", va="center", fontsize=9)
    _frame(ax, (min(spots) - 2.7, max(spots) + 0.7), (-3.3, 0.7))
    return kinds


def _draw_planes(op, axes, cell, result, ax):
    """Two dimensions: the lattice on the left, the result on the right."""
    over = [lattice(axis, result) for axis in axes]
    marked = [window(axis, result, c) for axis, c in zip(axes, cell, strict=True)]
    out = [results(axis, result) for axis in axes]
    right = max(over[1]) + 2.5 - min(out[1])
    down = (max(over[0]) + min(over[0]) - max(out[0]) - min(out[0])) / 2
    bottom = max(max(over[0]), max(out[0]) + down)
    top = min(min(over[0]), min(out[0]) + down)
    end = right + max(out[1])
    size = (0.42 * (end - min(over[1])) + 1, 0.42 * (bottom - top) + 1.8)
    ax = ax or plt.subplots(figsize=size)[1]
    kinds = set()
    for (i, row), (j, column) in product(over[0].items(), over[1].items()):
        kinds.add(_cell(ax, j, -i, _both(row, column)))
    for (i, row), (j, column) in product(marked[0].items(), marked[1].items()):
        under = _both(over[0][i], over[1][j])
        kinds.add(_cell(ax, j, -i, "window", f"{row},{column}", under))
    for (i, row), (j, column) in product(out[0].items(), out[1].items()):
        kind = "chosen" if (i, j) == cell else _both(row, column)
        text = f"{i},{j}" if kind == "chosen" else None
        kinds.add(_cell(ax, right + j, -i - down, kind, text))
    for name, x in zip(
        _names(op),
        ((min(over[1]) + max(over[1])) / 2, right + (min(out[1]) + max(out[1])) / 2),
        strict=True,
    ):
        ax.text(x, -bottom - 0.75, name, ha="center", va="top", fontsize=9)
    _frame(ax, (min(over[1]) - 0.7, end + 0.7), (-bottom - 1.6, -top + 0.7))
    return kinds


def _both(row, column):
    """What a cell is, from what its row and its column are."""
    order = ("cropped", "pad", "gap", "unread", "extra", "read", "result")
    return min(row, column, key=order.index)


def _style(kind):
    return {"edgecolor": "#666666", "linewidth": 0.8} | STYLES[kind][0]


def _cell(ax, x, y, kind, text=None, under=None):
    """A unit square around (x, y); a tap of the window over a zero is left unfilled."""
    style = _style(kind)
    if under is not None and under not in ("read", "unread"):
        style["facecolor"] = "none"
    above = {"window": 4, "chosen": 4}.get(kind, 3)
    ax.add_patch(Rectangle((x - 0.5, y - 0.5), 1, 1, zorder=above, **style))
    if text is not None:
        size = 9 if len(str(text)) < 3 else 7
        colour = "white" if kind == "chosen" else BLACK
        ax.text(x, y, text, ha="center", va="center", fontsize=size, color=colour, zorder=5)
    return kind


def _names(op):
    """What the lattice and the result are called."""
    inputs = {
        "convolution": "src",
        "convolution_backward_data": "diff_dst",
        "convolution_backward_weights": "src",
        "conv_transpose": "src",
        "conv_transpose_backward_data": "diff_dst",
        "conv_transpose_backward_weights": "diff_dst",
    }
    result = {"weights": "diff_weights", "data": "diff_src"}.get(op.rpartition("_")[2], "dst")
    return inputs[op], result


def _title(op, axes):
    def sizes(slot):
        return "x".join(str(getattr(axis, slot)) for axis in axes)

    first, second, result = map(sizes, ROLES[op])
    return f"{op}: {first}, {second} to {result}"


def _frame(ax, x, y):
    ax.set(xlim=x, ylim=y, aspect="equal")
    ax.axis("off")
