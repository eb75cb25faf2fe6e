"""The picture of the form: six operations as three ways to read one table.

`python one_form.py` writes one_form.svg again, the picture on the first page.
"""

from math import nan
from pathlib import Path

import matplotlib.pyplot as plt
from drawing import BLACK, COLOURS, ORANGE, SLOTS, axes_of
from matplotlib.patches import Rectangle


def form_table(ax, axis, slot=None, cell=None):
    """The form as a table: a row per coarse cell, a column per fine one, the tap in between.

    With a slot and one of its cells, the products that make that cell stand out.
    """
    for p, t, q in axis.terms():
        lit = slot is None or dict(zip(SLOTS, (p, t, q), strict=True))[slot] == cell
        box = {"facecolor": COLOURS[t], "alpha": 1.0 if lit else 0.2, "clip_on": False}
        ax.add_patch(Rectangle((p - 0.5, q - 0.5), 1, 1, edgecolor="white", **box))
        ink = "white" if lit and COLOURS[t] != ORANGE else BLACK if lit else "#666666"
        ax.text(p, q, f"w{t}", ha="center", va="center", color=ink, fontsize=10)
    for n in range(axis.fine):
        ax.text(n, -0.7, f"f{n}", ha="center", va="bottom", fontsize=9)
    for n in range(axis.coarse):
        ax.text(-0.7, n, f"c{n}", ha="right", va="center", fontsize=9)
    across = [(-0.5, n - 0.5, axis.fine - 0.5, n - 0.5) for n in range(axis.coarse + 1)]
    down = [(n - 0.5, -0.5, n - 0.5, axis.coarse - 0.5) for n in range(axis.fine + 1)]
    x, y = zip(
        *(at for a, b, c, d in across + down for at in ((a, b), (c, d), (nan, nan))), strict=True
    )
    ax.plot(x, y, color="#cccccc", lw=0.7, zorder=0)
    outline = {
        "coarse": ((-0.5, (cell or 0) - 0.5), axis.fine, 1),
        "fine": (((cell or 0) - 0.5, -0.5), 1, axis.coarse),
    }.get(slot)
    if outline:
        ax.add_patch(Rectangle(*outline, facecolor="none", edgecolor=BLACK, lw=1.8, zorder=5))
    ax.set(xlim=(-1.4, axis.fine - 0.4), ylim=(axis.coarse - 0.4, -1.4), aspect="equal")
    ax.axis("off")


def one_form():
    """Six operations as three ways to read one table."""
    [axis] = axes_of("convolution", 8, 3, strides=2, pads_begin=1)
    figure, panels = plt.subplots(1, 3, figsize=(11.5, 2.9))
    for ax, (slot, cell, head, ops) in zip(
        panels,
        [
            ("coarse", 2, "along a row", ("convolution", "conv_transpose_backward_data")),
            ("fine", 5, "along a column", ("conv_transpose", "convolution_backward_data")),
            ("kernel", 0, "along a colour",
             ("convolution_backward_weights", "conv_transpose_backward_weights")),
        ],
        strict=True,
    ):  # fmt: skip
        form_table(ax, axis, slot, cell)
        ax.set_title(f"Sum {head}", fontsize=12, fontweight="bold")
        centred = {"transform": ax.transAxes, "ha": "center", "va": "top"}
        ax.text(0.5, -0.06, _sum(axis, slot, cell), fontsize=10.5, **centred)
        for n, op in enumerate(ops):
            place = 0.5, -0.25 - 0.11 * n
            ax.text(*place, op, fontsize=9.5, family="monospace", color="#444444", **centred)
    figure.subplots_adjust(left=0.03, right=0.99, top=0.86, bottom=0.27, wspace=0.1)
    return figure


def _sum(axis, slot, cell):
    """The sum that makes one cell, in letters."""
    own = SLOTS.index(slot)
    found = [term for term in axis.terms() if term[own] == cell]
    parts = [[f"{letter}{n}" for letter, n in zip("fwc", term, strict=True)] for term in found]
    products = ["·".join(part[:own] + part[own + 1 :]) for part in parts]
    return f"{'fwc'[own]}{cell} = " + " + ".join(products)


def save(path):
    """Write the picture as an SVG whose text is text, the same at every run."""
    fonts = {"font.sans-serif": ["DejaVu Sans", "Verdana"], "font.monospace": "DejaVu Sans Mono"}
    with plt.rc_context({"svg.fonttype": "none", "svg.hashsalt": "one form"} | fonts):
        figure = one_form()
        figure.savefig(path, format="svg", metadata={"Date": None}, facecolor="white")
    plt.close(figure)


if __name__ == "__main__":
    save(Path(__file__).with_name("one_form.svg"))
