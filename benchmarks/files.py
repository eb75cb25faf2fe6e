"""Results as CSV: a commented header that says what ran where, then a line a row.

    # machine: {"cpu": "AMD EPYC", "cores": 2, ...}
    layer,class,problem,op,dtype,layout,jaxconv median_ms,jaxconv min_ms,...
    resnet50-stem,dense 2-D,conv g1mb4...,forward,f32,NXC,12.31,12.1,...

A header line is a name and JSON. Times are rounded to four digits.
"""

import csv
import io
import json
from collections.abc import Callable, Sequence
from pathlib import Path

SCHEMA = 2
ROW = ("layer", "class", "problem", "op", "dtype", "layout")
# Of each engine. `note` has PyTorch's memory format, the least milliseconds in the other format,
# and what is unusual; or, where there is no time, the status and its reason. `rounds_ms` are the
# medians of the rounds, for `compare`.
ENGINE = (
    "median_ms",
    "min_ms",
    "spread",
    "error",
    "compile_s",
    "temp_bytes",
    "note",
    "rounds_ms",
)
FLAGS = ("inexact", "unverified")
REASON = 120  # characters


def write(path: str, results: dict) -> None:
    """Write the results, whole or not at all."""
    save(path, {"schema": SCHEMA} | results, ENGINE, _cells)


def save(path: str, results: dict, columns: Sequence[str], cells: Callable) -> None:
    """Write results whose engines have these columns; `cells` makes them of an engine's entry."""
    labels = list(results["engines"])
    lines = [[*ROW, *(f"{label} {name}" for label in labels for name in columns)]]
    for row in results["rows"]:
        own = row | {"problem": row.get("problem", "").removesuffix(f'n"{row["layer"]}"')}
        of_row = [c for label in labels for c in cells(row["engines"].get(label))]
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


def read(path: str | Path) -> dict:
    """The results that `write` wrote."""
    results = load(path)
    if results.get("schema") != SCHEMA:
        raise SystemExit(f"{path}: not results of schema {SCHEMA}, as benchmarks.layers writes")
    results["rows"] = [_row(cells, results) for cells in results["rows"]]
    return results


def read_folder(folder: Path) -> dict[str, dict]:
    """File name -> results, of all in a folder that `write` wrote."""
    mine = (path for path in sorted(folder.glob("*.csv")) if load(path).get("schema") == SCHEMA)
    return {path.name: read(path) for path in mine}


def load(path: str | Path) -> dict:
    """The header that `save` wrote, and each row's cells by column."""
    lines = Path(path).read_text().splitlines()
    heads = [line[2:].split(": ", 1) for line in lines if line.startswith("# ")]
    rows = csv.DictReader(line for line in lines if not line.startswith("# "))
    return {key: json.loads(value) for key, value in heads} | {"rows": list(rows)}


def _rounded_json(value) -> str:
    text = json.dumps(value, allow_nan=False)
    return json.dumps(json.loads(text, parse_float=lambda x: float(f"{float(x):.4g}")))


def _cells(entry: dict | None) -> list[str]:
    """One engine's cells of a row; all empty if it was not asked."""
    if entry is None:
        return [""] * len(ENGINE)
    if entry["status"] != "ok":
        reason = " ".join(entry.get("reason", "").split())[:REASON]
        return [""] * ENGINE.index("note") + [f"{entry['status']}: {reason}", ""]
    notes = [entry["variant"]] if "variant" in entry else []
    others = entry.get("variants", {}).items()
    notes += [f"{name}={1e3 * s:.4g}" for name, s in others if name != entry["variant"]]
    notes += [flag for flag in FLAGS if entry.get(flag)]
    notes += [f"loss={entry['loss']:.6g}"] if "loss" in entry else []
    error, compile_s = entry.get("error"), entry.get("compile_s")
    return [
        f"{1e3 * entry['median_s']:.4g}",
        f"{1e3 * entry['min_s']:.4g}",
        f"{entry['spread']:.2g}",
        "" if error is None else f"{error:.2g}",
        "" if compile_s is None else f"{compile_s:.2g}",
        str(entry.get("xla_temp_bytes", "")),
        " ".join(notes),
        " ".join(f"{1e3 * s:.4g}" for s in entry["rounds_s"]),
    ]


def _row(cells: dict[str, str], results: dict) -> dict:
    row: dict = {name: cells[name] for name in ROW}
    row["engines"] = {
        label: entry for label in results["engines"] if (entry := _entry(cells, label))
    }
    return row


def _entry(cells: dict[str, str], label: str) -> dict | None:
    """What `_cells` made cells of."""
    cell = {name: cells[f"{label} {name}"] for name in ENGINE}
    if not cell["median_ms"]:
        status, _, reason = cell["note"].partition(": ")
        return {"status": status, "reason": reason} if status else None
    entry: dict = {
        "status": "ok",
        "median_s": float(cell["median_ms"]) / 1e3,
        "min_s": float(cell["min_ms"]) / 1e3,
        "spread": float(cell["spread"]),
        "rounds_s": [float(x) / 1e3 for x in cell["rounds_ms"].split()],
    }
    for name, of, kind in (
        ("error", "error", float),
        ("compile_s", "compile_s", float),
        ("temp_bytes", "xla_temp_bytes", int),
    ):
        if cell[name]:
            entry[of] = kind(cell[name])
    for note in cell["note"].split():
        name, _, value = note.partition("=")
        if name == "loss":
            entry["loss"] = float(value)
        elif value:
            entry["variants"] = {name: float(value) / 1e3, entry["variant"]: entry["min_s"]}
        elif name in FLAGS:
            entry[name] = True
        else:
            entry["variant"] = name
    return entry
