"""The drawings of the pages: `python docs/drawings.py` writes them again."""

import re
import sys
from pathlib import Path
from unittest.mock import patch

import matplotlib.pyplot as plt
from matplotlib.patches import FancyArrowPatch, FancyBboxPatch

FOLDER = Path(__file__).parent
sys.path += [str(FOLDER.parent / "notebooks"), str(FOLDER.parent)]

from drawing import BLACK, GREEN, ORANGE, PALE, RED, SKY, STYLES, draw  # noqa: E402

from benchmarks import files  # noqa: E402

GREY, EDGE, PART = "#f2f2f2", "#555555", "white"
GREY_BAR = "#9a9a9a"


def windows():
    """What strides, dilations and pads read."""
    figure, panels = plt.subplots(2, 2, figsize=(11, 5.6))
    cases = [
        {"pads_begin": 1, "pads_end": 1},
        {"dilations": 2, "pads_begin": 2, "pads_end": 2},
        {"strides": 2, "pads_begin": 1},
        {"strides": 2},
    ]
    for case, ax in zip(cases, panels.flat, strict=True):
        title = ", ".join(f"{name}={value}" for name, value in case.items())
        draw("convolution", 8, 3, ax=ax, title=title, key=False, **case)
    figure.tight_layout()
    return figure


def transposed():
    """A transposed convolution with and without output padding."""
    figure, panels = plt.subplots(2, 1, figsize=(7, 6))
    with patch.dict(STYLES["extra"][0], hatch="///"):  # dots would take most of the file
        for more, ax in zip((0, 1), panels, strict=True):
            window = {"strides": 2, "pads_begin": 1, "pads_end": 1, "output_padding": more}
            title = ", ".join(f"{name}={value}" for name, value in window.items())
            draw("conv_transpose", 4, 3, ax=ax, title=title, key=more == 1, **window)
    figure.tight_layout()
    return figure


