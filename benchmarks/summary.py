"""`python -m benchmarks.summary RESULTS.csv`: every engine against PyTorch and lax, side by side.

PyTorch's time is that of the faster of its two memory formats. Each line is a group of rows:
all, an op, a class, a seed of random layers. The columns of an engine are

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

import re
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass

from benchmarks import files, flags, problem
from benchmarks.layer import ITEMSIZE
from benchmarks.rounds import geometric_mean

FAR, SLOWER = 4.0, 1.15
MUCH_MEMORY_BYTES = 32 << 20
COLUMNS = ("n", "mean", "most", ">4", ">lax", "<torch")
ESTIMATES = ("n", "cycles", "worst", "best", "temp", "worst", "compile", ">lax", "naive")
LITTLE = 1 << 16
WIDTH = 7

Number = float | None


@dataclass(frozen=True)
class Held:
    """An engine held against PyTorch and lax over some rows: the columns above."""

    n: Number
    mean: Number
    most: Number
    far: Number
    over_lax: Number
    faster: Number


def summary(results: dict) -> str:
    """The table, and what became of rows without a time."""
    rows = results["rows"]
    base, engines = sides(results)
    if base is None or not engines:
        return "a summary needs torch and another engine\n"
    groups = grouped(rows, "op", "class", "dtype", "layout", lambda row: _seed(row["layer"]))
    named = [name for name in groups if name.startswith("seed ")]
    table = {name: [held(group, e, base) for e in engines] for name, group in groups.items()}
    if named:
        of_seeds = zip(*(table[name] for name in named), strict=True)
        table["median of seeds"] = [_medians(cells) for cells in of_seeds]
    wide = max(map(len, table))
    heads = [" ".join(f"{c:>{WIDTH}}" for c in COLUMNS)] * len(engines)
    titles = [f"{e:^{len(heads[0])}}" for e in engines]
    lines = [" | ".join([" " * wide, *titles]), " | ".join([" " * wide, *heads])]
    for name, cells in table.items():
        shown = (" ".join(f"{_digits(x):>{WIDTH}}" for x in astuple(cell)) for cell in cells)
        lines.append(" | ".join([f"{name:{wide}}", *shown]))
    lines += [line for engine in engines for line in _memory(rows, engine)]
    lines += [*_without(rows, [base, *engines])]
    return "\n".join(line.rstrip() for line in lines) + "\n"


def sides(results: dict) -> tuple[str | None, list[str]]:
    """PyTorch's label, and those of the other engines."""
    base = next((label for label in results["engines"] if is_torch(label)), None)
    return base, [label for label in results["engines"] if label != base]


def held(rows: list[dict], engine: str, base: str) -> Held:
    """How an engine's times compare; lax is the one with the same tag, if there is one."""
    _, at, tag = engine.partition("@")
    against = f"lax{at}{tag}"
    if not any(against in row["engines"] for row in rows):
        against = "lax"
    times = [(time_of(row, engine), time_of(row, base), time_of(row, against)) for row in rows]
    ratios = [own / torch for own, torch, _ in times if own and torch]
    lax = [own > SLOWER * other for own, _, other in times if own and other]
    return Held(
        len(ratios),
        geometric_mean(ratios) if ratios else None,
        max(ratios, default=None),
        sum(ratio > FAR for ratio in ratios),
        None if engine == against or not lax else sum(lax),
        sum(ratio < 1 for ratio in ratios),
    )


def time_of(row: dict, engine: str) -> float | None:
    """Seconds of the engine's fastest call in a row: what else runs on a machine only adds."""
    return row["engines"].get(engine, {}).get("min_s")


def over_pytorch(rows: list[dict], engine: str) -> float | None:
    """Geometric mean of an engine's time over that of the fastest of PyTorch's engines."""
    ratios = []
    for row in rows:
        own = time_of(row, engine)
        torch = [seconds for e in row["engines"] if is_torch(e) and (seconds := time_of(row, e))]
        ratios += [own / min(torch)] if own and torch else []
    return geometric_mean(ratios) if ratios else None


def is_torch(engine: str) -> bool:
    """Whether an engine's label is one of PyTorch's."""
    return engine.startswith("torch")


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


def _seed(name: str) -> str:
    """The seed that a random layer's name begins with."""
    found = re.match(r"r(\d+)-\d+ ", name)
    return f"seed {found[1]}" if found else "no seed"


def _medians(several: tuple[Held, ...]) -> Held:
    columns = (
        [x for x in column if x is not None] for column in zip(*map(astuple, several), strict=True)
    )
    return Held(*(statistics.median(column) if column else None for column in columns))


def _memory(rows: list[dict], engine: str) -> Iterator[str]:
    """Yield a line about temporary memory, if the engine's rows have it."""
    known = [(row, row["engines"].get(engine, {}).get("xla_temp_bytes")) for row in rows]
    shares = [(temp / _memory_limit(row), temp, row) for row, temp in known if temp is not None]
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


def _without(rows: list[dict], engines: list[str]) -> list[str]:
    """A line for each engine and status other than ok; wrong results are named one by one."""
    lines = []
    for engine in engines:
        entries = [(row, row["engines"].get(engine, {"status": "not run"})) for row in rows]
        counts = Counter(entry["status"] for _, entry in entries if entry["status"] != "ok")
        lines += [f"{engine}: {n} rows {status}" for status, n in counts.items()]
        lines += [
            f"  {row['layer']} {row['op']}: {entry.get('reason', '')}"
            for row, entry in entries
            if entry["status"] == "wrong"
        ]
    return lines


def _digits(x: float | None) -> str:
    if x is None:
        return "-"
    return f"{x:g}" if isinstance(x, int) or x == int(x) else f"{x:.2f}"


def summary_of_compilers(results: dict) -> str:
    """The table of each engine, and what became of rows without numbers."""
    base = next((label for label in results["engines"] if label.partition("@")[0] == "lax"), None)
    others = [label for label in results["engines"] if label != base]
    if base is None or not others:
        return "a summary needs lax and another engine\n"
    groups, lines = grouped(results["rows"], "op", "class", "class op", "dtype", "layout"), []
    wide = max(map(len, groups))
    for label in others:
        lines += [f"{label} / {base}, {results['platform']} {results['target']}, estimates"]
        lines += [" ".join([" " * wide, *(f"{name:>7}" for name in ESTIMATES)])]
        for name, rows in groups.items():
            cells = estimates(rows, label, base)
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


def estimates(rows: list[dict], label: str, base: str) -> list[str]:
    """The cells of an engine's line in a table of a compiler's estimates."""
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


def main(argv: Sequence[str]) -> None:
    """Print the table of a results file."""
    what = "every engine against PyTorch and lax; of results of compilers, against lax"
    [path] = flags.Command("benchmarks.summary", what, "RESULTS.csv").read(argv).operands
    results = files.read(path, files.SCHEMA, files.COMPILED)
    tell = summary if results["schema"] == files.SCHEMA else summary_of_compilers
    print(tell(results), end="")


if __name__ == "__main__":
    flags.run(main)
