"""`python -m benchmarks.compiled_summary RESULTS.csv`: what compilers make of it, against lax.

A line is a group of rows: all, an op, a class, a type, a layout. Each ratio is over lax's, below 1
is better; figures are the compiler's estimates, not measured times.

    n        rows that the engine and lax both have; some have no cycles: see program_text.py
    cycles   TPU: estimated cycles, geometric mean, worst and best row
    temp     temporary memory, geometric mean and worst row; less than 64 kB count as that
    compile  seconds of compilation, geometric mean
    >lax     rows of more library calls than lax's (GPU)
    naive    convolutions left to loops (GPU)
"""

from collections.abc import Sequence
from pathlib import Path

from benchmarks import files, flags
from benchmarks.rounds import geometric_mean
from benchmarks.summary import grouped

SCHEMA = "compiled 1"
NUMBERS = ("cycles", "most_cycles", "convolutions", "dots", "naive", "loops", "copies")
NUMBERS += ("copy_bytes", "temp_bytes")
COLUMNS = (*NUMBERS, "compile_s", "note")
LITTLE = 1 << 16
TITLES = ("n", "cycles", "worst", "best", "temp", "worst", "compile", ">lax", "naive")


def summary(results: dict) -> str:
    """The table of each engine, and what became of rows without numbers."""
    base = next((label for label in results["engines"] if label.partition("@")[0] == "lax"), None)
    others = [label for label in results["engines"] if label != base]
    if base is None or not others:
        return "a summary needs lax and another engine\n"
    groups, lines = grouped(results["rows"], "op", "class", "class op", "dtype", "layout"), []
    wide = max(map(len, groups))
    for label in others:
        lines += [f"{label} / {base}, {results['platform']} {results['target']}, estimates"]
        lines += [" ".join([" " * wide, *(f"{name:>7}" for name in TITLES)])]
        for name, rows in groups.items():
            cells = held(rows, label, base)
            lines += [" ".join([f"{name:{wide}}", *(f"{cell:>7}" for cell in cells)]).rstrip()]
    for label in results["engines"]:
        ok = [row["engines"].get(label, {"status": ""}) for row in results["rows"]]
        untold = sum(not x["cycles"] for x in ok if x["status"] == "ok")
        if untold and results["platform"] == "tpu":
            lines += [f"{label}: programs without cycles, which no ratio counts: {untold}"]
        entries = [(row, row["engines"].get(label, {"status": "ok"})) for row in results["rows"]]
        lines += [
            f"{label}: {row['layer']} {row['op']}: {entry['status']}: {entry['reason']}"
            for row, entry in entries
            if entry["status"] != "ok"
        ]
    return "\n".join(lines) + "\n"


def held(rows: list[dict], label: str, base: str) -> list[str]:
    """The cells of a line."""
    pairs = [(row["engines"].get(label), row["engines"].get(base)) for row in rows]
    both = [(a, b) for a, b in pairs if a and b and a["status"] == b["status"] == "ok"]
    if not both:
        return ["0"]
    cycles = [a["cycles"] / b["cycles"] for a, b in both if a["cycles"] and b["cycles"]]
    temp = [max(a["temp_bytes"], LITTLE) / max(b["temp_bytes"], LITTLE) for a, b in both]
    seconds = [max(a["compile_s"], 0.01) / max(b["compile_s"], 0.01) for a, b in both]
    counts = sum(_calls(a) > _calls(b) for a, b in both), sum(a["naive"] for a, _ in both)
    of_cycles = [_mean(cycles), *(f"{of(cycles):.3g}" if cycles else "-" for of in (max, min))]
    of_memory = [_mean(temp), f"{max(temp):.3g}", _mean(seconds)]
    return [str(len(both)), *of_cycles, *of_memory, *map(str, counts)]


def _calls(entry: dict) -> int:
    return entry["convolutions"] + entry["dots"]


def _mean(ratios: list[float]) -> str:
    return f"{geometric_mean(ratios):.3f}" if ratios else "-"


def read(path: str | Path) -> dict:
    """The results that `write` wrote."""
    results = files.load(path)
    if results.get("schema") != SCHEMA:
        raise SystemExit(f"{path}: not results of schema {SCHEMA!r}, as benchmarks.compiled writes")
    for row in results["rows"]:
        cells = {label: _entry(row, label) for label in results["engines"]}
        row["engines"] = {label: entry for label, entry in cells.items() if entry}
    return results


def write(path: str, results: dict) -> None:
    """Write the results, whole or not at all."""
    files.save(path, results, COLUMNS, _cells)


def _cells(entry: dict | None) -> list[str]:
    if entry is None:
        return [""] * len(COLUMNS)
    if entry["status"] != "ok":
        reason = " ".join(entry["reason"].split())[: files.REASON]
        return [""] * (len(COLUMNS) - 1) + [f"{entry['status']}: {reason}"]
    return [*(str(entry[name]) for name in NUMBERS), f"{entry['compile_s']:.2g}", ""]


def _entry(cells: dict[str, str], label: str) -> dict | None:
    own = {name: cells.pop(f"{label} {name}") for name in COLUMNS}
    if own["note"]:
        status, _, reason = own["note"].partition(": ")
        return {"status": status, "reason": reason}
    if not own["cycles"]:
        return None
    numbers = {name: int(own[name]) for name in NUMBERS}
    return {"status": "ok", "compile_s": float(own["compile_s"])} | numbers


def main(argv: Sequence[str]) -> None:
    """Print the tables of a results file."""
    told = "What compilers make of layers, against lax."
    asked = flags.Command("benchmarks.compiled_summary", told, "RESULTS.csv").read(argv)
    print(summary(read(asked.operands[0])), end="")


if __name__ == "__main__":
    flags.run(main)
