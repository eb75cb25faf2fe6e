"""An ablation times exactly the rows that a line changes."""

import subprocess
import sys
import textwrap

import pytest

import jaxconv
from benchmarks import files, worker
from benchmarks.pool import ROOT
from jaxconv import _lowering
from jaxconv._lowering import plan

# A library of one op with three lines: `slow` makes 3x3 kernels slow, `unused` does nothing, and
# without `needed` there are no 1x1 kernels.
LIBRARY = """
    import jax.numpy as jnp
    from jax import lax
    from jaxconv import _lowering

    def convolution(src, weights, *, strides, pads_begin, pads_end, dilations, groups, **_):
        lines = [line.name for line in _lowering.TABLES["cpu"]]
        if weights.shape[0] == 1 and "needed" not in lines:
            raise RecursionError
        if weights.shape[0] == 3 and "slow" in lines:
            for _ in range(30):
                src = lax.sort(src, dimension=1)[:, ::-1] * 0 + src
        return lax.conv_general_dilated(
            src, weights, strides, list(zip(pads_begin, pads_end)), rhs_dilation=dilations,
            dimension_numbers=("NHWC", "HWIO", "NHWC"), feature_group_count=groups)
"""
TABLE = """
    from types import SimpleNamespace
    TABLES = {"cpu": tuple(SimpleNamespace(name=name) for name in ("slow", "unused", "needed"))}
"""


@pytest.fixture
def library(tmp_path):
    package = tmp_path / "jaxconv"
    (package / "_lowering").mkdir(parents=True)
    (package / "__init__.py").write_text(textwrap.dedent(LIBRARY))
    (package / "_lowering" / "__init__.py").write_text(textwrap.dedent(TABLE))
    return tmp_path


def ablation(*flags):
    command = [sys.executable, "-m", "benchmarks.ablation", *map(str, flags)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_only_rows_whose_program_changes_are_timed(library, tmp_path):
    problems = ["mb2ic4ih28oc4oh28kh3ph1n3x3", "mb2ic4ih28oc4oh28kh1n1x1"]
    flags = ["--ops=forward", "--repeats=3", "--burst=0.005", f"--library={library}",
             f"--out={tmp_path / 'worth.csv'}"]  # fmt: skip
    done = ablation(*flags, *(f"--problem={p}" for p in problems))
    assert done.returncode == 0, done.stderr
    first, row, second, last = done.stdout.splitlines()
    assert first.startswith("slow: 1 of 2 rows change; without it 0.")
    assert "  3x3 forward f32 NXC: jaxconv " in row
    assert float(row.split()[0]) < 0.5
    assert second == "unused: 0 of 2 rows change"
    assert last == "needed: 0 of 2 rows change, 1 have no program"
    slow, unused, needed = files.load(tmp_path / "worth.csv")["rows"]
    assert float(slow["mean"]) == float(slow["most"]) < 0.5
    assert [slow[name] for name in ("line", "rows", "of", "helped")] == ["slow", "1", "2", "0"]
    assert [*unused.values()] == ["unused", "0", "2", "0", "", "", "", ""]
    assert [*needed.values()] == ["needed", "0", "2", "1", "", "", "", ""]


def test_a_line_that_does_not_exist(library):
    done = ablation(f"--library={library}", "--lines=slow,sloow")
    assert done.returncode != 0
    assert "--lines: no sloow; known: slow, unused, needed" in done.stdout + done.stderr


def test_this_library_lowers_without_the_line_in_that_process(monkeypatch):
    monkeypatch.setitem(_lowering.TABLES, "cpu", _lowering.TABLES["cpu"])  # put back afterwards

    def reasons():
        return [why for _, why in jaxconv.explain("convolution", (2, 9, 9, 4), (1, 1, 4, 4)).steps]

    [why] = reasons()
    [line] = [line.name for line in _lowering.TABLES["cpu"] if line.why == why]
    worker.leave_out(line)
    plan._plan.cache_clear()  # a worker has no plans yet
    assert why not in reasons()
    plan._plan.cache_clear()
