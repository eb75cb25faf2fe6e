"""`python -m benchmarks.layers`: every layer of the table, through every engine, in turns."""

import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from absl.flags import DEFINE_boolean, DEFINE_enum, DEFINE_integer, DEFINE_multi_string

from benchmarks import (
    arrays,
    flags,
    layer,
    machine,
    problem,
    random_layers,
    run,
    table,
    verdicts,
)
from benchmarks.layer import Layer
from benchmarks.pool import Pool
from benchmarks.rounds import Plan, measure
from benchmarks.summary import summary

# About 2 minutes on 2 cores for 20 random layers and the three ops.
QUICK = {
    "engines": "jaxconv,lax,torch",
    "repeats": 3,
    "burst": 0.015,
    "once": 0.3,
    "cap": 10.0,
}


def command(name: str, description: str) -> flags.Command:
    """A command with the flags that choose rows, too."""
    new = flags.measuring(name, description)
    define_rows(new)
    others = " ".join(f"--{flag}={value}" for flag, value in QUICK.items())
    DEFINE_boolean("quick", False, f"other defaults: {others}", **new.own)
    new.presets["quick"] = QUICK
    return new


def define_rows(new: flags.Command) -> None:
    """The flags that choose layers, ops and layouts."""
    own = new.own
    DEFINE_enum("preset", "cpu-small", table.PRESETS, "sizes of the layers", **own)
    DEFINE_multi_string("problem", None, "a descriptor; instead of the table", **own)
    DEFINE_multi_string("problem-file", None, "a list of them", **own)
    DEFINE_enum("family", "conv", layer.FAMILIES, "what --problem means", **own)
    many = "so many random layers; instead of the table"
    DEFINE_integer("random", 0, many, lower_bound=0, **own)
    flags.define_integers(new, "seed", "0", "of --random; several: 1,2,3")
    DEFINE_boolean("rare", False, "--random draws kinds that are rare, and slow somewhere", **own)
    ops = "forward, data (gradient), weights (gradient)"
    flags.define_list(new, "ops", ",".join(layer.OPS), layer.OPS, ops)
    layouts = "NXC, NCX; PyTorch always has both its own"
    flags.define_list(new, "layouts", "NXC", layer.LAYOUTS, layouts)


def cases(layers: list[Layer], ops, dtypes, layouts) -> Iterator[dict]:
    """The jobs, one per layer, op, type and layout."""
    for row in layers:
        for dtype in dtypes:
            for layout in layouts:
                for op in ops:
                    yield {
                        "kind": "layer",
                        "layer": asdict(row),
                        "op": op,
                        "dtype": dtype,
                        "layout": layout,
                        "threads": machine.cores(),
                    }


def run_case(pool: Pool, labels: list[str], job: dict, plan: Plan, folder: Path) -> dict:
    """One row of the results."""
    row, op, dtype = Layer.from_json(job["layer"]), job["op"], job["dtype"]
    operands = arrays.operands(row, op, dtype)

    def verify(results: dict[str, list[np.ndarray]]) -> dict[str, dict]:
        platforms = run.platforms(pool, results)
        return judge(row, op, dtype, operands, {k: v[0] for k, v in results.items()}, platforms)

    measured = measure(pool, labels, job, operands, verify, plan, folder)
    return {
        "layer": row.name,
        "class": layer.layer_class(row),
        "op": op,
        "dtype": dtype,
        "layout": job["layout"],
        "problem": f"{row.family} {problem.spell(row)}",
        "engines": measured,
    }


def judge(
    row: Layer,
    op: str,
    dtype: str,
    operands: tuple[np.ndarray, np.ndarray],
    results: dict[str, np.ndarray],
    platforms: dict[str, str],
) -> dict[str, dict]:
    """Whether each result is right: against the sum on a sample, then in full against the
    most exact of those that passed."""
    shape = row.result_shape(op)
    notes: dict[str, dict] = {}
    for key, result in results.items():
        if result.shape != shape:
            reason = f"the result has shape {result.shape}, not {shape}"
            notes[key] = {"ok": False, "reason": reason}
            continue
        expected, got = verdicts.sample(row, op, *operands, result)
        notes[key] = verdicts.verdict(expected, got, row.products(op), dtype, platforms[key])
    good = [key for key in results if notes[key]["ok"]]
    if not good:
        return notes
    best = min(good, key=lambda key: notes[key]["error"])
    for key in good:
        against = verdicts.verdict(
            results[best], results[key], row.products(op), dtype, platforms[key], of=best
        )
        if not against["ok"]:
            notes[key] = against
    return notes


def selected(asked: SimpleNamespace) -> list[Layer]:
    """The layers that the flags ask for."""
    try:
        rows = [problem.parse(text, asked.family) for text in asked.problem or ()]
    except problem.ProblemError as error:
        raise SystemExit(str(error)) from None
    for path in asked.problem_file or ():
        try:
            rows += problem.read_file(path, asked.family)
        except OSError as error:
            raise SystemExit(f"--problem-file: {path}: {error.strerror}") from None
    if asked.random:
        each = [random_layers.layers(asked.random, seed, asked.rare) for seed in asked.seed]
        drawn = [layer for layers in each for layer in layers]
        rows += table.sized(drawn, asked.preset)
    if not rows:
        rows = table.layers(asked.preset)
    return [r for r in rows if run.wanted(asked, r.name, r.network, *r.tags)]


def jobs(asked: SimpleNamespace) -> list[dict]:
    """The jobs that the flags ask for."""
    found = list(cases(selected(asked), asked.ops, asked.dtypes, asked.layouts))
    if not found:
        raise SystemExit("--filter leaves no layer")
    return found


def main(argv: Sequence[str]) -> None:
    """Measure what the flags ask for, print a line per row and write the results."""
    new = command("benchmarks.layers", "every layer of the table, through every engine, in turns")
    DEFINE_boolean("summary", False, "end with what benchmarks.summary says", **new.own)
    asked = flags.parse(new, argv)
    labels, plan, todo = asked.engines, run.plan(asked), jobs(asked)
    cpu = asked.preset in ("cpu-small", "tiny")
    with run.open_pool(asked, cpu) as pool, tempfile.TemporaryDirectory() as name:
        folder = Path(name)

        def measured(job: dict) -> dict:
            return run_case(pool, labels, job, plan, folder)

        rows = run.collect(asked, pool, todo, measured, _line, {"preset": asked.preset})
    if asked.summary:
        print(summary({"engines": dict.fromkeys(labels), "rows": rows}), end="")


def _line(row: dict) -> str:
    return f"{row['layer']} {row['op']} {row['dtype']} {row['layout']}: {run.times(row)}"


if __name__ == "__main__":
    flags.run(main)
