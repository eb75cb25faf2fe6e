"""`python -m benchmarks.layers`: every layer of the table, through every engine, in turns."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import chain, product
from types import SimpleNamespace

import numpy as np
from absl.flags import DEFINE_boolean, DEFINE_enum, DEFINE_integer, DEFINE_multi_string

from benchmarks import arrays, flags, layer, problem, random_layers, run, table, verdicts
from benchmarks.layer import Layer
from benchmarks.summary import summary

# About 2 minutes on 2 cores for 20 random layers and the three ops.
QUICK = {"engines": "jaxconv,lax,torch", "repeats": 3, "burst": 0.015, "turns": 0.9, "cap": 10.0}
ENSEMBLES = {"engines": "lax,lax+install,lax:loop+install,torch"}


def command() -> flags.Command:
    """The command's flags."""
    new = flags.measuring("benchmarks.layers", "layers through every engine, in turns")
    define_rows(new)
    own = new.own
    many = f"so many random ensembles; other defaults: {_spelled(ENSEMBLES)}"
    DEFINE_integer("ensembles", 0, many, lower_bound=0, **own)
    DEFINE_boolean("quick", False, f"other defaults: {_spelled(QUICK)}", **own)
    DEFINE_boolean("summary", False, "end with what benchmarks.summary says", **own)
    new.presets |= {"quick": QUICK, "ensembles": ENSEMBLES}
    return new


def _spelled(defaults: dict[str, object]) -> str:
    return " ".join(f"--{flag}={value}" for flag, value in defaults.items())


def define_rows(new: flags.Command) -> None:
    """The flags that choose layers, ops and layouts."""
    own = new.own
    DEFINE_enum("preset", "cpu-small", table.PRESETS, "sizes of the layers", **own)
    DEFINE_multi_string("problem", None, "a descriptor; instead of the table", **own)
    DEFINE_enum("family", "conv", layer.FAMILIES, "what --problem means", **own)
    many = "so many random layers; instead of the table"
    DEFINE_integer("random", 0, many, lower_bound=0, **own)
    flags.define_several(new, "seed", "0", "of what is random; several: 1,2,3", int)
    DEFINE_boolean("rare", False, "--random draws kinds that are rare, and slow somewhere", **own)
    ops = "forward, data (gradient), weights (gradient)"
    flags.define_list(new, "ops", ",".join(layer.OPS), layer.OPS, ops)
    layouts = "NXC, NCX; PyTorch always has both its own"
    flags.define_list(new, "layouts", "NXC", layer.LAYOUTS, layouts)


def judge(
    job: dict,
    operands: Sequence[np.ndarray],
    results: dict[str, list[np.ndarray]],
    platforms: dict[str, str],
) -> dict[str, dict]:
    """Whether each result is right: against the sum on a sample, then in full against the
    most exact of those that passed. Of an ensemble, whether its worst member is."""
    row, op, dtype = job["layer"], job["op"], job["dtype"]
    results = {key: result for key, [result] in results.items()}
    if row.members == 1:
        return _judge(row, op, dtype, operands, results, platforms)
    one, notes = replace(row, members=1), []
    for m in range(row.members):
        own = {key: result[m] for key, result in results.items()}
        notes.append(_judge(one, op, dtype, [x[m] for x in operands], own, platforms))
    return {key: max((of[key] for of in notes), key=_badness) for key in results}


def _judge(
    row: Layer, op: str, dtype: str, operands: Sequence[np.ndarray], results: dict, platforms: dict
) -> dict[str, dict]:
    *_, slot = row.slots(op)
    shape, terms = row.shapes[slot], row.terms(slot)
    expected = verdicts.sample(row, op, *operands) if results else None
    notes: dict[str, dict] = {}
    for key, result in results.items():
        if result.shape != shape:
            reason = f"the result has shape {result.shape}, not {shape}"
            notes[key] = {"ok": False, "reason": reason}
            continue
        got = result[tuple(map(slice, expected.shape))]
        notes[key] = verdicts.verdict(expected, got, terms, dtype, platforms[key])
    good = [key for key in results if notes[key]["ok"]]
    best = min(good, key=lambda key: notes[key]["error"], default=None)
    for key in good:
        pair = results[best], results[key]
        against = verdicts.verdict(*pair, terms, dtype, platforms[key], of=best)
        if not against["ok"]:
            notes[key] = against
    return notes


def _badness(note: dict) -> tuple:
    return not note["ok"], note.get("error") or 0.0


def selected(asked: SimpleNamespace) -> list[Layer]:
    """The layers that the flags of `define_rows` ask for."""
    try:
        rows = [problem.parse(text, asked.family) for text in asked.problem or ()]
    except problem.ProblemError as error:
        raise SystemExit(str(error)) from None
    if asked.random:
        drawn = (random_layers.layers(asked.random, seed, asked.rare) for seed in asked.seed)
        rows += table.sized(list(chain(*drawn)), asked.preset)
    return rows or table.layers(asked.preset)


def jobs(asked: SimpleNamespace, layers: Sequence[Layer] | None = None) -> list[dict]:
    """A job for each of the layers, and each type, layout and op that the flags ask for."""
    rows = selected(asked) if layers is None else layers
    kept = [row for row in rows if run.wanted(asked, row.name, row.network, *row.tags)]
    return [
        {"kind": "layer", "layer": row, "op": op, "dtype": dtype, "layout": layout}
        for row, dtype, layout, op in product(kept, asked.dtypes, asked.layouts, asked.ops)
    ]


def describe(job: dict) -> dict:
    """The columns of a job's row."""
    row = job["layer"]
    columns = {"layer": row.name, "class": layer.layer_class(row), "problem": problem.cell(row)}
    return columns | {name: job[name] for name in ("op", "dtype", "layout")}


def main(argv: Sequence[str]) -> None:
    """Measure what the flags ask for, print a line per row and write the results."""
    asked = flags.parse(command(), argv)
    ensembles = [x for seed in asked.seed for x in random_layers.ensembles(asked.ensembles, seed)]

    def draw(job: dict) -> tuple[np.ndarray, ...]:
        return arrays.operands(job["layer"], job["op"], job["dtype"])

    if asked.preset in ("cpu-small", "tiny"):
        asked.device = "cpu"
    todo = jobs(asked, ensembles or None)
    results = run.collect(asked, todo, draw, judge, describe, preset=asked.preset)
    if asked.summary:
        print(summary(results), end="")


if __name__ == "__main__":
    flags.run(main)
