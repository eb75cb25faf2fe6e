"""Results as CSV: a commented header that says what ran where, then a line a row.

    # schema: 2
    # machine: {"cpu": "AMD EPYC", "cores": 2, ...}
    layer,class,problem,op,dtype,layout,jaxconv median_ms,jaxconv min_ms,...
    resnet50-stem,dense 2-D,conv g1mb4...,forward,f32,NXC,12.31,12.1,...

A header line is a name and JSON. The schema says which columns each engine has; a file of another
schema has rows without engines, as they stand there.
"""

import csv
import io
import json
from collections.abc import Sequence
from pathlib import Path

SCHEMA, COMPILED = 2, "compiled 1"
ROW = ("layer", "class", "problem", "op", "dtype", "layout")
#: The integers that `compiled` has of a program.
NUMBERS = ("cycles", "most_cycles", "convolutions", "dots", "naive", "loops", "copies")
NUMBERS += ("copy_bytes", "temp_bytes")


def _milliseconds(seconds: float) -> str:
    return f"{1e3 * seconds:.4g}"


def _seconds(text: str) -> float:
    return float(text) / 1e3


_TIME, _COUNT = (_milliseconds, _seconds), (str, int)
_SHORT = (lambda x: f"{x:.2g}", float)
_TIMES = (lambda x: " ".join(map(_milliseconds, x)), lambda x: [*map(_seconds, x.split())])
#: By schema, the columns of an engine: what an entry calls it, how it is written, and read.
#: `note` is of several things: see `_note`. `rounds_ms` has the medians of the rounds.
COLUMNS = {
    SCHEMA: {
        "median_ms": ("median_s", *_TIME),
        "min_ms": ("min_s", *_TIME),
        "spread": ("spread", *_SHORT),
        "error": ("error", *_SHORT),
        "compile_s": ("compile_s", *_SHORT),
        "temp_bytes": ("xla_temp_bytes", *_COUNT),
        "note": None,
        "rounds_ms": ("rounds_s", *_TIMES),
    },
    COMPILED: {name: (name, *_COUNT) for name in NUMBERS}
    | {"compile_s": ("compile_s", *_SHORT), "note": None},
}
FLAGS = ("inexact", "unverified")
REASON = 120  # characters


def write(path: str, results: dict) -> None:
    """Write the results, whole or not at all."""
    results = {"schema": SCHEMA} | results
    columns, labels = COLUMNS[results["schema"]], list(results["engines"])
    lines = [[*ROW, *(f"{label} {name}" for label in labels for name in columns)]]
    for row in results["rows"]:
        own = row | {"problem": row.get("problem", "").removesuffix(f'n"{row["layer"]}"')}
        of_row = [c for label in labels for c in _cells(row["engines"].get(label), columns)]
        lines.append([*(own[name] for name in ROW), *of_row])
    save_table(path, results, lines)


def save_table(path: str, header: dict, lines: Sequence[Sequence]) -> None:
    """Write what a header says but for its rows, and a table whose first line has the titles."""
    text = io.StringIO()
    for key, value in header.items():
        if key != "rows":
            text.write(f"# {key}: {_rounded_json(value)}\n")
    csv.writer(text, lineterminator="\n").writerows(lines)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    partial = Path(f"{path}.partial")
    partial.write_text(text.getvalue())
    partial.replace(path)


def read(path: str | Path, *schemas: object) -> dict:
    """The header of a file and its rows; of these schemas alone, if there are any."""
    lines = Path(path).read_text().splitlines()
    heads = [line[2:].split(": ", 1) for line in lines if line.startswith("# ")]
    results = {key: json.loads(value) for key, value in heads}
    schema = results.get("schema")
    if schemas and schema not in schemas:
        wanted = " or ".join(map(repr, schemas))
        raise SystemExit(f"{path}: not results of schema {wanted}, but of {schema!r}")
    rows = list(csv.DictReader(line for line in lines if not line.startswith("# ")))
    if schema in COLUMNS:
        rows = [_row(cells, results["engines"], COLUMNS[schema]) for cells in rows]
    return results | {"rows": rows}


def read_folder(folder: Path) -> dict[str, dict]:
    """File name -> results, of all in a folder that have engines' times."""
    every = {path.name: read(path) for path in sorted(folder.glob("*.csv"))}
    return {name: results for name, results in every.items() if results.get("schema") == SCHEMA}


def _rounded_json(value) -> str:
    text = json.dumps(value, allow_nan=False)
    return json.dumps(json.loads(text, parse_float=lambda x: float(f"{float(x):.4g}")))


def _cells(entry: dict | None, columns: dict) -> list[str]:
    """One engine's cells of a row; all empty if it was not asked."""
    if entry is None:
        return [""] * len(columns)
    cells = dict.fromkeys(columns, "")
    for title, column in columns.items():
        if column and entry.get(column[0]) is not None and entry["status"] == "ok":
            cells[title] = column[1](entry[column[0]])
    return list((cells | {"note": _note(entry)}).values())


def _note(entry: dict) -> str:
    """PyTorch's memory format, the least milliseconds in the other one, and what is unusual.

    Where there are no numbers, the status and its reason.
    """
    if entry["status"] != "ok":
        return f"{entry['status']}: {' '.join(entry.get('reason', '').split())[:REASON]}"
    notes = [entry["variant"]] if "variant" in entry else []
    others = entry.get("variants", {}).items()
    notes += [f"{name}={_milliseconds(s)}" for name, s in others if name != entry["variant"]]
    notes += [flag for flag in FLAGS if entry.get(flag)]
    notes += [f"loss={entry['loss']:.6g}"] if "loss" in entry else []
    return " ".join(notes)


def _row(cells: dict[str, str], labels: Sequence[str], columns: dict) -> dict:
    entries = {label: _entry(cells, label, columns) for label in labels}
    engines = {label: entry for label, entry in entries.items() if entry}
    return {name: cells[name] for name in ROW} | {"engines": engines}


def _entry(cells: dict[str, str], label: str, columns: dict) -> dict | None:
    """What `_cells` made cells of."""
    entry: dict = {}
    for title, column in columns.items():
        if column and (text := cells[f"{label} {title}"]):
            entry[column[0]] = column[2](text)
    note = cells[f"{label} note"]
    if not entry:
        status, _, reason = note.partition(": ")
        return {"status": status, "reason": reason} if status else None
    for word in note.split():
        name, _, value = word.partition("=")
        if name == "loss":
            entry["loss"] = float(value)
        elif value:
            entry["variants"] = {name: _seconds(value), entry["variant"]: entry["min_s"]}
        elif name in FLAGS:
            entry[name] = True
        else:
            entry["variant"] = name
    return {"status": "ok"} | entry
