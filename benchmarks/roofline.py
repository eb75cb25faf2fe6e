"""What the machine can do at most: a matmul, and a copy into memory that is used again."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.pool import Pool
from benchmarks.rounds import Plan, measure

# The side of the matrices, and how many floats to copy: far beyond any cache.
SIZES = {"tiny": (256, 1 << 16), "cpu": (2048, 1 << 26), "accelerator": (8192, 1 << 28)}


def calibrate(
    pool: Pool,
    labels: Sequence[str],
    dtypes: Sequence[str],
    size: str,
    threads: int,
    folder: Path,
) -> dict:
    """Best FLOP/s by type and best bytes/s, over every engine that was asked.

    The roof is the machine's, not an engine's: all are held against the same one.
    """
    plan = Plan(repeats=3, burst_s=0.1, cap_s=60.0)

    def best(job: dict) -> dict[str, float]:
        job |= {"threads": threads}
        rows = measure(pool, labels, job, [], _nothing_to_verify, plan, folder)
        return {label: row["min_s"] for label, row in rows.items() if row["status"] == "ok"}

    n, floats = SIZES[size]
    roof: dict = {"matmul_size": n, "copy_floats": floats, "flops_per_s": {}, "by_engine": {}}
    for dtype in dtypes:
        seconds = best({"kind": "matmul", "n": n, "dtype": dtype})
        rates = {label: 2 * n**3 / s for label, s in seconds.items()}
        roof["flops_per_s"][dtype] = max(rates.values(), default=None)
        roof["by_engine"][dtype] = rates
    seconds = best({"kind": "copy", "n": floats, "dtype": "f32"})
    rates = {label: 2 * 4 * floats / s for label, s in seconds.items()}  # read and write
    roof["bytes_per_s"] = max(rates.values(), default=None)
    roof["by_engine"]["copy"] = rates
    return roof


def share(roof: dict, dtype: str, flops: float, moved: float, seconds: float) -> float | None:
    """The roofline's time over the measured time; above 1 where caches beat memory."""
    compute, memory = roof["flops_per_s"].get(dtype), roof["bytes_per_s"]
    if not compute or not memory:
        return None
    return max(flops / compute, moved / memory) / seconds


def _nothing_to_verify(results: dict) -> dict[str, dict]:
    return {key: {"ok": True} for key in results}
