"""XLA's compilers for devices that are not here: what they need, and what they make of a layer.

Nothing runs. The compilers want an environment of their own, for their plugins are large; `INSTALL`
has the commands, with the versions that results were made with.
"""

import contextlib
import importlib.util
import os
import time
from collections.abc import Callable
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from unittest import mock

from benchmarks import program_text
from benchmarks.engines import Unsupported
from benchmarks.layer import DTYPES

#: What to install with pip, in this order: one environment has both compilers.
INSTALL = (
    "jax==0.12.0.1 absl-py",
    "--no-deps libtpu==0.0.50.1 jax-cuda12-plugin==0.12.0.1 jax-cuda12-pjrt==0.12.0.1 "
    "nvidia-cuda-nvcc-cu12==12.9.86 nvidia-cuda-runtime-cu12==12.9.79",
)
NEEDED = {"tpu": ("jax", "libtpu"), "cuda": ("jax", "jax_cuda12_plugin", "jax-cuda12-pjrt")}

#: What a worker's process is started with.
ENVIRONMENT = {
    "JAX_PLATFORMS": "cpu",
    "JAX_ENABLE_COMPILATION_CACHE": "false",
    "TPU_SKIP_MDS_QUERY": "1",
    "ALLOW_MULTIPLE_LIBTPU_LOAD": "1",
}

#: By platform, what JAX calls a small topology of each target; the first is the default.
TARGETS = {
    "tpu": {
        "v5e": "v5e:2x2",
        "v4": "v4:2x2x1",
        "v5p": "v5p:2x2x1",
        "v6e": "v6e:2x2",
        "tpu7x": "tpu7x:2x2x1",
    },
    "cuda": dict.fromkeys(("h100", "a100"), "1x1x1"),  # which a .txtpb beside this file describes
}
#: By platform, a topology of eight devices.
EIGHT = {"tpu": "v5e:2x4", "cuda": "1x1x8"}
OPTIONS = {"tpu": {}, "cuda": {"xla_gpu_autotune_level": "0"}}  # autotuning would run programs


def versions(platform: str) -> dict[str, str]:
    """The versions of a compiler's packages; of one that is missing, the remedy."""
    found = {}
    for name in NEEDED[platform]:
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            commands = " && ".join(f"/envs/xla/bin/pip install {line}" for line in INSTALL)
            raise ImportError(
                f"{name}, for {platform}, is missing: `python3.13 -m venv /envs/xla && {commands}`"
                ", then run this by /envs/xla/bin/python"
            ) from None
    return found


def is_here(platform: str) -> bool:
    """Whether this interpreter has a compiler."""
    return importlib.util.find_spec(NEEDED[platform][1]) is not None


@cache
def devices(platform: str, target: str, topology: str) -> list:
    """The devices of a topology, none of which is here."""
    from jax.experimental import topologies

    versions(platform)
    os.environ |= ENVIRONMENT
    described = {"topology_name": topology}
    if platform == "cuda":
        config = (Path(__file__).parent / f"{target}.txtpb").read_text()
        described = {"topology_name": target, "target_config": config, "topology": topology}
    return list(topologies.get_topology_desc(platform=platform, **described).devices)


@cache
def sharding(platform: str, target: str):
    """Where arrays of a program for one device of a target are."""
    import numpy as np
    from jax.sharding import Mesh, NamedSharding, PartitionSpec

    one = devices(platform, target, TARGETS[platform][target])[:1]
    return NamedSharding(Mesh(np.array(one), ("one",)), PartitionSpec())


def compiled(contraction: Callable, job: dict, form: str) -> dict:
    """What a compiler makes of a job: the numbers of its program, memory and seconds."""
    import jax

    from benchmarks.arrays import shapes_in

    jax.config.update("jax_enable_x64", job["dtype"] == "f64")
    layer, op, layout = job["layer"], job["op"], job["layout"]
    where = sharding(job["platform"], job["target"])
    types = [
        jax.ShapeDtypeStruct(shape, DTYPES[job["dtype"]], sharding=where)
        for shape in shapes_in(layer, op, layout)[:2]
    ]
    with forced(form) if form else contextlib.nullcontext():
        lowered = jax.jit(contraction(layer, op, layout)).lower(*types)
    start = time.perf_counter()
    program = lowered.compile(compiler_options=OPTIONS[job["platform"]])
    found = {"compile_s": time.perf_counter() - start}
    found["temp_bytes"] = program.memory_analysis().temp_size_in_bytes
    return found | program_text.facts(program.as_text())


def forced(name: str) -> contextlib.AbstractContextManager:
    """The library's form of that name, on any platform: `jaxconv.forced` is about the CPU alone."""
    from jaxconv._lowering import FORMS
    from jaxconv._lowering.plan import _plan

    if name not in FORMS:
        raise ValueError(f"no form is called {name!r}; known: {', '.join(FORMS)}")

    def chosen(problem, platform, _=None):
        found = _plan(problem, platform, FORMS[name], "forced")
        if not found.any_by_name():
            raise Unsupported(f"{name} cannot compute this contraction")
        return found

    return mock.patch("jaxconv._lowering.plan.choose_plan", chosen)