def inside():
    """The way of a call through the rooms of the package, from the signatures to XLA's program."""
    figure, ax = plt.subplots(figsize=(8, 8.8))
    ax.set(xlim=(0, 100), ylim=(0, 110))
    ax.axis("off")
    figure.subplots_adjust(left=0, right=1, bottom=0, top=1)

    _beside(ax, 0.5, "_base/: geometry, types, messages, meshes, JAX's names, for all rooms")
    _beside(ax, 95, "_tools/: what computes a call? _checks/: is it right here?")

    _room(ax, 7, 98.5, 17, 10, SKY, "onednn/", "the names of", "oneDNN Graph")
    operations = ("convolution.py, conv_transpose.py", "operate.py: what all six do")
    _room(ax, 30, 98.5, 31, 10, SKY, "_ops/: the six operations", *operations)
    hooks = ("lax.py: its signatures", "install.py: its lowering")
    _room(ax, 65, 98.5, 28, 10, SKY, "jax.lax (lax.py, _lax/)", *hooks)
    _arrow(ax, (24, 103.5), (30, 103.5))
    _arrow(ax, (45.5, 98.5), (45.5, 94))
    _arrow(ax, (79, 98.5), (79, 94))

    checks = (
        "arguments.py, attributes.py: types, lengths, signs, spelling",
        "layouts.py: letters to axes; do channels fit?",
        "sizes.py: extents and pads of each axis",
        "resolve.py: all of these together",
    )
    _room(ax, 7, 78.5, 54, 15.5, GREEN, "_rules/: what a user may write", *checks)
    maps = ("the parameters of lax's", "convolution to a contraction,", "or why lax keeps it")
    _room(ax, 65, 78.5, 28, 15.5, GREEN, "_lax/from_lax.py", *maps)
    _arrow(ax, (34, 78.5), (34, 73), says="the Geometry: ints alone")
    _arrow(ax, (79, 78.5), (79, 73))

    _room(
        ax, 7, 48, 86, 25, ORANGE, "_contract/: each contraction is a derivative of the other two"
    )
    for x, result, operands in (
        (11, "coarse", "of fine and kernel"),
        (39.5, "kernel", "of fine and coarse"),
        (68, "fine", "of coarse and kernel"),
    ):
        _room(ax, x, 53.2, 21, 7.4, PART, f"to {result}", operands)
    _arrow(ax, (32, 57), (39.5, 57), RED, "<|-|>")
    _arrow(ax, (60.5, 57), (68, 57), RED, "<|-|>")
    _arrow(ax, (21.5, 60.6), (78.5, 60.6), RED, "<|-|>", bend=-0.13)
    _words(ax, 50, 66.2, "derivatives")
    _words(ax, 50, 50.6, "batching.py: vmap folds its axis into the batch, channels or groups")
    _arrow(ax, (50, 48), (50, 43), says="the primitive, when JAX compiles it")

    _room(ax, 7, 26, 86, 17, GREY, "_lowering/: how a contraction is computed")
    for x, wide, name, *lines in (
        (9, 15, "plan.py", "what JAX calls", "to compile"),
        (27, 15, "problem.py", "all sizes that", "may decide"),
        (45, 15, "normal.py", "without what", "adds nothing"),
        (62.5, 14.5, "a table", "cpu/, gpu.py", "or tpu.py"),
        (79.5, 12, "a plan", "a tree", "of forms"),
    ):
        _room(ax, x, 28.2, wide, 10, PART, name, *lines)
    for start, end in ((24, 27), (42, 45), (60, 62.5), (77, 79.5)):
        _arrow(ax, (start, 33.2), (end, 33.2))
    _arrow(ax, (52.5, 19), (52.5, 28.2), says="the parts of a rewrite", above=-1.2)
    _arrow(ax, (85.5, 28.2), (85.5, 19))

    ways = (
        "compute: onednn, dots, im2col, col2im, multiply_adds, convolution, cudnn, ...",
        "rewrite: phases, split, rewrite, by other contractions, which the same table plans",
    )
    _room(ax, 7, 8.5, 86, 10.5, SKY, "_lowering/forms/: the ways to compute a contraction", *ways)
    _arrow(ax, (50, 8.5), (50, 4))
    _words(ax, 50, 2.4, "operations of lax: XLA's program")
    return figure


def applications(ink="black", paper="white"):
    """A training step of real models, by Keras on JAX, the same with the line, and on PyTorch."""
    results = files.read(FOLDER.parent / "benchmarks" / "results" / "applications.csv")
    rows = [row for row in results["rows"] if row["op"] == "step"]
    engines = {"keras": GREY_BAR, "keras@torch": SKY, "keras+install": GREEN}
    names = {
        "keras": "Keras on JAX",
        "keras@torch": "Keras on PyTorch",
        "keras+install": "Keras on JAX with jaxconv",
    }
    figure, ax = plt.subplots(figsize=(8, 0.62 * len(rows) + 0.7))
    for n, row in enumerate(rows):
        ms = {e: row["engines"][e]["min_ms"] for e in engines}
        for k, (engine, colour) in enumerate(engines.items()):
            y, share = n + 0.26 * (k - 1), ms[engine] / ms["keras"]
            ax.barh(y, share, 0.24, color=colour, label=names[engine] if n == 0 else None)
            label = f"{ms[engine]:,.0f} ms"
            ax.text(share + 0.01, y, label, va="center", fontsize=8, color=ink)
    ax.set_yticks(range(len(rows)), [row["layer"] for row in rows], fontsize=10, color=ink)
    ax.invert_yaxis()
    ax.set_xticks([])
    ax.set_xlim(0, 1.12 * max(1, *(b.get_width() for b in ax.patches)))
    ax.spines[:].set_visible(False)
    ax.tick_params(length=0)
    ax.set_xlabel("the bars of one model are to scale", color=ink, fontsize=8)
    legend = {"loc": "lower center", "bbox_to_anchor": (0.45, 1.0), "ncols": 3, "frameon": False}
    ax.legend(**legend, labelcolor=ink, fontsize=10)
    figure.set_facecolor(paper)
    ax.set_facecolor(paper)
    figure.tight_layout()
    return figure


