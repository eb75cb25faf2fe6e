"""`python -m benchmarks.layers`: every layer of the table, through every engine, in turns."""

import tempfile
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path

import numpy as np
from absl import app, flags

from benchmarks import arrays, layer, machine, oracle, problem, random_layers, roofline, run, table
from benchmarks.layer import Layer
from benchmarks.pool import Pool
from benchmarks.rounds import Plan, measure
from benchmarks.summary import summary

# About 3 minutes on 2 cores for 20 random layers and the three ops.
QUICK = {"engines": "jaxconv,lax,torch", "repeats": 3, "burst": 0.015, "once": 0.3, "cap": 10.0}

_PRESET = flags.DEFINE_enum("preset", "cpu-small", table.PRESETS, "sizes of the table's layers")
_PROBLEM = flags.DEFINE_multi_string("problem", [], "a descriptor; instead of the table")
_PROBLEM_FILE = flags.DEFINE_multi_string("problem-file", [], "a list of them")
_RANDOM = flags.DEFINE_integer("random", 0, "so many layers drawn at random; instead of the table")
_SEED = flags.DEFINE_list("seed", ["0"], "of --random; several are all drawn: 1,2,3")
_SUMMARY = flags.DEFINE_bool("summary", False, "end with what benchmarks.summary says")
_QUICK = flags.DEFINE_bool(
    "quick", False, f"{' '.join(f'--{k} {v}' for k, v in QUICK.items())} unless given"
)
_FAMILY = flags.DEFINE_enum("family", "conv", layer.FAMILIES, "what --problem means")
_OPS = flags.DEFINE_list("ops", list(layer.OPS), "forward, data (gradient), weights (gradient)")
_LAYOUTS = flags.DEFINE_list("layouts", ["NXC"], "NXC, NCX; PyTorch always has both its own")


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
    """Whether each result is right: against the oracle on a sample, then in full against the
    most exact of those that passed."""
    shape = row.result_shape(op)
    notes: dict[str, dict] = {}
    for key, result in results.items():
        if result.shape != shape:
            reason = f"the result has shape {result.shape}, not {shape}"
            notes[key] = {"ok": False, "reason": reason}
            continue
        expected, got = oracle.sample(row, op, *operands, result)
        notes[key] = oracle.verdict(expected, got, row.terms(op), dtype, platforms[key])
    good = [key for key in results if notes[key]["ok"]]
    if not good:
        return notes
    best = min(good, key=lambda key: notes[key]["error"])
    for key in good:
        against = oracle.verdict(
            results[best], results[key], row.terms(op), dtype, platforms[key], of=best
        )
        if not against["ok"]:
            notes[key] = against
    return notes


def selected() -> list[Layer]:
    """The layers that the flags ask for."""
    try:
        rows = [problem.parse(text, _FAMILY.value) for text in _PROBLEM.value]
    except problem.ProblemError as error:
        raise SystemExit(str(error)) from None
    for path in _PROBLEM_FILE.value:
        try:
            rows += problem.read_file(path, _FAMILY.value)
        except OSError as error:
            raise app.UsageError(f"--problem-file: {path}: {error.strerror}") from None
    if _RANDOM.value:
        drawn = [x for seed in _seeds() for x in random_layers.layers(_RANDOM.value, seed)]
        rows += table.sized(drawn, _PRESET.value)
    if not rows:
        rows = table.layers(_PRESET.value)
    return [r for r in rows if run.wanted(r.name, r.network, *r.tags)]


def _seeds() -> list[int]:
    try:
        return [int(seed) for seed in _SEED.value]
    except ValueError:
        raise app.UsageError(f"--seed: {','.join(_SEED.value)}; expected integers") from None


def jobs() -> list[dict]:
    """The jobs that the flags ask for."""
    run.check("ops", _OPS.value, layer.OPS)
    run.check("layouts", _LAYOUTS.value, layer.LAYOUTS)
    found = list(cases(selected(), _OPS.value, run.dtypes(), _LAYOUTS.value))
    if not found:
        raise app.UsageError("--filter leaves no layer")
    return found


def main(argv: list[str]) -> None:
    """Measure what the flags ask for, print a line per row and write the results."""
    run.no_arguments(argv)
    if _QUICK.value:
        for name, value in QUICK.items():
            if not flags.FLAGS[name].present:
                flags.FLAGS[name].value = value.split(",") if name == "engines" else value
    labels, dtypes, plan, todo = run.labels(), run.dtypes(), run.plan(), jobs()
    cpu = _PRESET.value in ("cpu-small", "tiny")
    with run.open_pool(cpu) as pool, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        size = "tiny" if _PRESET.value == "tiny" else "cpu" if pool.on_cpu() else "accelerator"
        roof = roofline.calibrate(pool, labels, dtypes, size, machine.cores(), folder)

        def measured(job: dict) -> dict:
            return run_case(pool, labels, job, plan, folder)

        extra = {"preset": _PRESET.value, "roofline": roof}
        rows = run.collect(pool, todo, measured, _line, extra)
    if _SUMMARY.value:
        print(summary({"engines": dict.fromkeys(labels), "rows": rows}), end="")


def _line(row: dict) -> str:
    return f"{row['layer']} {row['op']} {row['dtype']} {row['layout']}: {run.times(row)}"


if __name__ == "__main__":
    app.run(main)
