"""What every measuring command shares: workers, turns, the loop over rows, the header of results.

All engines are prepared, then verified, then they take turns. In every round each engine in turn
calls its function for a short burst while the others sleep, and the next round starts with the next
engine; so a change of the machine's speed meets all of them alike.
"""

import datetime
import os
import re
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from itertools import product
from pathlib import Path
from types import SimpleNamespace

import numpy as np

from benchmarks import arrays, files, machine, networks
from benchmarks.pool import EngineError, Pool

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


def open_pool(flags: SimpleNamespace) -> Pool:
    """The workers; an engine that does not even start is named on stderr."""
    environment = SHARED | (EXACT_F32 if flags.f32 == "exact" else {})
    if flags.device == "cpu":
        environment |= ON_CPU
    pool = Pool(flags.python, flags.path, environment, flags.env)
    for label in flags.engines:
        try:
            pool.start(label)
        except EngineError as error:
            print(f"{label}: {error.status}: {error.reason}", file=sys.stderr)
    return pool


def collect(
    asked: SimpleNamespace,
    jobs: list[dict],
    draw: Callable,
    judge: Callable,
    describe: Callable,
    **extra: object,
) -> dict:
    """Measure every job by every engine: the results, as of `follow`, with `extra` in the header.

    `draw` makes the operands of a job, `describe` the columns of its row. `judge` takes the job,
    its operands, each engine's results and platforms, and says what `measure` wants to know.
    """
    with open_pool(asked) as pool, tempfile.TemporaryDirectory() as folder:

        def measured(job: dict) -> list[dict]:
            operands = draw(job)

            def verify(results: dict[str, list[np.ndarray]]) -> dict[str, dict]:
                return judge(job, operands, results, platforms(pool, results))

            entries = measure(pool, asked, job, operands, verify, Path(folder))
            return [describe(job) | {"engines": entries}]

        def about() -> dict:
            engines = {label: pool.versions.get(label) for label in asked.engines}
            plan = {"repeats": asked.repeats, "burst_s": asked.burst}
            plan |= {"cap_s": asked.cap, "turns_s": asked.turns}
            return {"plan": plan, "engines": engines} | extra

        return follow(asked.out, jobs, measured, line, about)


def follow(
    out: str, jobs: list, measure: Callable, tell: Callable, about: Callable[[], dict]
) -> dict:
    """The results: their header, to which `about` adds, and the rows that each job is measured in.

    Show a line for each job, as `tell` says its rows, and write the results if `out` says where.
    """
    started, load, rows = time.time(), os.getloadavg()[0], []
    if not jobs:
        raise SystemExit("--filter leaves nothing to measure")
    try:
        for done, job in enumerate(jobs, 1):
            found = measure(job)
            rows += found
            left = (time.time() - started) / done * (len(jobs) - done)
            more = f", {left / 60:.0f} min left" if left >= 60 else ""
            print(f"[{done}/{len(jobs)}{more}] {tell(found)}", flush=True)
    finally:
        results = _header(started, load) | about() | {"rows": rows}
        if out and rows:
            files.write(out, results)
    return results


def collect_networks(
    asked: SimpleNamespace, kind: str, images: list[dict], judge: Callable
) -> dict:
    """Measure every network that is trained, or infers, as `collect` does.

    Each of `images` says how many images there are, and their size, if it is not the network's own.
    """
    kinds = {name: "step" if x.training else "inference" for name, x in networks.NETWORKS.items()}
    chosen = [name for name, own in kinds.items() if own == kind and wanted(asked, name)]
    jobs = [
        {"kind": kind, "network": name, "dtype": dtype} | some
        for name, some, dtype in product(chosen, images, asked.dtypes)
    ]

    def draw(job: dict) -> list[np.ndarray]:
        drawn = networks.NETWORKS[job["network"]].operands(job.get("batch"), job.get("size"))
        return [arrays.representable(x, job["dtype"]) for x in drawn]

    return collect(asked, jobs, draw, judge, describe)


def describe(job: dict) -> dict:
    """The columns of a network's row."""
    batch = f", batch {job['batch']}" if "batch" in job else ""
    row = {"layer": job["network"] + batch, "class": CLASSES[job["kind"]], "op": job["kind"]}
    return row | {"dtype": job["dtype"], "layout": "NXC"}


def reference(job: dict, operands: list[np.ndarray]) -> list[np.ndarray] | None:
    """The results of a network by plain lax on a CPU; None without JAX.

    In a process of its own that ends before anything is timed.
    """
    with tempfile.TemporaryDirectory() as folder, Pool(environment=SHARED | ON_CPU) as pool:
        try:
            np.savez(f"{folder}/operands.npz", *operands)
            request = {"do": "prepare", "job": job, "folder": folder}
            found = pool.ask("lax", request, REFERENCE_SECONDS)["variants"][""]
        except EngineError as error:
            print(f"{job['network']}: no reference: {error.reason}", file=sys.stderr)
            return None
        return arrays.read(found["results"])


