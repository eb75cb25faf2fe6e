"""`python -m benchmarks.compiled`: what XLA's GPU and TPU compilers make of layers, without either.

Every figure is the compiler's: nothing runs, so no value is checked and no time is measured. On
TPU the estimate of cycles tells compute well and memory pessimistically. `compilers.INSTALL` has
the environments. A run that was interrupted goes on where its `--out` ends.
"""

import random
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace

from absl.flags import DEFINE_enum, DEFINE_integer, DEFINE_string

from benchmarks import compilers, flags, layers, machine
from benchmarks.compiled_summary import SCHEMA, read, summary, write
from benchmarks.layer import Layer, layer_class
from benchmarks.pool import EngineError, Pool
from benchmarks.problem import cell
from benchmarks.progress import Progress

#: What makes rows of two runs comparable.
SAME = ("schema", "platform", "target", "engines")


def command() -> flags.Command:
    """The flags of the rows, and those of the compilers."""
    told = "What XLA's compilers make of layers, without a device."
    new = flags.measuring("benchmarks.compiled", told)
    layers.define_rows(new)
    own = new.own
    DEFINE_enum("platform", "tpu", list(compilers.TARGETS), "whose compiler", **own)
    targets = "; ".join(f"{p}: {', '.join(t)}" for p, t in compilers.TARGETS.items())
    DEFINE_string("target", "", f"{targets}; default the first", **own)
    DEFINE_string("interpreter", "", "a Python that has the compiler; default this one", **own)
    DEFINE_integer("sample", 0, "so many of the rows, drawn at random", lower_bound=0, **own)
    new.default({"engines": "jaxconv,lax", "cap": 300.0, "dtypes": "bf16"})
    return new


def parse(argv: Sequence[str]) -> SimpleNamespace:
    """The flags, the target filled in."""
    new = command()
    asked = flags.parse(new, argv)
    known = compilers.TARGETS[asked.platform]
    asked.target = asked.target or next(iter(known))
    if asked.target not in known:
        new.fail(f"--target: {asked.target}; known for {asked.platform}: {', '.join(known)}")
    if other := [e for e in asked.engines if e.partition("@")[0].partition(":")[0] not in _JAX]:
        new.fail(f"--engines: {', '.join(other)} compiles nothing; known: {', '.join(_JAX)}")
    return asked


_JAX = ("jaxconv", "lax")


def open_pool(asked: SimpleNamespace) -> Pool:
    """Workers in the environment of the compiler; without it, one sentence says what to do."""
    everywhere = dict.fromkeys(asked.engines, asked.interpreter) if asked.interpreter else {}
    pool = Pool(everywhere | asked.python, asked.path, compilers.ENVIRONMENT, asked.env)
    try:
        for label in asked.engines:
            request = {"do": "compiler", "platform": asked.platform}
            found = pool.ask(label, request, asked.cap)["versions"]
            pool.versions[label] |= found
    except EngineError as error:
        pool.__exit__()
        raise SystemExit(f"{label}: {error.reason.removeprefix('ImportError: ')}") from None
    return pool


def measure(pool: Pool, asked: SimpleNamespace, job: dict) -> dict:
    """One row: what each engine's program is; a failure is an entry."""
    layer, engines = Layer.from_json(job["layer"]), {}
    job |= {"platform": asked.platform, "target": asked.target}
    for label in asked.engines:
        try:
            found = pool.ask(label, {"do": "compiled", "job": job}, asked.cap)["facts"]
            engines[label] = {"status": "ok"} | found
        except EngineError as error:
            engines[label] = {"status": error.status, "reason": error.reason}
    row = {"layer": layer.name, "class": layer_class(layer), "engines": engines}
    row |= {"problem": cell(layer)}
    return row | {name: job[name] for name in ("op", "dtype", "layout")}


def known(asked: SimpleNamespace, head: dict) -> list[dict]:
    """The rows that an earlier run of the same engines and target left."""
    if not asked.out or not Path(asked.out).exists():
        return []
    earlier = read(asked.out)
    if other := [name for name in SAME if earlier.get(name) != head[name]]:
        raise SystemExit(f"{asked.out}: written with another {', '.join(other)}; give another file")
    return earlier["rows"]


def _key(row: dict) -> tuple[str, ...]:
    name = row["layer"] if isinstance(row["layer"], str) else row["layer"]["name"]
    return name, row["op"], row["dtype"], row["layout"]


def _line(row: dict) -> str:
    told = ", ".join(
        f"{label} {entry['cycles'] or entry['temp_bytes']:,}"
        if entry["status"] == "ok"
        else f"{label} {entry['status']}"
        for label, entry in row["engines"].items()
    )
    return f"{' '.join(_key(row))}: {told}"


def main(argv: Sequence[str]) -> None:
    """Compile what the flags ask for, write it row by row, and end with the summary."""
    asked = parse(argv)
    jobs = layers.jobs(asked)
    if 0 < asked.sample < len(jobs):
        drawn = random.Random(0).sample(range(len(jobs)), asked.sample)
        jobs = [jobs[n] for n in sorted(drawn)]
    with open_pool(asked) as pool:
        head = {"schema": SCHEMA, "platform": asked.platform, "target": asked.target}
        head |= {"engines": {label: pool.versions[label] for label in asked.engines}}
        rows = known(asked, head)
        have = {_key(row) for row in rows}
        todo = [job for job in jobs if _key(job) not in have]
        head |= {"command": list(argv[1:]), "git": machine.revision()}
        progress = Progress(len(todo))
        try:
            for job in todo:
                rows.append(measure(pool, asked, job))
                progress.show(_line(rows[-1]))
                if asked.out:
                    write(asked.out, head | {"rows": rows})
        finally:
            progress.close()
    wanted = {_key(job) for job in jobs}
    print(summary(head | {"rows": [row for row in rows if _key(row) in wanted]}), end="")


if __name__ == "__main__":
    flags.run(main)