def applications_dark():
    """The same for dark pages."""
    return applications("#e6edf3", "#0d1117")


def cycles():
    """XLA's estimates for TPU, each row's in multiples of lax's, by class of layer."""
    results = files.read(FOLDER.parent / "benchmarks" / "results" / "compiled-tpu.csv")
    ratios = {}
    for row in results["rows"]:
        ours, lax = (row["engines"][e].get("cycles") for e in ("jaxconv", "lax"))
        if ours and lax:
            ratios.setdefault(row["class"], []).append((ours / lax, row["op"]))
    figure, ax = plt.subplots(figsize=(8, 0.42 * len(ratios) + 1.1))
    colours = {"forward": SKY, "data": ORANGE, "weights": GREEN}
    for n, name in enumerate(sorted(ratios)):
        for op, colour in colours.items():
            found = [ratio for ratio, of in ratios[name] if of == op]
            at = [n + 0.22 * ([*colours].index(op) - 1)] * len(found)
            ax.scatter(found, at, s=26, color=colour, label=op if n == 0 else None)
    ax.set_yticks(range(len(ratios)), sorted(ratios), fontsize=10)
    ax.invert_yaxis()
    ax.set_xscale("log")
    ax.set_xlabel("estimated cycles, in multiples of lax's")
    ax.axvline(1, color=EDGE, linewidth=0.8)
    ax.spines[["top", "right", "left"]].set_visible(False)
    ax.tick_params(axis="y", length=0)
    ax.legend(loc="lower center", bbox_to_anchor=(0.45, 1.0), ncols=3, frameon=False)
    figure.tight_layout()
    return figure


def _room(ax, x, y, wide, high, colour, name, *lines):
    """A box with its name and what is in it."""
    style = {"boxstyle": "round,pad=0,rounding_size=0.8", "edgecolor": EDGE, "linewidth": 0.8}
    ax.add_patch(FancyBboxPatch((x, y), wide, high, facecolor=PALE.get(colour, colour), **style))
    top = y + high - 2.1
    ax.text(x + 1.3, top, name, va="center", fontsize=9.5, weight="bold", color=BLACK)
    for n, line in enumerate(lines, 1):
        ax.text(x + 1.3, top - 2.9 * n, line, va="center", fontsize=9, color=BLACK)


def _beside(ax, x, name):
    """A tall box along all rooms."""
    _room(ax, x, 8.5, 4.5, 100, GREY, "")
    _words(ax, x + 2.25, 58.5, name, rotation=90)


def _words(ax, x, y, words, **style):
    ax.text(x, y, words, ha="center", va="center", fontsize=9, color=BLACK, **style)


def _arrow(ax, start, end, colour=BLACK, ends="-|>", bend=0, says="", above=0):
    """An arrow, and at its right what goes along it."""
    style = {"arrowstyle": ends, "mutation_scale": 12, "shrinkA": 0, "shrinkB": 0, "zorder": 4}
    curve = f"arc3,rad={bend}"
    ax.add_patch(FancyArrowPatch(start, end, color=colour, connectionstyle=curve, **style))
    if says:
        x, y = (start[0] + end[0]) / 2 + 1.3, (start[1] + end[1]) / 2 + above
        ax.text(x, y, says, va="center", fontsize=9, color=BLACK)


def save(folder):
    """Write them as SVGs whose text is text, the same at every run."""
    with plt.rc_context({"svg.fonttype": "none", "svg.hashsalt": "pages"}):
        for drawing in (windows, transposed, inside, applications, applications_dark, cycles):
            figure = drawing()
            path = Path(folder, f"{drawing.__name__}.svg")
            figure.savefig(path, format="svg", metadata={"Date": None})
            plt.close(figure)
            digits = re.compile(r"\d+\.\d{3,}")
            path.write_text(digits.sub(lambda n: f"{float(n[0]):.2f}", path.read_text()))


if __name__ == "__main__":
    save(FOLDER)
