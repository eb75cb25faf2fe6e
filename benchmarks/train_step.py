"""`python -m benchmarks.train_step`: one step of small networks, forward, backward and SGD."""

import math
from collections.abc import Sequence

import numpy as np

from benchmarks import flags, networks, run
from benchmarks.verdicts import EPS, MULTIPLIED_AS, of_norm

LOSS_TOLERANCE = {"f32": 1e-4, "f64": 1e-12, "bf16": 5e-2, "f16": 1e-2}
# Of the update's norm: a relu may switch on a last bit, and batch norm passes it on. In 16 bits
# that is most of MobileNet's; in bfloat16 as much as all of it, so any number will do.
UPDATE_TOLERANCE = {"f32": 5e-2, "f64": 1e-8, "bf16": 1e30, "f16": 0.7}


def judge(job: dict, operands: list[np.ndarray], results: dict, platforms: dict) -> dict[str, dict]:
    """Losses and updates against those of lax in float64; notes for `measure`.

    Updates of those parameters only that they change by more than rounding these costs.
    """
    dtype, exact = job["dtype"], run.reference(job | {"dtype": "f64"}, operands)
    losses = {key: float(own[0]) for key, own in results.items()}
    if exact is None:
        return {key: {"ok": True, "unverified": True, "loss": x} for key, x in losses.items()}
    _, before, _ = networks.NETWORKS[job["network"]].split(operands)
    loss, expected = float(exact[0]), _update(before, exact)
    size = np.abs(np.concatenate([p.ravel() for p in before]))
    seen = np.abs(expected) > 4 * EPS[dtype] * size
    notes = {}
    for key, own in losses.items():
        rounded = MULTIPLIED_AS.get(platforms[key], dtype) if dtype == "f32" else dtype
        update = _update(before, results[key])[seen]
        note = of_norm(update, expected[seen], UPDATE_TOLERANCE[rounded], "the update in float64")
        if not abs(own - loss) <= LOSS_TOLERANCE[rounded] * abs(loss):
            note |= {"ok": False, "reason": f"loss {own:.6g} against {loss:.6g} in float64"}
        notes[key] = note | {"loss": own if math.isfinite(own) else None}
    return notes


def _update(before: list[np.ndarray], results: list[np.ndarray]) -> np.ndarray:
    pairs = zip(before, results[1:], strict=True)
    return np.concatenate([(after.astype(np.float64) - p).ravel() for p, after in pairs])


def main(argv: Sequence[str]) -> None:
    """Measure what the flags ask for, print a line per row and write the results."""
    what = "one step of small networks: forward, backward and SGD"
    command = flags.measuring("benchmarks.train_step", what)
    command.default({"burst": 0.3, "cap": 120.0, "engines": "jaxconv,lax,lax+install,torch"})
    asked = flags.parse(command, argv)
    run.collect_networks(asked, "step", [{}], judge)


if __name__ == "__main__":
    flags.run(main)
