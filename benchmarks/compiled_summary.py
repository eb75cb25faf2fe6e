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

from collections.abc import Callable, Sequence

from benchmarks import flags
from benchmarks.rounds import geometric_mean

LITTLE = 1 << 16
COLUMNS = ("n", "cycles", "worst", "best", "temp", "worst", "compile", ">lax", "naive")


def summary(results: dict) -> str:
    """The table of each engine, and what became of rows without numbers."""
    base = next((label for label in results["engines"] if label.partition("@")[0] == "lax"), None)
    others = [label for label in results["engines"] if label != base]
    if base is None or not others:
        return "a summary needs lax and another engine\n"
    groups, lines = _groups(results["rows"]), []
    wide = max(map(len, groups))
    for label in others:
        lines += [f"{label} / {base}, {results['platform']} {results['target']}, estimates"]
        lines += [" ".join([" " * wide, *(f"{name:>7}" for name in COLUMNS)])]
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


def _groups(rows: list[dict]) -> dict[str, list[dict]]:
    """The rows by the name of a line; a property that all rows share makes no line."""
    groups = {"all": rows}
    properties: tuple[Callable[[dict], str], ...] = (
        lambda row: row["op"],
        lambda row: row["class"],
        lambda row: f"{row['class']} {row['op']}",
        lambda row: row["dtype"],
        lambda row: row["layout"],
    )
    for of in properties:
        values = list(dict.fromkeys(map(of, rows)))
        if len(values) > 1:
            groups |= {v: [row for row in rows if of(row) == v] for v in values}
    return groups


def main(argv: Sequence[str]) -> None:
    """Print the tables of a results file."""
    from benchmarks import compiled

    told = "What compilers make of layers, against lax."
    asked = flags.Command("benchmarks.compiled_summary", told, "RESULTS.csv").read(argv)
    print(summary(compiled.read(asked.operands[0])), end="")


if __name__ == "__main__":
    flags.run(main)
