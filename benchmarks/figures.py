"""`python -m benchmarks.figures PAGE.md`: its tables of figures, written from result files.

What stands between two comments is replaced by a table of the files that the first one names,
relative to the document:

    <!-- figures:overall benchmarks/results/a.csv benchmarks/results/b.csv -->
    <!-- /figures -->

Each function of `TABLES` is a kind of it; its docstring begins with what the comment names. A row's
time is its fastest call.
"""

import math
import re
from collections.abc import Sequence
from pathlib import Path

from absl.flags import DEFINE_boolean

from benchmarks import files, flags, regret, summary
from benchmarks.layer import DTYPES, OPS
from benchmarks.machine import in_words as machine_words
from benchmarks.summary import FAR, SLOWER, compared, geometric_mean, held, is_torch, time_of
from jaxconv._lowering import TABLES as LOWERINGS

BLOCK = re.compile(r"(<!-- figures:(\w+) ([^\n]*?) ?-->\n)(.*?)(<!-- /figures -->)", re.DOTALL)
#: What tables call the engines of committed results.
WORDS = {
    "lax:loop+install": "lax with jaxconv, a loop",
    "jaxconv@portable": "jaxconv without oneDNN",
    "jaxconv@new": "jaxconv, JAX 0.12",
    "+install@new": " with jaxconv, JAX 0.12",
    "@huge": ", huge pages",
    "@keep": ", memory kept",
    "@new": ", JAX 0.12",
    "@onednn": ", JAX 0.12, with the flag",
    "+install": " with jaxconv",
    "torch+compile": "PyTorch, compiled",
    "torch": "PyTorch",
}
#: What tables call layouts and ops.
LAYOUTS = {"NXC": "channels last (NXC)", "NCX": "channels first (NCX)"}
PASSES = {"forward": "forward", "data": "data gradient", "weights": "weights gradient"}
#: What a line must be worth in a row to count.
WORTH = 1.25
KERAS = ("keras", "keras+install", "keras@torch")
PYTORCH_FORMATS = ("contiguous", "channels_last")
OPENING = re.compile(r"^<!-- figures:", re.MULTILINE)


def written(text: str, folder: Path) -> str:
    """The document with every table as its files have it."""
    if len(OPENING.findall(text)) != len(BLOCK.findall(text)):
        raise SystemExit("a `<!-- figures:TABLE FILE -->` is not closed by `<!-- /figures -->`")

    def block(match: re.Match) -> str:
        opening, name, arguments, _, closing = match.groups()
        if name not in TABLES:
            raise SystemExit(f"no figures:{name}; known: {', '.join(TABLES)}")
        words, schema = arguments.split(), SCHEMAS.get(name, files.SCHEMA)
        runs = [files.read(folder / word, schema) for word in words if word.endswith(".csv")]
        if not runs and name != "lines":
            raise SystemExit(f"figures:{name} names no .csv file")
        lines = TABLES[name](runs, [word for word in words if not word.endswith(".csv")])
        return opening + "\n" + "\n".join(lines) + "\n\n" + closing

    return BLOCK.sub(block, text)


def machine(runs: list[dict], _: list[str]) -> list[str]:
    """FILE...: a sentence for each machine of the files, by their headers."""
    return list(dict.fromkeys(f"Measured on {machine_words(run['machine'])}." for run in runs))


def overall(runs: list[dict], wanted: list[str]) -> list[str]:
    """FILE... [ENGINE...]: a line a file, each engine's time over PyTorch's, geometric mean."""
    engines = list(dict.fromkeys(e for _, e in _columns(runs, wanted)))
    lines = [[_about(run), *(_mean(run, run["rows"], e) for e in engines)] for run in runs]
    return _table(["type, layout", *engines], lines)


def medians(runs: list[dict], wanted: list[str]) -> list[str]:
    """FILE... [ENGINE...]: as `overall`, of median calls."""
    for entry in (x for run in runs for row in run["rows"] for x in row["engines"].values()):
        entry["min_ms"] = entry.get("median_ms")
    return overall(runs, wanted)


