"""`python -m benchmarks.ablation`: is each line of the CPU lowering's table worth having?

For each line, `jaxconv` is timed against `jaxconv` without it, in turns, on those rows whose
program changes; a ratio above 1 says that the line helps. Rows are chosen and timed as by
`benchmarks.layers`, and its flags hold here. `jaxconv._lowering.TABLES["cpu"]` has the lines, each
with a `name`; the worker that is to do without one takes it out of there.
"""

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from absl.flags import DEFINE_string

from benchmarks import files, flags, layers, run
from benchmarks.pool import ROOT, EngineError, Pool
from benchmarks.rounds import Plan, geometric_mean

WITH, WITHOUT = "jaxconv", "jaxconv@without"
#: A row that a line helps: a line is worth its place if it helps three.
WORTH = 1.25
SCHEMA = "ablation 1"
#: Of `--out`: the rows whose program changes without the line, of how many rows, and the rows that
#: then have none; time without over time with, and the rows where that is at least `WORTH`.
COLUMNS = ["line", "rows", "of", "none", "mean", "most", "least", "helped"]
LIST = "from jaxconv import _lowering; print(*[x.name for x in _lowering.TABLES['cpu']], sep='\\n')"


def names(library: str) -> list[str]:
    """The lines of the table, in its order."""
    path = os.pathsep.join(filter(None, [library, os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        [sys.executable, "-c", LIST],
        cwd=library or ROOT,
        env=os.environ | {"PYTHONPATH": path} | run.ON_CPU,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise SystemExit(f"the lines cannot be listed: {done.stderr.strip().splitlines()[-1]}")
    return done.stdout.split()


def open_pool(line: str, library: str) -> Pool:
    """Workers with and without a line."""
    paths = dict.fromkeys((WITH, WITHOUT), library) if library else {}
    return Pool({}, paths, run.SHARED | run.ON_CPU, without={WITHOUT: line})


def changed(pool: Pool, jobs: list[dict], seconds: float) -> tuple[list[dict], int]:
    """The jobs whose programs differ, and how many have none without the line; nothing runs."""

    def program(label: str, job: dict) -> str:
        return pool.ask(label, {"do": "program", "job": job}, seconds)["program"]

    found, none = [], 0
    for job in jobs:
        own = program(WITH, job)
        try:
            other = program(WITHOUT, job)
        except EngineError:  # a rewrite that relies on the line rewrites without an end
            none += 1
            continue
        if own != other:
            found.append(job)
    return found, none


def compare(pool: Pool, jobs: list[dict], plan: Plan) -> list[tuple[float | None, str]]:
    """(time without over time with, what to print) of each job, the largest first."""
    found: list[tuple[float | None, str]] = []
    with tempfile.TemporaryDirectory() as folder:
        for job in jobs:
            row = layers.run_case(pool, [WITH, WITHOUT], job, plan, Path(folder))
            own, other = (row["engines"][label].get("min_s") for label in (WITH, WITHOUT))
            ratio = other / own if own and other else None
            told = f"{row['layer']} {row['op']} {row['dtype']} {row['layout']}: {run.times(row)}"
            found.append((ratio, told))
    return sorted(found, key=lambda pair: -(pair[0] or 0.0))


def main(argv: Sequence[str]) -> None:
    """Print, for each line, its mean and largest ratio, and the rows that it changes."""
    told = "each line of the CPU lowering's table, with and without"
    command = layers.command("benchmarks.ablation", told)
    DEFINE_string("lines", "", "names joined by commas; default all", **command.own)
    DEFINE_string("library", "", "a folder to import jaxconv from", **command.own)
    started, load = time.time(), os.getloadavg()[0]
    asked = flags.parse(command, argv)
    jobs, plan = layers.jobs(asked), run.plan(asked)
    known = names(asked.library)
    # Nothing but the last line takes what the others leave.
    lines = asked.lines.split(",") if asked.lines else [x for x in known if x != "all-others"]
    if unknown := [line for line in lines if line not in known]:
        command.fail(f"--lines: no {', '.join(unknown)}; known: {', '.join(known)}")
    table: list[list] = [COLUMNS]
    for line in lines:
        with open_pool(line, asked.library) as pool:
            differing, none = changed(pool, jobs, plan.cap_s)
            rows = compare(pool, differing, plan)
        ratios = [ratio for ratio, _ in rows if ratio]
        told, worth = f"{line}: {len(rows)} of {len(jobs)} rows change", [""] * 4
        if none:
            told += f", {none} have no program"
        if ratios:
            worth = [f"{x:.3f}" for x in (geometric_mean(ratios), max(ratios), min(ratios))]
            worth.append(str(sum(ratio >= WORTH for ratio in ratios)))
            told += "; without it {} of the time, {} at most, {} at least; {} helped".format(*worth)
        table.append([line, len(rows), len(jobs), none, *worth])
        print(told)
        for ratio, row in rows:
            print(f"  {'-' if ratio is None else f'{ratio:.2f}':>6}  {row}", flush=True)
    if asked.out:
        files.save_table(asked.out, {"schema": SCHEMA} | run.header(started, load), table)


if __name__ == "__main__":
    flags.run(main)
