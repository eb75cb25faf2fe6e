"""Whether this process may call oneDNN: environment, processor, jaxlib, JAX's persistent cache.

And the verdicts of `python -m jaxconv --qualify`, kept in a file.
"""

import json
import logging
import os
import platform
import warnings
from collections.abc import Set
from functools import cache
from hashlib import sha256
from importlib.metadata import distribution, version
from pathlib import Path
from typing import Any, NamedTuple

import jax.numpy as jnp

from jaxconv._base import environment
from jaxconv._base.jax_names import persistent_cache_is_on
from jaxconv._base.typing import DType

#: Releases of jaxlib whose call (see `forms/onednn.py`) was tested on random sizes. 0.11.1 does not
#: print which of oneDNN's implementations run, so that no sweep can count them.
TESTED_RELEASES = ("0.10.2", "0.11.0", "0.11.2", "0.12.0", "0.12.0.1")

#: Values of JAXCONV_ONEDNN: call oneDNN never, where the call is known to be safe (the default), or
#: wherever the call runs.
OFF, SAFE, ALWAYS = "0", "1", "always"
TURNED_OFF = "JAXCONV_ONEDNN=0 is set"

#: Processor features that float32 needs, and bfloat16: emulated, bfloat16 takes up to three times
#: as long as float32.
FLOAT32_FEATURES = {"avx2", "fma"}
BFLOAT16_FEATURES = {"avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_bf16"}

#: Values of `held_to` that hold oneDNN below AVX2, AVX-512, and bfloat16's instructions.
BELOW_AVX2 = {"SSE41", "AVX"}
BELOW_AVX512 = BELOW_AVX2 | {"AVX2", "AVX2_VNNI", "AVX2_VNNI_2"}
BELOW_BFLOAT16 = BELOW_AVX512 | {"AVX512_CORE", "AVX512_CORE_VNNI"}

#: Where Linux describes the processor.
CPUINFO = Path("/proc/cpuinfo")

# XLA's serialiser takes the thunk of the call for a thunk of another class, and reads memory that
# is not there. So no program that JAX writes to its cache may contain the call, nor does JAX write
# one if the user insists; but one that was lowered before the folder was set: see `docs/faq.md`.
# This reason may go when XLA can serialise such programs, or refuses to.
CACHED = (
    "jax_compilation_cache_dir is set, and XLA cannot serialise programs that call oneDNN; "
    "JAXCONV_ONEDNN=always calls it all the same; such programs are then not cached"
)


class UntestedJaxlibWarning(UserWarning):
    """oneDNN is not used: its call in this release of jaxlib was not tested, or failed the test."""


def why_unavailable() -> str | None:
    """Say why programs that are lowered now do not call oneDNN; None if programs may."""
    asked = environment.read("JAXCONV_ONEDNN", (OFF, SAFE, ALWAYS), SAFE)
    if asked == OFF:
        return TURNED_OFF
    if reason := why_impossible():
        return reason
    if asked == ALWAYS:
        return None
    return _why_unsafe() or (CACHED if persistent_cache_is_on() else None)


@cache
def why_impossible() -> str | None:
    """Say why the call cannot run in this process, whatever JAXCONV_ONEDNN says; None if it can."""
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return "jaxlib carries it for x86-64 Linux only"
    if not features() >= FLOAT32_FEATURES or held_to() in BELOW_AVX2:
        return "the processor, ONEDNN_MAX_CPU_ISA or DNNL_MAX_CPU_ISA has no AVX2"
    return None


@cache
def _why_unsafe() -> str | None:
    """Say why the call may be wrong or hang: the verdict of a sweep here, or no sweep."""
    found = read_verdict(features(), held_to())
    if found:
        return None if found.good else f"`python -m jaxconv --qualify` found here: {found.text}"
    if version("jaxlib") in TESTED_RELEASES:
        return None
    return (
        f"its call is not tested for jaxlib {version('jaxlib')}; `python -m jaxconv --qualify` "
        "tests it on this machine in two minutes, and remembers the verdict"
    )


def warn_once() -> None:
    """Say once in a process that programs run without oneDNN for a reason that few expect."""
    reason = why_unavailable()
    if reason not in (None, TURNED_OFF, why_impossible()):
        _warn(reason)


@cache
def _warn(reason: str | None) -> None:
    text = f"jaxconv runs without oneDNN, more slowly: {reason}"
    if reason == CACHED:
        logging.getLogger("jaxconv").warning(text)
    else:
        warnings.warn(text, UntestedJaxlibWarning, stacklevel=2)


@cache
def multiplies(dtype: DType) -> bool:
    """Whether oneDNN multiplies a type as it is; other 16-bit types are widened first."""
    if dtype == jnp.bfloat16:
        return features() >= BFLOAT16_FEATURES and held_to() not in BELOW_BFLOAT16
    return bool(dtype == jnp.float32)


@cache
def features() -> frozenset[str]:
    """The features of the processor, by Linux's names."""
    return frozenset(read_cpuinfo().get("flags", "").split())


def read_cpuinfo() -> dict[str, str]:
    """What Linux says of the processor, by name; nothing elsewhere."""
    try:
        lines = CPUINFO.read_text().splitlines()
    except OSError:
        return {}
    return {key.strip(): value.strip() for key, _, value in (x.partition(":") for x in lines)}


def has_avx512() -> bool:
    """Whether oneDNN multiplies in vectors of 512 bits; XLA's dots have 256."""
    return "avx512f" in features() and held_to() not in BELOW_AVX512


def has_amx() -> bool:
    """Whether oneDNN may multiply bfloat16 in AMX tiles, whatever ONEDNN_MAX_CPU_ISA says."""
    return any(feature.startswith("amx_") for feature in features())


def held_to() -> str:
    """The instruction set that the environment holds oneDNN to; empty if none."""
    names = "ONEDNN_MAX_CPU_ISA", "DNNL_MAX_CPU_ISA"  # oneDNN reads the first that is not empty
    return next(filter(None, map(os.environ.get, names)), "").upper()


# The verdicts of sweeps on this machine, in the user's cache folder, or in JAXCONV_CACHE_DIR. A
# verdict holds for one build of jaxlib, one set of processor features and one value of
# `held_to`.


class Verdict(NamedTuple):
    """Whether the call is right and safe, and a sentence that says so."""

    good: bool
    text: str


def verdict_path() -> Path | None:
    """Find the file of the verdicts; None where the user has no folder."""
    try:
        default = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    except RuntimeError:  # there is no home
        default = None
    folder = os.environ.get("JAXCONV_CACHE_DIR") or (default and Path(default) / "jaxconv")
    return Path(folder) / "onednn.json" if folder else None


def read_verdict(features: Set[str], held_to: str) -> Verdict | None:
    """Read the verdict for this jaxlib, these features and this limit; None without a sweep."""
    file = verdict_path()
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


def write_verdict(verdict: Verdict, features: Set[str], held_to: str) -> Path | None:
    """Add a verdict to the file, and return the path; None if there is no file."""
    file = verdict_path()
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
