"""Programs in processes of their own, for which JAX finds this package's entry point or not."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from jaxconv import _lowering
from jaxconv._lowering import onednn_here

ROOT = Path(__file__).parents[2]

#: For tests of oneDNN's call.
HERE = pytest.mark.skipif(
    _lowering.why_unavailable() is not None, reason=f"without oneDNN: {_lowering.why_unavailable()}"
)


def forget():
    """Have all that is remembered about oneDNN in this process asked anew."""
    for function in vars(onednn_here).values():
        getattr(function, "cache_clear", int)()


def findable(folder, first=""):
    """PYTHONPATH for the package, and the entry point of pyproject.toml as pip would write it."""
    points = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    (info := folder / "jaxconv-0.dist-info").mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: jaxconv\nVersion: 0\n")
    lines = (f"{name} = {value}" for name, value in points["jax_plugins"].items())
    (info / "entry_points.txt").write_text("\n".join(["[jax_plugins]", *lines, ""]))
    return os.pathsep.join(filter(None, [str(first), str(folder), str(ROOT)]))


def python(*words, path=str(ROOT), told=None, cwd=None, **environment):
    """`python WORDS` with JAXCONV_INSTALL as told, or without it; not from the current folder."""
    inherited = {n: v for n, v in os.environ.items() if n != "JAXCONV_INSTALL"}
    given = {"PYTHONPATH": path} | ({} if told is None else {"JAXCONV_INSTALL": told})
    return subprocess.run(
        [sys.executable, *map(str, words)],
        env=inherited | given | environment, cwd=cwd or path.split(os.pathsep)[0],
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip


def prints(code, **environment):
    """What a program prints, and what it says on stderr, in a process with this one's packages."""
    done = python("-c", code, path=os.pathsep.join(sys.path), cwd=".", **environment)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout, done.stderr
