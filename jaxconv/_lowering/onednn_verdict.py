"""The verdicts of sweeps on this machine about oneDNN's call, in the user's cache folder.

A verdict holds for one build of jaxlib, one set of processor features and one value of
ONEDNN_MAX_CPU_ISA. JAXCONV_CACHE_DIR names another folder than the user's.
"""

import json
import os
import warnings
from collections.abc import Set
from hashlib import sha256
from importlib.metadata import distribution
from pathlib import Path
from typing import Any, NamedTuple


class Verdict(NamedTuple):
    """Whether the call is right and safe, and a sentence that says so."""

    good: bool
    text: str


def path() -> Path | None:
    """Find the file of the verdicts; None where the user has no folder."""
    try:
        default = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:  # there is no home
        default = None
    folder = os.environ.get("JAXCONV_CACHE_DIR") or (default and Path(default) / "jaxconv")
    return Path(folder) / "onednn.json" if folder else None


def read(features: Set[str], held_to: str) -> Verdict | None:
    """Read the verdict for this jaxlib, these features and this limit; None without a sweep."""
    file = path()
    try:
        found = _load(file).get(_key(features, held_to)) if file else None
        return found and Verdict(bool(found["good"]), str(found["text"]))
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        warnings.warn(
            f"{file} cannot be read and is ignored ({type(error).__name__}: {error}); "
            "`python -m jaxconv --qualify` writes it anew",
            stacklevel=2,
        )
        return None


def write(verdict: Verdict, features: Set[str], held_to: str) -> Path | None:
    """Add a verdict to the file, and return the path; None if there is no file."""
    file = path()
    if file is None:
        return None
    try:
        known = dict(_load(file))
    except (OSError, ValueError, TypeError):
        known = {}
    known[_key(features, held_to)] = verdict._asdict()
    new = file.with_name(f"{file.name}.{os.getpid()}")
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        new.write_text(json.dumps(known, indent=1))
        new.replace(file)
    except OSError:
        return None
    return file


def _load(file: Path) -> Any:
    return json.loads(file.read_text()) if file.exists() else {}


def _key(features: Set[str], held_to: str) -> str:
    jaxlib = distribution("jaxlib")
    # Lists a digest of each installed file, which tells builds of one version apart.
    build = _digest(jaxlib.read_text("RECORD") or "")
    return f"{jaxlib.version} {build} {_digest(' '.join(sorted(features)))} {held_to}".strip()


def _digest(text: str) -> str:
    return sha256(text.encode()).hexdigest()[:12]
