"""`python -m benchmarks.train_step`: one step of small networks, forward, backward and SGD."""

import math
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from absl import app, flags

from benchmarks import machine, networks, run
from benchmarks.rounds import measure

LOSS_TOLERANCE = {"f32": 1e-4, "f64": 1e-12, "bf16": 5e-2, "f16": 1e-2}
# Of the whole update's norm: a relu may switch on a last bit, and batch norm passes it on.
# In 16 bits most of a small update is lost in the parameter, so it is not compared.
UPDATE_TOLERANCE = {"f32": 5e-2, "f64": 1e-8, "bf16": math.inf, "f16": math.inf}


def judge(
    name: str, dtype: str, operands: list[np.ndarray], results: dict[str, list[np.ndarray]]
) -> dict[str, dict]:
    """Losses and updates against the median ones of all engines; notes for `measure`."""
    if not results:
        return {}
    before = operands[networks.data_count(name) :]
    before = [p for p, t in zip(before, networks.trainable(name), strict=True) if t]
    losses = {key: float(arrays[0]) for key, arrays in results.items()}
    updates = {key: _update(before, arrays) for key, arrays in results.items()}
    loss, expected = _median(list(losses.values())), _median(list(updates.values()))
    notes = {}
    for key, update in updates.items():
        loss_error = abs(losses[key] - loss) / abs(loss)
        error = float(np.linalg.norm(update - expected) / np.linalg.norm(expected))
        ok = bool(loss_error <= LOSS_TOLERANCE[dtype] and error <= UPDATE_TOLERANCE[dtype])
        notes[key] = {"ok": ok, "loss": losses[key], "error": error}
        if not ok:
            notes[key]["reason"] = (
                f"loss {losses[key]:.6g} against {loss:.6g} by the median engine, "
                f"update differs by {error:.3g} of its norm"
            )
    return notes


def _median(values: list[Any]) -> Any:
    """By element, and of an even number the greater one, which some engine has computed."""
    return np.sort(np.stack(values), axis=0)[len(values) // 2]


def _update(before: list[np.ndarray], results: list[np.ndarray]) -> np.ndarray:
    pairs = zip(before, results[1:], strict=True)
    return np.concatenate([(after - p).ravel() for p, after in pairs]).astype(np.float64)


def main(argv: list[str]) -> None:
    """Measure what the flags ask for, print a line per row and write the results."""
    run.no_arguments(argv)
    names = [n for n in networks.NETWORKS if run.wanted(n)]
    jobs = [
        {"kind": "step", "network": n, "dtype": d, "threads": machine.cores()}
        for n in names
        for d in run.dtypes()
    ]
    with run.open_pool() as pool, tempfile.TemporaryDirectory() as folder:

        def measured(job: dict) -> dict:
            name, dtype = job["network"], job["dtype"]
            operands = networks.operands(name)
            entries = measure(
                pool,
                run.labels(),
                job,
                operands,
                lambda results: judge(name, dtype, operands, results),
                run.plan(),
                Path(folder),
            )
            return {
                "layer": name,
                "network": name,
                "class": "training step",
                "tags": [],
                "op": "step",
                "dtype": dtype,
                "layout": "NXC",
                "engines": entries,
            }

        run.collect(pool, jobs, measured, lambda row: f"{row['layer']}: {run.times(row)}", {})


if __name__ == "__main__":
    flags.FLAGS.set_default("burst", 0.3)
    flags.FLAGS.set_default("cap", 120.0)
    flags.FLAGS.set_default("engines", ["jaxconv", "lax", "torch"])
    app.run(main)