def line(rows: list[dict]) -> str:
    """The row of a job, for people."""
    [row] = rows
    entries = ", ".join(f"{label} {_in_words(entry)}" for label, entry in row["engines"].items())
    return f"{row['layer']} {row['op']} {row['dtype']} {row['layout']}: {entries}"


def _in_words(entry: dict) -> str:
    """The time of an engine, a compiler's estimate, or what became of it."""
    if entry["status"] != "ok":
        failed = entry["status"] == "failed"
        return f"failed ({entry['reason'][:120]})" if failed else entry["status"]
    if "median_ms" in entry:
        return f"{entry['median_ms']:.3g} ms"
    cycles = entry["cycles"]
    return f"{cycles:,} cycles" if cycles else f"{entry['temp_bytes']:,} bytes"


def _header(started: float, load: float) -> dict:
    """What ran where, as a file of results says it, but for the engines."""
    date = datetime.datetime.fromtimestamp(started, datetime.UTC)
    return {
        "date": date.isoformat(timespec="seconds"),
        "seconds": round(time.time() - started, 1),
        "command": sys.argv[1:],
        "machine": machine.describe() | {"load_before": load},
        "git": machine.revision(),
    }


SETTLE_SECONDS = 0.004  # thread pools spin a little after their last task
REST_SECONDS = 0.05  # and NumPy's, which has just verified, a little longer

Verify = Callable[[dict[str, list[np.ndarray]]], dict[str, dict]]


def measure(
    pool: Pool,
    asked: SimpleNamespace,
    job: dict,
    operands: list[np.ndarray],
    verify: Verify,
    folder: Path,
) -> dict[str, dict]:
    """What each engine achieved in a job, by label; a failure is an entry, never an exception.

    `asked` has the engines, the rounds and the limits of seconds.
    `verify` gets {"label/variant": results} and returns for each what to note, at least
    whether it is `ok`; only those are timed.
    """
    np.savez(folder / "operands.npz", *operands)
    request = {"do": "prepare", "job": job, "folder": str(folder)}
    failures: dict[str, EngineError] = {}
    results: dict[str, list[np.ndarray]] = {}
    facts: dict[str, dict] = {}
    for label in asked.engines:
        try:
            variants = pool.ask(label, request, asked.cap)["variants"]
        except EngineError as error:
            failures[label] = error
            continue
        for name, variant in variants.items():
            results[f"{label}/{name}"] = arrays.read(variant["results"])
            facts[f"{label}/{name}"] = variant["facts"]
    notes = verify(results)
    del results
    good = [key for key in facts if notes[key].pop("ok")]
    time.sleep(REST_SECONDS)
    turns, later = _take_turns(pool, good, asked)
    return {label: _row(label, facts, notes, turns, failures | later) for label in asked.engines}


def _take_turns(
    pool: Pool, keys: list[str], asked: SimpleNamespace
) -> tuple[dict, dict[str, EngineError]]:
    """The bursts of every variant, and what went wrong with some."""
    turns: dict[str, list[dict]] = {key: [] for key in keys}
    spent = dict.fromkeys(keys, 0.0)
    failures: dict[str, EngineError] = {}
    for _ in range(asked.repeats):
        for key in keys:
            label, _, variant = key.partition("/")
            if label in failures or spent[key] > asked.turns:
                continue
            request = {"do": "burst", "variant": variant, "seconds": asked.burst}
            time.sleep(SETTLE_SECONDS)
            start = time.perf_counter()
            try:
                turns[key].append(pool.ask(label, request, asked.cap))
            except EngineError as error:
                failures[label] = error
            spent[key] += time.perf_counter() - start
        keys = keys[1:] + keys[:1]
    return turns, failures


def _row(label: str, facts: dict, notes: dict, turns: dict, failures: dict) -> dict:
    """One engine's entry: its fastest variant, or why there is none."""
    if label in failures:
        return {"status": failures[label].status, "reason": failures[label].reason}
    own = [key for key in facts if key.partition("/")[0] == label]
    timed = [key for key in own if turns.get(key)]
    if not timed:
        return {"status": "wrong", "reason": notes[own[0]].get("reason", ""), **notes[own[0]]}
    rows = {key: _statistics(turns[key]) for key in timed}
    best = min(timed, key=lambda key: rows[key]["median_ms"])
    row = {"status": "ok", **facts[best], **notes[best], **rows[best]}
    if best.partition("/")[2]:
        row["variant"] = best.partition("/")[2]
        row["variants"] = {k.partition("/")[2]: rows[k]["min_ms"] for k in timed}
    return row


def _statistics(bursts: list[dict]) -> dict:
    """Minimum, median and spread; the spread is that of the rounds' medians."""
    medians = [1e3 * b["median"] for b in bursts]
    middle = statistics.median(medians)
    return {
        "min_ms": 1e3 * min(b["min"] for b in bursts),
        "median_ms": middle,
        "spread": (max(medians) - min(medians)) / middle,
        "rounds_ms": medians,
    }