def formats(runs: list[dict], wanted: list[str]) -> list[str]:
    """FILE... [ENGINE]: a line a file, over PyTorch's time in each format, of rows in both."""
    lines = []
    for run in runs:
        engine = (wanted or compared(run))[0]
        pairs = [(time_of(r, engine), r["engines"].get("torch", {})) for r in run["rows"]]
        both = [(own, torch["variants"]) for own, torch in pairs if own and "variants" in torch]
        over = [[own / torch[name] for own, torch in both] for name in PYTORCH_FORMATS]
        over.append([own / min(torch.values()) for own, torch in both])
        means = (f"{geometric_mean(ratios):.2f}" if ratios else "" for ratios in over)
        lines.append([_about(run), f"{len(both)}", *means])
    return _table(["type, layout", "rows", "contiguous", "channels last", "the faster"], lines)


def counts(runs: list[dict], wanted: list[str]) -> list[str]:
    """FILE... [ENGINE...]: how many rows are faster, far slower, slower than lax."""
    columns = _columns(runs, wanted)
    own = [held(run["rows"], engine) for run, engine in columns]
    cells = {
        "rows": [x["n"] for x in own],
        "faster than PyTorch": [x["<torch"] for x in own],
        f"over {FAR:g} times PyTorch's time": [x[">4"] for x in own],
        "slowest row, over PyTorch's time": [x["most"] and f"{x['most']:,.1f}" for x in own],
        f"slower than lax by over {SLOWER - 1:.0%}": [x[">lax"] for x in own],
    }
    lines = [[name, *("" if x is None else f"{x}" for x in line)] for name, line in cells.items()]
    return _table(["", *_titles(columns)], lines)


def classes(runs: list[dict], wanted: list[str]) -> list[str]:
    """FILE... [ENGINE...]: a line a class, the mean; a column an op and engine."""
    columns, lines = [(run, e, op) for run, e in _columns(runs, wanted) for op in OPS], []
    for name, rows in _of_classes([row for run in runs for row in run["rows"]]).items():
        lines.append([name, str(len(rows))])
        for run, engine, op in columns:
            own = [r for r in run["rows"] if r["op"] == op and name in (r["class"], "all")]
            lines[-1].append(_mean(run, own, engine))
    titles = _titles([(run, f"{e}, {PASSES[op]}") for run, e, op in columns])
    return _table(["class", "rows", *titles], lines)


def networks(runs: list[dict], wanted: list[str]) -> list[str]:
    """FILE [TYPE] [ENGINE...]: a line a network's step or inference, and the means."""
    run, engines = _engines(runs, [word for word in wanted if word not in DTYPES])
    types = [word for word in wanted if word in DTYPES] or DTYPES
    rows = [row for row in run["rows"] if row["dtype"] in types]
    lines = [[row["layer"], *(_ms(row, engine) for engine in engines)] for row in rows]
    faster = "the faster PyTorch's" if sum(map(is_torch, run["engines"])) > 1 else "PyTorch's"
    means = (_mean(run, rows, engine) for engine in engines)
    last = [f"geometric mean, in multiples of {faster} time", *means]
    unit = "ms a call" if {row["op"] for row in rows} == {"inference"} else "ms a step"
    return _table([unit, *engines], [*lines, last])


def compiled(runs: list[dict], wanted: list[str]) -> list[str]:
    """FILE [ENGINE...]: a line a training step, its seconds to compile."""
    run, engines = _engines(runs, wanted)
    lines = []
    for row in run["rows"]:
        seconds = (row["engines"].get(engine, {}).get("compile_s") for engine in engines)
        lines.append([row["layer"], *("-" if s is None else f"{s:.1f}" for s in seconds)])
    return _table(["seconds to compile", *engines], lines)


#: By platform, titles of columns and which columns of `summary.estimates` they are.
ESTIMATES = {
    "tpu": {"estimated cycles / lax's": "cycles", "worst": "worst", "best": "best"},
    "cuda": {"temporary memory / lax's": "temp", "worst": "most", "rows with more calls": ">lax"},
}


