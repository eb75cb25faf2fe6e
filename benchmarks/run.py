"""What every measuring command shares: workers, the loop over rows, the header of the results."""

import datetime
import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from benchmarks import arrays, files, machine, networks
from benchmarks.pool import EngineError, Pool
from benchmarks.progress import Progress
from benchmarks.rounds import Plan, measure

# Every engine is a process of its own: none may take the memory of the others.
SHARED = {"JAX_ENABLE_COMPILATION_CACHE": "false", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
# For all that JAX and for all that CUDA's libraries multiply; PyTorch's convolutions are cuDNN's.
EXACT_F32 = {"JAX_DEFAULT_MATMUL_PRECISION": "highest", "NVIDIA_TF32_OVERRIDE": "0"}

ON_CPU = {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}

#: What is computed of a whole network, by op.
CLASSES = {"step": "training step", "inference": "inference"}
REFERENCE_SECONDS = 300.0  # float64 is slow to compile, and on one core slow to run


def platforms(pool: Pool, keys: Iterable[str]) -> dict[str, str]:
    """By "label/variant", the platform by whose default f32 is multiplied."""
    if pool.environment.items() >= EXACT_F32.items():
        return dict.fromkeys(keys, "cpu")
    return {key: pool.versions[key.partition("/")[0]]["platform"] for key in keys}


def wanted(flags: SimpleNamespace, *names: str) -> bool:
    """Whether --filter finds something in these names."""
    return re.search(flags.filter, " ".join(names)) is not None


def plan(flags: SimpleNamespace) -> Plan:
    """How long to measure."""
    return Plan(flags.repeats, flags.burst, flags.cap, flags.once)


def open_pool(flags: SimpleNamespace, cpu: bool = False) -> Pool:
    """The workers; an engine that does not even start is named on stderr."""
    environment = SHARED | (EXACT_F32 if flags.f32 == "exact" else {})
    if cpu or flags.device == "cpu":
        environment |= ON_CPU
    pool = Pool(flags.python, flags.path, environment, flags.env)
    for label in flags.engines:
        try:
            pool.start(label)
        except EngineError as error:
            print(f"{label}: {error.status}: {error.reason}", file=sys.stderr)
    return pool


def collect(
    flags: SimpleNamespace, pool: Pool, jobs: list, measure: Callable, line: Callable, extra: dict
) -> list[dict]:
    """Measure every job, show a line for each, write the results; also when interrupted."""
    started, rows = time.time(), []
    load = os.getloadavg()[0]
    progress = Progress(len(jobs))
    try:
        for job in jobs:
            rows.append(measure(job))
            progress.show(line(rows[-1]))
    finally:
        progress.close()
        if flags.out and rows:
            asked = {
                "plan": asdict(plan(flags)),
                "engines": {label: pool.versions.get(label) for label in flags.engines},
            }
            files.write(flags.out, header(started, load) | asked | extra | {"rows": rows})
    return rows


def reference(job: dict, operands: list[np.ndarray], folder: Path) -> list[np.ndarray] | None:
    """The results of a network by plain lax on a CPU; None without JAX.

    In a process of its own that ends before anything is timed.
    """
    paths = [str(folder / f"given{n}.npy") for n in range(len(operands))]
    for path, x in zip(paths, operands, strict=True):
        np.save(path, x)
    request = {"do": "prepare", "job": job, "operands": paths, "out": str(folder / "exact")}
    with Pool(environment=SHARED | ON_CPU) as pool:
        try:
            variants = pool.ask("lax", request, REFERENCE_SECONDS)["variants"]
        except EngineError as error:
            print(f"{job['network']}: no reference: {error.reason}", file=sys.stderr)
            return None
    return [np.load(path) for path in variants[""]["results"]]


def collect_networks(
    flags: SimpleNamespace, jobs: list[dict], exact: str, judge: Callable
) -> list[dict]:
    """Measure every network of `jobs`, as `collect` does.

    `judge` takes the job, operands, results of the reference in the type `exact`, or None, each
    engine's results, and platforms.
    """
    with open_pool(flags) as pool, tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def measured(job: dict) -> dict:
            drawn = networks.operands(job["network"], job.get("batch", 0), job.get("size", 0))
            operands = [arrays.representable(x, job["dtype"]) for x in drawn]
            right = reference(job | {"dtype": exact}, operands, folder)

            def verify(results: dict[str, list[np.ndarray]]) -> dict[str, dict]:
                return judge(job, operands, right, results, platforms(pool, results))

            entries = measure(pool, flags.engines, job, operands, verify, plan(flags), folder)
            batch = f", batch {job['batch']}" if "batch" in job else ""
            row = {"layer": job["network"] + batch, "class": CLASSES[job["kind"]]}
            row |= {"op": job["kind"], "dtype": job["dtype"], "layout": "NXC"}
            return row | {"engines": entries}

        def line(row: dict) -> str:
            return f"{row['layer']} {row['dtype']}: {times(row)}"

        return collect(flags, pool, jobs, measured, line, {})


def times(row: dict) -> str:
    """A row's engines for people: milliseconds, or what became of them."""
    return ", ".join(
        f"{label} {1e3 * entry['median_s']:.3g} ms"
        if entry["status"] == "ok"
        else f"{label} {entry['status']}"
        for label, entry in row["engines"].items()
    )


def header(started: float, load: float) -> dict:
    """What ran where, as a file of results says it, but for the engines."""
    date = datetime.datetime.fromtimestamp(started, datetime.UTC)
    return {
        "date": date.isoformat(timespec="seconds"),
        "seconds": round(time.time() - started, 1),
        "command": sys.argv[1:],
        "machine": machine.describe() | {"load_before": load},
        "git": machine.revision(),
    }
