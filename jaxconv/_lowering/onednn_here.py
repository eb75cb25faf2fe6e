"""Whether this process may call oneDNN: the release of jaxlib, the processor, the environment."""

import os
import platform
from functools import cache
from importlib.metadata import version
from pathlib import Path

import jax.numpy as jnp

from jaxconv._typing import DType

#: Releases of jaxlib whose call was tested on random sizes; 0.11.1 does not print what it runs.
KNOWN = ("0.10.2", "0.11.0", "0.11.2", "0.12.0", "0.12.0.1")

#: Processor features that float32 needs, and bfloat16.
FLOAT32, BFLOAT16 = {"avx2", "fma"}, {"avx512f", "avx512bw", "avx512vl", "avx512dq"}

#: Values of ONEDNN_MAX_CPU_ISA that hold oneDNN below AVX2, and below AVX-512.
BELOW_AVX2, BELOW_AVX512 = {"SSE41", "AVX"}, {"SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX2_VNNI_2"}

#: Where Linux lists the features of the processor.
CPUINFO = Path("/proc/cpuinfo")


@cache
def unavailable() -> str | None:
    """Why oneDNN is not used in this process, or None if it is."""
    if os.environ.get("JAXCONV_ONEDNN", "1") == "0":
        return "JAXCONV_ONEDNN=0 is set"
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return "jaxlib carries it for x86-64 Linux only"
    if version("jaxlib") not in KNOWN:
        return f"its call is known for jaxlib {', '.join(KNOWN)}, and this is {version('jaxlib')}"
    if not features() >= FLOAT32 or held_to() in BELOW_AVX2:
        return "the processor, or ONEDNN_MAX_CPU_ISA, has no AVX2"
    return None


@cache
def takes(dtype: DType) -> bool:
    """Whether oneDNN multiplies this type as it is; other 16-bit types are widened first."""
    if dtype == jnp.bfloat16:
        return features() >= BFLOAT16 and held_to() not in BELOW_AVX512
    return bool(dtype == jnp.float32)


def amx() -> bool:
    """Whether oneDNN may multiply bfloat16 in AMX tiles, whatever ONEDNN_MAX_CPU_ISA says."""
    return any(feature.startswith("amx_") for feature in features())


@cache
def features() -> frozenset[str]:
    """The features of the processor, by the names that Linux has for them."""
    try:
        lines = CPUINFO.read_text().splitlines()
    except OSError:
        return frozenset()
    return frozenset(next((x for x in lines if x.startswith("flags")), "").split())


def held_to() -> str:
    """The instruction set that the environment holds oneDNN to; empty if none."""
    return os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper()
