"""`python -m benchmarks.summary RESULTS.csv`: every engine against PyTorch and lax, side by side.

PyTorch's time is that of the faster of its two memory formats, and of the fastest of its engines if
there are several. Each line is a group of rows: all, an op, a class, a seed of random layers, a
network that infers. The columns of an engine are

    n       rows that it and PyTorch both have a time for
    mean    its time over PyTorch's, geometric mean
    most    the largest such ratio
    >4      rows that take more than 4 times PyTorch's time
    >lax    rows that take more than 1.15 of lax's time
    <torch  rows that take less than PyTorch's time

Below the table, an engine of XLA's has a line about temporary memory: how many rows need more than
the larger of 32 MiB and twice the bytes of their operands, and which row needs the most.

Of results of `benchmarks.compiled`, each ratio is over lax's, and a compiler's estimate:

    n        rows that the engine and lax both have; some have no cycles: see program_text.py
    cycles   TPU: estimated cycles, geometric mean, worst and best row
    temp     temporary memory, geometric mean and worst row; less than 64 kB count as that
    compile  seconds of compilation, geometric mean
    >lax     rows of more library calls than lax's (GPU)
    naive    convolutions left to loops (GPU)
"""

import math
import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Sequence

from benchmarks import files, flags, problem
from benchmarks.layer import ITEMSIZE

FAR, SLOWER = 4.0, 1.15
MUCH_MEMORY_BYTES = 32 << 20
LITTLE = 1 << 16
WIDTH = 7

Cells = dict[str, float | None]  # by the name of a column


def summary(results: dict) -> str:
    """The table, and what became of rows without numbers."""
    of_compilers = results.get("schema") == files.COMPILED
    return "\n".join(_compiled(results) if of_compilers else _timed(results)) + "\n"


def _timed(results: dict) -> list[str]:
    rows, engines = results["rows"], compared(results)
    if not engines:
        return ["a summary needs torch and another engine"]
    groups = grouped(rows, "op", "class", "dtype", "layout", _origin)
    table = {name: [held(group, e) for e in engines] for name, group in groups.items()}
    if seeds := [cells for name, cells in table.items() if name.startswith("seed ")]:
        table["median of seeds"] = [_medians(several) for several in zip(*seeds, strict=True)]
    shown = {
        n: [{k: _digits(x) for k, x in c.items()} for c in cells] for n, cells in table.items()
    }
    lines = side_by_side(engines, shown)
    lines += [line for engine in engines for line in _memory(rows, engine)]
    return lines + _without(rows, list(results["engines"]), ["wrong"])


def _compiled(results: dict) -> list[str]:
    rows, labels = results["rows"], list(results["engines"])
    base = next((label for label in labels if label.partition("@")[0] == "lax"), None)
    others = [label for label in labels if label != base]
    if base is None or not others:
        return ["a summary needs lax and another engine"]
    groups = grouped(rows, "op", "class", "class op", "dtype", "layout")
    table = {name: [estimates(own, e, base) for e in others] for name, own in groups.items()}
    titles = [f"{e} / {base}, {results['platform']} {results['target']}, estimates" for e in others]
    lines = side_by_side(titles, table)
    for label in labels if results["platform"] == "tpu" else ():
        entries = [row["engines"].get(label, {}) for row in rows]
        untold = sum(not x["cycles"] for x in entries if x.get("status") == "ok")
        if untold:
            lines += [f"{label}: programs without cycles, which no ratio counts: {untold}"]
    return lines + _without(rows, labels, ["wrong", "capped", "failed", "unsupported"])


def side_by_side(titles: Sequence[str], table: dict[str, list[dict[str, str]]]) -> list[str]:
    """Lines of a table: by the name of a line, what each title has in each of its columns."""
    columns = [dict.fromkeys(cells, "") for cells in next(iter(table.values()))]
    heads = [" ".join(f"{name:>{WIDTH}}" for name in own) for own in columns]
    wide = max(map(len, table))
    above = (f"{title:^{len(head)}}" for title, head in zip(titles, heads, strict=True))
    lines = [[" " * wide, *above], [" " * wide, *heads]]
    for name, several in table.items():
        shown = (" ".join(f"{cell:>{WIDTH}}" for cell in cells.values()) for cells in several)
        lines.append([f"{name:{wide}}", *shown])
    return [" | ".join(line).rstrip() for line in lines]


def compared(results: dict) -> list[str]:
    """The engines that are held against PyTorch, if it is there: its own too, if it has several."""
    labels = list(results["engines"])
    count = sum(map(is_torch, labels))
    return [label for label in labels if count > 1 or not is_torch(label)] if count else []


def is_torch(engine: str) -> bool:
    """Whether an engine's label is one of PyTorch's."""
    return engine.startswith("torch")


def held(rows: list[dict], engine: str) -> Cells:
    """An engine held against PyTorch and lax over some rows: the columns above.

    lax is the one with the same tag, if there is one.
    """
    _, at, tag = engine.partition("@")
    against = f"lax{at}{tag}"
    if not any(against in row["engines"] for row in rows):
        against = "lax"
    times = [(time_of(row, engine), _torch_time(row), time_of(row, against)) for row in rows]
    ratios = [own / torch for own, torch, _ in times if own and torch]
    lax = [own > SLOWER * other for own, _, other in times if own and other]
    return {
        "n": len(ratios),
        "mean": geometric_mean(ratios) if ratios else None,
        "most": max(ratios, default=None),
        ">4": sum(ratio > FAR for ratio in ratios),
        ">lax": None if engine == against or not lax else sum(lax),
        "<torch": sum(ratio < 1 for ratio in ratios),
    }


