"""On what was it measured: processor, memory, revision."""

import os
import platform
import subprocess
from pathlib import Path

from benchmarks.pool import ROOT


def describe() -> dict:
    """The machine, as far as it can be told without asking anybody."""
    info, known = Path("/proc/cpuinfo"), {}
    for line in info.read_text().splitlines() if info.exists() else ():
        name, _, value = line.partition(":")
        known.setdefault(name.strip(), value.strip())
    return {
        "cpu": known.get("model name") or platform.processor(),
        "cpu_family_model": f"{known.get('cpu family', '?')}/{known.get('model', '?')}",
        "isa": [name for name in _ISA if name in known.get("flags", "").split()],
        "cores": cores(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": f"{platform.system()} {platform.machine()}",
    }


#: The processors of committed results, by family and model.
GENERATIONS = {"25/17": "Zen 4, ", "26/2": "Zen 5, "}


def in_words(machine: dict) -> str:
    """Cores, processor and vector instructions of a machine that `describe` has described."""
    wide = "AMX" if "amx_bf16" in machine["isa"] else "AVX-512"
    isa = wide if "avx512f" in machine["isa"] else "AVX2" if "avx2" in machine["isa"] else ""
    known = machine.get("cpu_family_model", "")
    family, _, model = known.partition("/")
    which = f" ({GENERATIONS.get(known, '')}family {family}, model {model})" if model else ""
    return f"{machine['cores']} cores of {machine['cpu']}{which}" + (f" with {isa}" if isa else "")


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


def revision() -> dict:
    """The git revision of the checkout, and whether it has changes; empty outside of one."""
    try:
        commit = _git("rev-parse", "HEAD")
        return {"commit": commit, "changed": bool(_git("status", "--porcelain", "-uno"))}
    except (OSError, subprocess.CalledProcessError):
        return {}


_ISA = ("avx2", "fma", "avx512f", "avx512_bf16", "avx512_fp16", "amx_tile", "amx_bf16", "asimd")


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout.strip()
