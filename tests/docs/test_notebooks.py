"""The notebooks run, and what they draw is what the operations do."""

import ast
import importlib
import json
import os
import re
import time
from functools import cache
from pathlib import Path

import jax
import numpy as np
import pytest

import jaxconv
from tests.support.peers import peer

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
SECONDS = 300  # a notebook takes 10 to 40, and twice that beside other tests: more is a hang

every_notebook = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def code(path):
    """The source of a notebook's code cells without IPython's commands, or of a module."""
    if path.suffix == ".py":
        return path.read_text()
    cells = json.loads(path.read_text())["cells"]
    source = "\n".join("".join(c["source"]) for c in cells if c["cell_type"] == "code")
    return re.sub("^%.*", "", source, flags=re.MULTILINE)


@every_notebook
def test_it_is_stripped(path):
    notebook = json.loads(path.read_text())
    assert notebook["nbformat"] == 4
    assert set(notebook["metadata"]) == {"kernelspec", "language_info"}
    assert notebook["metadata"]["kernelspec"]["name"] == "python3"
    ids = [cell["id"] for cell in notebook["cells"]]
    assert len(set(ids)) == len(ids)
    for cell in notebook["cells"]:
        assert cell["metadata"] == {}
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None


@pytest.mark.parametrize("path", [*NOTEBOOKS, *FOLDER.glob("*.py")], ids=lambda path: path.name)
def test_it_uses_nothing_private_and_no_place_of_one_machine(path):
    """Neither an import nor an attribute may begin with an underscore, but for dunders."""
    names = []
    for node in ast.walk(ast.parse(code(path))):
        if isinstance(node, ast.Import | ast.ImportFrom):
            names += [getattr(node, "module", ""), *(alias.name for alias in node.names)]
        elif isinstance(node, ast.Attribute):
            names.append(node.attr)
    parts = [part for name in names for part in name.split(".")]
    assert [part for part in parts if re.match(r"_(?!_)", part)] == []
    assert re.findall(r"/(?:home|Users|root|tmp|work)\b", path.read_text()) == []


@pytest.mark.slow
@every_notebook
def test_it_runs(path):
    """Top to bottom in a fresh kernel, without a word on stderr."""
    nbclient, nbformat = peer("nbclient"), peer("nbformat")
    peer("ipykernel"), peer("matplotlib")
    notebook = nbformat.read(path, as_version=4)
    end = time.monotonic() + SECONDS
    client = nbclient.NotebookClient(
        notebook,
        kernel_name="python3",
        timeout_func=lambda cell: max(end - time.monotonic(), 0.1),
        resources={"metadata": {"path": str(FOLDER)}},
    )
    # One device, as a user has, and not the eight of these tests.
    client.execute(env=os.environ | {"PYTHONPATH": str(FOLDER.parent), "XLA_FLAGS": ""})
    outputs = [out for cell in notebook.cells for out in cell.get("outputs", [])]
    assert [out["text"] for out in outputs if out.get("name") == "stderr"] == []
    assert any("image/png" in out.get("data", {}) for out in outputs)


@pytest.fixture(scope="module")
def drawing():
    """notebooks/drawing.py, as the notebooks import it."""
    peer("matplotlib").use("agg")
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(FOLDER))
        yield importlib.import_module("drawing")


@pytest.fixture
def ax(drawing):
    """Somewhere to draw."""
    figure, ax = drawing.plt.subplots()
    yield ax
    drawing.plt.close(figure)


