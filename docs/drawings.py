"""The drawings of the pages: `python docs/drawings.py` writes them again."""

import re
import sys
from pathlib import Path
from unittest.mock import patch

import matplotlib.pyplot as plt

FOLDER = Path(__file__).parent
sys.path.append(str(FOLDER.parent / "notebooks"))

from drawing import STYLES, draw  # noqa: E402


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


def save(folder):
    """Write them as SVGs whose text is text, the same at every run."""
    with plt.rc_context({"svg.fonttype": "none", "svg.hashsalt": "pages"}):
        for drawing in (windows, transposed):
            figure = drawing()
            path = Path(folder, f"{drawing.__name__}.svg")
            figure.savefig(path, format="svg", metadata={"Date": None}, facecolor="white")
            plt.close(figure)
            path.write_text(re.sub(r"\d+\.\d+", lambda n: f"{float(n[0]):.2f}", path.read_text()))


if __name__ == "__main__":
    save(FOLDER)
