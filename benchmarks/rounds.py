"""How engines are timed against each other: prepare all, verify all, then take turns.

In every round each engine in turn calls its function for a short burst while the others
sleep, and the next round starts with the next engine; so a change of the machine's speed
meets all of them alike.
"""

import math
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from benchmarks.pool import EngineError, Pool

SETTLE_SECONDS = 0.004  # thread pools spin a little after their last task
REST_SECONDS = 0.05  # and NumPy's, which has just verified, a little longer

Verify = Callable[[dict[str, list[np.ndarray]]], dict[str, dict]]


@dataclass(frozen=True)
class Plan:
    """How long to measure."""

    repeats: int = 5  # rounds
    burst_s: float = 0.04  # of calls per turn
    cap_s: float = 20.0  # per engine to prepare
    turns_s: float = 5.0  # of an engine's turns: then it sits out the rest


def measure(
    pool: Pool,
    labels: Sequence[str],
    job: dict,
    operands: list[np.ndarray],
    verify: Verify,
    plan: Plan,
    folder: Path,
) -> dict[str, dict]:
    """What each engine achieved in a job, by label; a failure is an entry, never an exception.

    `verify` gets {"label/variant": results} and returns for each what to note, at least
    whether it is `ok`; only those are timed.
    """
    paths = store(operands, folder)
    failures: dict[str, EngineError] = {}
    results: dict[str, list[np.ndarray]] = {}
    facts: dict[str, dict] = {}
    for label in labels:
        try:
            variants = prepare(pool, label, job, paths, folder, plan.cap_s)
        except EngineError as error:
            failures[label] = error
            continue
        for name, variant in variants.items():
            results[f"{label}/{name}"] = [np.load(p) for p in variant["results"]]
            facts[f"{label}/{name}"] = variant["facts"]
    notes = verify(results)
    del results
    good = [key for key in facts if notes[key].pop("ok")]
    time.sleep(REST_SECONDS)
    turns, later = _take_turns(pool, good, plan)
    return {label: _row(label, facts, notes, turns, failures | later) for label in labels}


def store(operands: Sequence[np.ndarray], folder: str | Path) -> list[str]:
    """The files that workers read the operands from."""
    paths = [str(Path(folder) / f"operand{n}.npy") for n in range(len(operands))]
    for path, x in zip(paths, operands, strict=True):
        np.save(path, x)
    return paths


def prepare(
    pool: Pool, label: str, job: dict, paths: list[str], folder: str | Path, seconds: float
) -> dict[str, dict]:
    """An engine's variants of a job, called once: the facts and the files of the results."""
    out = str(Path(folder) / f"{label} ")
    request = {"do": "prepare", "job": job, "operands": paths, "out": out}
    return pool.ask(label, request, seconds)["variants"]


def _take_turns(pool: Pool, keys: list[str], plan: Plan) -> tuple[dict, dict[str, EngineError]]:
    """The bursts of every variant, and what went wrong with some."""
    turns: dict[str, list[dict]] = {key: [] for key in keys}
    spent = dict.fromkeys(keys, 0.0)
    failures: dict[str, EngineError] = {}
    for _ in range(plan.repeats):
        for key in keys:
            label, _, variant = key.partition("/")
            if label in failures or spent[key] > plan.turns_s:
                continue
            request = {"do": "burst", "variant": variant, "seconds": plan.burst_s}
            time.sleep(SETTLE_SECONDS)
            start = time.perf_counter()
            try:
                turns[key].append(pool.ask(label, request, plan.cap_s))
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
        "calls": sum(b["calls"] for b in bursts),
    }


def geometric_mean(values: Sequence[float]) -> float:
    """exp of the mean logarithm."""
    return math.exp(statistics.fmean(map(math.log, values)))