def estimates(runs: list[dict], _: list[str]) -> list[str]:
    """FILE: what a compiler for GPU or TPU says, a line a class of the rows that lax has, too."""
    [run] = runs
    columns, lines = ESTIMATES[run["platform"]], []
    for name, rows in _of_classes(run["rows"]).items():
        cells = summary.estimates(rows, "jaxconv", "lax")
        lines += [[name, cells["n"], *(cells[column] for column in columns.values())]]
    return _table([run["target"], "rows", *columns], lines)


def compilers(runs: list[dict], _: list[str]) -> list[str]:
    """FILE...: which compilers, targets, types and layouts those are."""
    lines = []
    for run in runs:
        versions = run["engines"]["jaxconv"]
        packages = [n for n in ("jax", "libtpu", "jax-cuda12-pjrt") if n in versions]
        kinds = [dict.fromkeys(row[key] for row in run["rows"]) for key in ("dtype", "layout")]
        told = ", ".join(f"{n} {versions[n]}" for n in packages)
        lines += [[run["target"], told, *map(", ".join, kinds), str(len(run["rows"]))]]
    return _table(["compiled for", "by", "types", "layouts", "rows"], lines)


def applications(runs: list[dict], ops: list[str]) -> list[str]:
    """FILE OP: a line a model; the seconds are those of the first call."""
    [run], [op] = runs, ops
    cells, gains = [], []
    for row in (row for row in run["rows"] if row["op"] == op):
        plain, ours, torch = times = [time_of(row, engine) for engine in KERAS]
        gains.append((plain / ours, torch / ours))
        first = [_digits(row["engines"][engine]["compile_s"], 2) for engine in KERAS[:2]]
        ratios = (f"{gain:.1f}" for gain in gains[-1])
        cells.append([row["layer"], *(_digits(ms, 3) for ms in times), *ratios, *first])
    means = [f"{geometric_mean(x):.1f}" for x in zip(*gains, strict=True)]
    head = ["ms", "Keras on JAX", "with jaxconv", "Keras on PyTorch", "times faster than on JAX"]
    head += ["than on PyTorch", "first call, s: on JAX", "with jaxconv"]
    return _table(head, [*cells, ["geometric mean", "", "", "", *means, "", ""]])


def clients(runs: list[dict], words: list[str]) -> list[str]:
    """FILE [tests]: a line a project, how many of its tests pass; or which tests were run."""
    rows = [row for run in runs for row in run["rows"]]
    if words == ["tests"]:
        cells = [[row["client"], f"`{row['tests']}`"] for row in rows]
        return _table(["project", "arguments of pytest"], cells, "---")
    head = ["project", "tests", "pass", "pass with jaxconv", "convolutions", "by jaxconv"]
    columns = ("ran", "without", "with", "convolutions", "taken")
    named = [f"{row['client']} {row['version']}".rstrip() for row in rows]
    notes = (f", {row['note']}" if row["note"] else "" for row in rows)
    cells = [[*map(row.get, columns)] for row in rows]
    return _table(head, [[n + more, *x] for n, more, x in zip(named, notes, cells, strict=True)])


def lines(_: list[dict], platforms: list[str]) -> list[str]:
    """PLATFORM: the table of that platform, a line, its form, and why."""
    [platform] = platforms
    tables = LOWERINGS.get(platform, LOWERINGS[None])
    whys = [[slot, x.name, x.form.name, x.why] for slot, table in tables.items() for x in table]
    if len(set(tables.values())) == 1:
        return _table(["line", "form", "why"], [row[1:] for row in whys if row[0] == "fine"], "---")
    return _table(["to", "line", "form", "why"], whys, "---")


def worth(runs: list[dict], _: list[str]) -> list[str]:
    """FILE...: what each line of the CPU's table is worth, the most worthy first."""
    found, cells = regret.worth(*(run["rows"] for run in runs)), []
    for line, x in sorted(found.items(), key=lambda item: -math.prod(item[1])):
        ratios = (f"{n:.2f}" for n in (geometric_mean(x), x[0], x[-1]))
        cells.append([line, str(len(x)), *ratios, str(sum(n >= WORTH for n in x))])
    head = ["line", "rows that change", "time without it", "at most", "at least"]
    head += [f"rows at {WORTH} or more"]
    count = sum(len(regret.cases(run["rows"])) for run in runs)
    of = f"Of {count} rows, on {machine_words(runs[0]['machine'])}."
    others = "The other lines are for other layers, layouts or programs."
    return [*_table(head, cells), "", f"{of} {others}"]