UP = {"strides": 2, "pads_begin": 1, "output_padding": 1}
FLAT = {"strides": (2, 1), "dilations": (1, 2), "pads_begin": (1, 0), "pads_end": (0, 1)}
GEOMETRIES = {
    "unread end": ("convolution", 8, 3, {"strides": 3}),
    "sparse": ("convolution", 9, 2, {"strides": 3, "dilations": 2, "pads_end": 2}),
    "same_upper": ("convolution", 6, 4, {"auto_pad": "same_upper"}),
    "same_lower": ("convolution", 6, 4, {"auto_pad": "same_lower"}),
    "flat": ("convolution", (5, 6), (3, 2), FLAT),
    "up": ("conv_transpose", 4, 3, UP | {"pads_end": 2}),
    "up, stride above kernel": ("conv_transpose", 3, 2, {"strides": 3, "output_padding": 2}),
    "up, pads above kernel": ("conv_transpose", 6, 2, {"pads_begin": 2, "pads_end": 1}),
    "up, same": ("conv_transpose", 4, 3, {"strides": 2, "auto_pad": "same_lower"}),
    "up, to size": ("conv_transpose", 3, 3, {"strides": 2, "dst_shape": 8}),
    "up, flat": ("conv_transpose", (2, 3), (2, 3), FLAT | {"output_padding": (1, 0)}),
    "data": ("convolution_backward_data", 3, 3, {"strides": 2, "dst_shape": 8}),
    "data of up": ("conv_transpose_backward_data", 8, 3, {"strides": 2, "pads_begin": 1}),
    "weights": ("convolution_backward_weights", 9, 4,
                {"weights_shape": 3, "strides": 2, "pads_begin": 1}),
    "weights of up, flat": ("conv_transpose_backward_weights", (2, 3), (5, 4),
                      FLAT | {"weights_shape": (3, 2)}),
}  # fmt: skip
every_geometry = pytest.mark.parametrize("name", GEOMETRIES)


def pair(size):
    return (size,) if isinstance(size, int) else size


@cache
def products(drawing, name):
    """What the operation multiplies, seen by one-hot inputs: {result cell: pairs of cells}.

    The pairs are in the order fine, kernel, coarse.
    """
    op, *sizes, attributes = GEOMETRIES[name]
    slots = drawing.ROLES[op]

    def shape(slot, size):
        return (*pair(size), 1, 1) if slot == "kernel" else (1, *pair(size), 1)

    given = {"weights_shape": "kernel", "dst_shape": slots[2]}
    more = {k: shape(given[k], v) if k in given else v for k, v in attributes.items()}
    hot = [
        np.eye(n, dtype=np.float32).reshape(n, *shape(slot, size))
        for slot, size in zip(slots, sizes, strict=False)
        for n in [np.prod(size)]
    ]

    def run(a, b):
        return getattr(jaxconv, op)(a, b, **more)

    results = np.asarray(jax.vmap(jax.vmap(run, (None, 0)), (0, None))(*hot))
    assert set(np.unique(results)) == {0, 1}
    axes = slice(0, -2) if slots[2] == "kernel" else slice(1, -1)
    found = {cell: set() for cell in np.ndindex(results.shape[2:][axes])}
    for a, b, *cell in np.argwhere(results).tolist():
        cells = (np.unravel_index(n, pair(size)) for n, size in zip((a, b), sizes, strict=True))
        read = dict(zip(slots, ([*map(int, cell)] for cell in cells), strict=False))
        found[tuple(cell[axes])].add(tuple(tuple(read[s]) for s in drawing.SLOTS if s in read))
    return found


@every_geometry
def test_the_connections_are_the_products_of_the_operation(drawing, name):
    op, first, second, attributes = GEOMETRIES[name]
    axes = drawing.axes_of(op, first, second, **attributes)
    expected = products(drawing, name)
    assert sum(map(len, expected.values())) > 0
    for cell, pairs in expected.items():
        assert drawing.connections(op, axes, cell) == pairs


@every_geometry
def test_the_window_marks_what_is_multiplied(drawing, ax, name):
    """The filled cells of the window, and their labels, against one-hot inputs."""
    op, first, second, attributes = GEOMETRIES[name]
    to_hex = importlib.import_module("matplotlib.colors").to_hex
    read = drawing.PALE[drawing.ORANGE]
    others = [slot for slot in drawing.SLOTS if slot != drawing.ROLES[op][2]]
    label = others.index("coarse" if "kernel" not in others else "kernel")
    for cell, pairs in products(drawing, name).items():
        ax.clear()
        drawing.draw(op, first, second, cell=cell, ax=ax, **attributes)
        filled = {
            (patch.get_x() + 0.5, patch.get_y() + 0.5)
            for patch in ax.patches
            if to_hex(patch.get_facecolor()) == read
        }
        texts = [t.get_text() for t in ax.texts if t.get_position() in filled]
        assert sorted(texts) == sorted(",".join(map(str, p[label])) for p in pairs)


def test_three_dimensions_are_refused(drawing):
    with pytest.raises(ValueError, match=r"one or two dimensions.*\(4, 4, 4\)"):
        drawing.draw("convolution", (4, 4, 4), (3, 3, 3))
