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
from typing import Any

SCHEMA, COMPILED = 2, "compiled 1"
ROW = ("layer", "class", "problem", "op", "dtype", "layout")
#: The integers that `compiled` has of a program.
NUMBERS = ("cycles", "most_cycles", "convolutions", "dots", "naive", "loops", "copies")
NUMBERS += ("copy_bytes", "temp_bytes")
TIMES = ("median_ms", "min_ms")

#: By schema, the columns of an engine. Entries have the same names, but for `note`: see `_note`.
COLUMNS = {
    SCHEMA: (*TIMES, "spread", "error", "compile_s", "temp_bytes", "note", "rounds_ms"),
    COMPILED: (*NUMBERS, "compile_s", "note"),
}
FLAGS = ("inexact", "unverified")
REASON = 120  # characters


def write(path: str, results: dict) -> None:
    """Write the header and the rows, whole or not at all."""
    results = {"schema": SCHEMA} | results
    rows, columns = results["rows"], COLUMNS.get(results["schema"])
    if columns:
        rows = [_flat(row, results["engines"], columns) for row in rows]
    text = io.StringIO()
    for key, value in results.items():
        if key != "rows":
            text.write(f"# {key}: {_rounded_json(value)}\n")
    table = csv.DictWriter(text, list(rows[0]), lineterminator="\n")
    table.writeheader()
    table.writerows(rows)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    partial = Path(f"{path}.partial")
    partial.write_text(text.getvalue())
    partial.replace(path)


def read(path: str | Path, *schemas: object) -> dict:
    """The header of a file and its rows; of these schemas alone, if there are any."""
    try:
        lines = Path(path).read_text().splitlines()
    except OSError as error:
        raise SystemExit(f"{path}: {error.strerror}") from None
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


def _flat(row: dict, labels: Sequence[str], columns: Sequence[str]) -> dict[str, str]:
    """A row's cells by title; all of an engine's are empty if it was not asked."""
    own = row | {"problem": row.get("problem", "").removesuffix(f'n"{row["layer"]}"')}
    flat = {name: own[name] for name in ROW}
    for label in labels:
        entry = row["engines"].get(label)
        numbers = entry if entry and entry["status"] == "ok" else {}
        cells = {name: _text(name, numbers.get(name)) for name in columns}
        cells["note"] = _note(entry) if entry else ""
        flat |= {f"{label} {name}": cell for name, cell in cells.items()}
    return flat


def _text(name: str, value: Any) -> str:
    if value is None:
        return ""
    if name == "rounds_ms":
        return " ".join(f"{x:.4g}" for x in value)
    return str(value) if isinstance(value, int) else f"{value:.{4 if name.endswith('_ms') else 2}g}"


def _number(name: str, text: str) -> Any:
    """What `_text` wrote."""
    if name == "rounds_ms":
        return [*map(float, text.split())]
    return int(text) if name in NUMBERS else float(text)


def _note(entry: dict) -> str:
    """PyTorch's memory format, the least milliseconds in the other one, and what is unusual.

    Where there are no numbers, the status and its reason.
    """
    if entry["status"] != "ok":
        return f"{entry['status']}: {' '.join(entry.get('reason', '').split())[:REASON]}"
    notes = [entry["variant"]] if "variant" in entry else []
    others = entry.get("variants", {}).items()
    notes += [f"{name}={ms:.4g}" for name, ms in others if name != entry["variant"]]
    notes += [flag for flag in FLAGS if entry.get(flag)]
    notes += [f"loss={entry['loss']:.6g}"] if "loss" in entry else []
    return " ".join(notes)


def _row(cells: dict[str, str], labels: Sequence[str], columns: Sequence[str]) -> dict:
    entries = {label: _entry(cells, label, columns) for label in labels}
    engines = {label: entry for label, entry in entries.items() if entry}
    return {name: cells[name] for name in ROW} | {"engines": engines}


def _entry(cells: dict[str, str], label: str, columns: Sequence[str]) -> dict | None:
    """What `_flat` made cells of."""
    texts = {name: cells[f"{label} {name}"] for name in columns}
    note = texts.pop("note")
    entry = {name: _number(name, text) for name, text in texts.items() if text}
    if not entry:
        status, _, reason = note.partition(": ")
        return {"status": status, "reason": reason} if status else None
    for word in note.split():
        name, _, value = word.partition("=")
        if name == "loss":
            entry["loss"] = float(value)
        elif value:
            entry["variants"] = {name: float(value), entry["variant"]: entry["min_ms"]}
        elif name in FLAGS:
            entry[name] = True
        else:
            entry["variant"] = name
    return {"status": "ok"} | entry