def _of_classes(rows: list[dict]) -> dict[str, list[dict]]:
    """The rows of each class, by name, and then all."""
    names = sorted({row["class"] for row in rows})
    return {name: [row for row in rows if row["class"] == name] for name in names} | {"all": rows}


def _columns(runs: list[dict], wanted: list[str]) -> list[tuple[dict, str]]:
    """The engines of each run that are held against PyTorch: all, or those wanted, in order."""
    engines_of = [(run, compared(run)) for run in runs]
    _check(wanted, {e for _, engines in engines_of for e in engines}, " beside torch")
    return [(run, e) for run, engines in engines_of for e in wanted or engines if e in engines]


def _engines(runs: list[dict], wanted: list[str]) -> tuple[dict, list[str]]:
    """The only run, and all of its engines or those wanted."""
    [run] = runs
    _check(wanted, set(run["engines"]))
    return run, wanted or list(run["engines"])


def _check(wanted: list[str], known: set[str], where: str = "") -> None:
    if unknown := set(wanted) - known:
        raise SystemExit(f"figures: no engine {', '.join(sorted(unknown))}{where}")


def _mean(run: dict, rows: list[dict], engine: str) -> str:
    mean = held(rows, engine)["mean"] if engine in compared(run) else None
    return "" if mean is None else f"{mean:.2f}"


def _ms(row: dict, engine: str) -> str:
    ms = time_of(row, engine)
    return "-" if ms is None else _digits(ms, 2)


def _digits(number: float, digits: int) -> str:
    """So many significant digits; no zeros after the point."""
    number = float(f"{number:.{digits}g}")
    return f"{number:,.0f}" if number >= 10 ** (digits - 1) else f"{number:g}"


def _about(run: dict) -> str:
    """Types and layouts of a run."""
    kinds = (f"{DTYPES[row['dtype']]}, {LAYOUTS[row['layout']]}" for row in run["rows"])
    return "; ".join(dict.fromkeys(kinds))


def _titles(columns: list[tuple[dict, str]]) -> list[str]:
    """The titles of columns, with types and layouts where several files have columns."""
    several = any(run is not columns[0][0] for run, _ in columns)
    return [f"{title}, {_about(run)}" if several else title for run, title in columns]


def _table(head: list[str], lines: list[list[str]], align: str = "---:") -> list[str]:
    for label, words in WORDS.items():
        head = [cell.replace(label, words) for cell in head]
    rule = "|".join(["---", *[align] * (len(head) - 1)])
    return [f"| {' | '.join(head)} |", f"|{rule}|", *(f"| {' | '.join(x)} |" for x in lines)]


#: The kinds of table, and the schema of the files of those that are not of layers or networks.
TABLES = {
    function.__name__: function
    for function in (
        machine, overall, medians, formats, counts, classes, networks, compiled, estimates,
        compilers, applications, clients, lines, worth,
    )
}  # fmt: skip
SCHEMAS = dict.fromkeys(("estimates", "compilers"), files.COMPILED)
SCHEMAS |= {"worth": regret.SCHEMA, "clients": None}


def main(argv: Sequence[str]) -> int:
    """Rewrite the documents; with --check, only say whether that would change anything."""
    told = "writes the tables of figures of documents"
    command = flags.Command("benchmarks.figures", told, "DOCUMENT...")
    DEFINE_boolean("check", False, "write nothing; 1 if out of date", **command.own)
    asked = command.read(argv)
    for path in map(Path, asked.operands):
        try:
            before = path.read_text()
        except OSError as error:
            raise SystemExit(f"{path}: {error.strerror}") from None
        after = written(before, path.parent)
        if before != after:
            print(f"{path}: {'out of date' if asked.check else 'written'}")
            if asked.check:
                return 1
            path.write_text(after)
    return 0


if __name__ == "__main__":
    flags.run(main)