def time_of(row: dict, engine: str) -> float | None:
    """Milliseconds of the engine's fastest call in a row: what else runs on a machine only adds."""
    return row["engines"].get(engine, {}).get("min_ms")


def _torch_time(row: dict) -> float | None:
    times = [time_of(row, engine) for engine in row["engines"] if is_torch(engine)]
    return min((ms for ms in times if ms), default=None)


def estimates(rows: list[dict], label: str, base: str) -> dict[str, str]:
    """The columns of an engine's line in a table of a compiler's estimates."""
    pairs = [(row["engines"].get(label), row["engines"].get(base)) for row in rows]
    both = [(a, b) for a, b in pairs if a and b and a["status"] == b["status"] == "ok"]
    cycles = [a["cycles"] / b["cycles"] for a, b in both if a["cycles"] and b["cycles"]]
    temp = [max(a["temp_bytes"], LITTLE) / max(b["temp_bytes"], LITTLE) for a, b in both]
    seconds = [max(a["compile_s"], 0.01) / max(b["compile_s"], 0.01) for a, b in both]
    mean, worst, best = _spread(cycles)
    memory, most, _ = _spread(temp)
    return {
        "n": str(len(both)),
        "cycles": mean,
        "worst": worst,
        "best": best,
        "temp": memory,
        "most": most,
        "compile": _spread(seconds)[0],
        ">lax": str(sum(_calls(a) > _calls(b) for a, b in both)),
        "naive": str(sum(a["naive"] for a, _ in both)),
    }


def _calls(entry: dict) -> int:
    return entry["convolutions"] + entry["dots"]


def _spread(ratios: list[float]) -> tuple[str, str, str]:
    """Mean, largest and smallest."""
    if not ratios:
        return "-", "-", "-"
    return f"{geometric_mean(ratios):.3f}", f"{max(ratios):.3g}", f"{min(ratios):.3g}"


def geometric_mean(values: Sequence[float]) -> float:
    """exp of the mean logarithm."""
    return math.exp(statistics.fmean(map(math.log, values)))


def grouped(rows: list[dict], *properties: str | Callable[[dict], str]) -> dict[str, list[dict]]:
    """The rows by the name of a line; a property that all rows share makes no line.

    A property is names of columns, or a function.
    """
    groups = {"all": rows}
    for of in properties:
        names = [of(x) if callable(of) else " ".join(x[n] for n in of.split()) for x in rows]
        if len(set(names)) > 1:
            for name, row in zip(names, rows, strict=True):
                groups.setdefault(name, []).append(row)
    return groups


def _origin(row: dict) -> str:
    """The seed that a random layer's name begins with, or the network that infers."""
    if row["op"] == "inference":
        return row["layer"].partition(",")[0]
    found = re.match(r"(?:r|rare)(\d+)-\d+ ", row["layer"])
    return f"seed {found[1]}" if found else "no seed"


def _medians(several: Sequence[Cells]) -> Cells:
    columns = {name: [cells[name] for cells in several] for name in several[0]}
    known = {name: [x for x in own if x is not None] for name, own in columns.items()}
    return {name: statistics.median(own) if own else None for name, own in known.items()}


def _memory(rows: list[dict], engine: str) -> Iterator[str]:
    """Yield a line about temporary memory, if the engine's rows are layers that have it."""
    known = [(row, row["engines"].get(engine, {}).get("temp_bytes")) for row in rows]
    layers = [(row, temp) for row, temp in known if temp is not None and row.get("problem")]
    shares = [(temp / _memory_limit(row), temp, row) for row, temp in layers]
    if not shares:
        return
    many = sum(share > 1 for share, *_ in shares)
    share, temp, row = max(shares, key=lambda x: x[0])
    yield (
        f"{engine}: {many} of {len(shares)} rows ({many / len(shares):.1%}) need more temporary "
        f"memory than 32 MiB and twice their operands; the most, {share:.2f} times that, "
        f"{temp / 2**20:.1f} MiB: {row['layer']} {row['op']}"
    )


def _memory_limit(row: dict) -> int:
    """Compute the larger of 32 MiB and twice the bytes of a row's operands."""
    numbers = problem.operand_count(row["problem"], row["op"])
    return max(2 * ITEMSIZE[row["dtype"]] * numbers, MUCH_MEMORY_BYTES)


def _without(rows: list[dict], engines: list[str], named: Sequence[str]) -> list[str]:
    """A line for each engine and status other than ok; rows of some are named one by one."""
    lines = []
    for engine in engines:
        entries = [(row, row["engines"].get(engine, {"status": "not run"})) for row in rows]
        counts = Counter(entry["status"] for _, entry in entries if entry["status"] != "ok")
        lines += [f"{engine}: {n} rows {status}" for status, n in counts.items()]
        lines += [
            f"  {row['layer']} {row['op']}: {entry.get('reason', '')}"
            for row, entry in entries
            if entry["status"] in named
        ]
    return lines


def _digits(x: float | None) -> str:
    if x is None:
        return "-"
    return f"{x:g}" if isinstance(x, int) or x == int(x) else f"{x:.2f}"


def main(argv: Sequence[str]) -> None:
    """Print the table of a results file."""
    what = "every engine against PyTorch and lax; of results of compilers, against lax"
    [path] = flags.Command("benchmarks.summary", what, "RESULTS.csv").read(argv).operands
    print(summary(files.read(path, files.SCHEMA, files.COMPILED)), end="")


if __name__ == "__main__":
    flags.run(main)
