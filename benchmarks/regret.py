"""`python -m benchmarks.regret`: what the CPU table's choice costs against the fastest form.

A row is a layer and an op. The form that the table chooses, each other form that can compute the
row, and the plan that results where one line of the table is left out are timed in turns, in this
process, on this release of JAX. Equal plans share a program. No result is verified here:
`benchmarks.layers` does that.
"""

import math
import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace

import jax
import numpy as np
from jax import lax

import jaxconv
from benchmarks import arrays, files, flags, layers, machine, run
from benchmarks.engines import _xla
from benchmarks.engines import jaxconv as engine
from benchmarks.layer import DTYPES, Layer, layer_class
from benchmarks.problem import spell
from benchmarks.progress import Progress
from benchmarks.rounds import geometric_mean
from jaxconv import _lowering
from jaxconv._base.geometry import OPERANDS
from jaxconv._lowering.plan import emit_plan
from jaxconv._lowering.problem import Numerics

SCHEMA = "regret 1"
ROW = ("layer", "class", "problem", "op", "dtype", "layout", "line")
#: `line` decided about the row. `contender` is `chosen`, a form or `without LINE`; `ms` its fastest
#: call; `note` has the form that the table chose, or why there is no time.
COLUMNS = (*ROW, "contender", "ms", "note")
CHOSEN, WITHOUT = "chosen", "without "

#: A contender that takes this many times as long as the fastest is not timed further.
FAR = 3.0
#: The seconds for the rounds of a row, and how many there are at least.
BUDGET, ROUNDS = 0.3, 3
FIRST_CALLS = 3
#: Products a result that a form may write out one by one, and contractions that a contender may be
#: made of: more take long to compile, and are slow.
MOST_TERMS, MOST_PARTS = 128, 12
MOST_BYTES = 2 << 30  # of temporary memory
#: Regrets of which the summary has the share; what a line must be worth in a row to count.
HIGH, WORTH = (1.25, 1.5), 1.25


@dataclass
class Contender:
    """A program: how it is called, or why it is not, and the fewest seconds of a call so far."""

    call: Callable[[], object] | None = None
    note: str = ""
    best: float = math.inf

    def time(self) -> None:
        """One more call."""
        start = time.perf_counter()
        self.call()
        self.best = min(self.best, time.perf_counter() - start)

    def time_first(self) -> None:
        """The calls that tell whether a contender is near; one warms up, and any may stall."""
        self.time()
        start, self.best = time.perf_counter(), math.inf
        for _ in range(FIRST_CALLS):
            self.time()
            if time.perf_counter() - start > BUDGET:
                break


def plans(problem) -> dict[str, _lowering.Plan]:
    """By name, the plan of the table, those without a line of it, and those of forms."""
    chosen = _lowering.choose_plan(problem, "cpu")
    found = {CHOSEN: chosen}
    for line in lines(chosen):
        try:
            found[WITHOUT + line] = _lowering.choose_plan(problem, "cpu", without=line)
        except (StopIteration, RecursionError):  # nothing else computes this, or ends
            continue
    many = problem.taps * max(problem.summed, problem.result == "kernel") > MOST_TERMS
    for name in _lowering.FORMS:
        if many and name.startswith("multiply-adds"):
            continue
        try:
            found[name] = _lowering.choose_plan(problem, "cpu", name)
        except ValueError:  # the form cannot compute this
            continue
    return {
        name: plan
        for name, plan in found.items()
        if name == CHOSEN or parts(plan) <= max(MOST_PARTS, parts(chosen))
    }


def parts(plan: _lowering.Plan) -> int:
    """How many contractions a plan is made of."""
    return sum(map(parts, plan.parts)) or 1


def lines(plan: _lowering.Plan) -> list[str]:
    """The lines that decided about a plan and its parts, the outermost first."""
    inner = [line for part in plan.parts for line in lines(part)]
    return list(dict.fromkeys([*filter(None, [plan.line]), *inner]))


def program(plan: _lowering.Plan) -> _lowering.Plan:
    """What a plan computes, whoever chose it: equal for equal programs."""
    return replace(plan, why="", parts=tuple(map(program, plan.parts)))


def measure(problem) -> dict[str, Contender]:
    """Every contender of a contraction; those of one program are one object."""
    rng = np.random.default_rng(0)
    operands = [
        jax.device_put(rng.standard_normal(problem.shape(slot), np.float32).astype(problem.dtype))
        for slot in OPERANDS[problem.result]
    ]
    numerics = Numerics((lax.Precision.DEFAULT,) * 2, problem.dtype)
    named = plans(problem)
    distinct = {program(plan): plan for plan in named.values()}
    with ThreadPoolExecutor(machine.cores()) as threads:
        ready = threads.map(lambda plan: _compile(plan, operands, numerics), distinct.values())
    found = dict(zip(distinct, ready, strict=True))
    able = [x for x in found.values() if x.call]
    for contender in able:
        contender.time_first()
    limit = FAR * min(x.best for x in able)
    near = [x for x in able if x.best <= limit or x is able[0]]
    rounds, end = 0, time.perf_counter() + BUDGET
    while len(near) > 1 and (rounds < ROUNDS or time.perf_counter() < end):
        first = rounds % len(near)
        for contender in near[first:] + near[:first]:
            contender.time()
        rounds += 1
    return {name: found[program(plan)] for name, plan in named.items()}


def _compile(plan: _lowering.Plan, operands: list[jax.Array], numerics: Numerics) -> Contender:
    def compute(first: jax.Array, second: jax.Array) -> jax.Array:
        return emit_plan(plan, first, second, numerics)

    try:
        executable = jax.jit(compute).lower(*operands).compile()
    except (ValueError, jax.errors.JaxRuntimeError) as error:
        return Contender(note=f"failed: {' '.join(str(error).split())[:80]}")
    memory = executable.memory_analysis()
    if memory is not None and memory.temp_size_in_bytes > MOST_BYTES:
        return Contender(note=f"takes {memory.temp_size_in_bytes >> 20} MiB")
    return Contender(lambda: jax.block_until_ready(executable(*operands)))


def problem_of(job: dict):
    """The contraction of a job."""
    layer, layout = Layer.from_json(job["layer"]), job["layout"]
    shapes = arrays.shapes_in(layer, job["op"], layout)
    typed = [jax.ShapeDtypeStruct(shape, DTYPES[job["dtype"]]) for shape in shapes]
    asked = _lowering.Asked()
    with jaxconv.forced(asked):
        function = engine.contraction(layer, job["op"], layout)
        jax.jit(function).trace(*typed).lower(lowering_platforms=("cpu",))
    [problem] = asked.problems.values()
    return problem


def run_case(job: dict) -> list[dict]:
    """The lines of the CSV of a job, the table's choice first."""
    layer, problem = Layer.from_json(job["layer"]), problem_of(job)
    chosen = _lowering.choose_plan(problem, "cpu")
    spelled = f"{layer.family} {spell(layer)}".removesuffix(f'n"{layer.name}"')
    sort = (layer.name, layer_class(layer), spelled, job["op"], job["dtype"], job["layout"])
    row = dict(zip(ROW, (*sort, chosen.line), strict=True))
    return [
        row
        | {
            "contender": name,
            "ms": f"{1e3 * x.best:.4g}" if x.call else "",
            "note": x.note or (chosen.form.name if name == CHOSEN else ""),
        }
        for name, x in measure(problem).items()
    ]


def cases(rows: Sequence[dict]) -> list[dict]:
    """Each row of `COLUMNS` that the table chose, with `times`: milliseconds by contender."""
    found: dict[tuple, dict] = {}
    for row in rows:
        case = found.setdefault(tuple(row[name] for name in ROW), row | {"times": {}})
        if row["ms"]:
            case["times"][row["contender"]] = float(row["ms"])
    return list(found.values())


def regret(case: dict) -> float:
    """The time of the table's choice over that of the fastest contender."""
    return case["times"][CHOSEN] / min(case["times"].values())


def worth(rows: Sequence[dict]) -> dict[str, list[float]]:
    """By line, the time without it over the time with it, the largest first."""
    found: dict[str, list[float]] = {}
    for case in cases(rows):
        for name, ms in case["times"].items():
            if name.startswith(WITHOUT):
                ratios = found.setdefault(name.removeprefix(WITHOUT), [])
                ratios.append(ms / case["times"][CHOSEN])
    return {line: sorted(ratios, reverse=True) for line, ratios in found.items()}


def summary(rows: Sequence[dict]) -> str:
    """Regret by class and by line, and what each line is worth."""
    every = cases(rows)
    told = [f"{'chosen over fastest':32} rows  mean" + "".join(f"  over {x}" for x in HIGH)]
    for kind in ("class", "line"):
        groups = sorted({case[kind] for case in every})
        told += [_regrets(name, [x for x in every if x[kind] == name]) for name in groups]
    told += [_regrets("all", every), "", f"{'without over with':32} rows  mean  most"]
    for line, ratios in sorted(worth(rows).items(), key=lambda x: -geometric_mean(x[1])):
        most = ", ".join(f"{x:.2f}" for x in ratios[:3])
        told.append(f"{line:32} {len(ratios):4}  {geometric_mean(ratios):.2f}  {most}")
    return "\n".join(told)


def _regrets(name: str, of: list[dict]) -> str:
    regrets = [*map(regret, of)]
    shares = (sum(x > high for x in regrets) / len(regrets) for high in HIGH)
    means = f"{len(regrets):4}  {geometric_mean(regrets):.2f}"
    return f"{name:32} {means}" + "".join(f"  {share:8.0%}" for share in shares)


def main(argv: Sequence[str]) -> None:
    """Measure what the flags ask for, print a line per row and a summary, and write the results."""
    command = flags.choosing("benchmarks.regret", "the CPU table's choice against the fastest form")
    layers.define_rows(command)
    asked = command.read(argv)
    jax.config.update("jax_platforms", "cpu")
    started, load, found = time.time(), os.getloadavg()[0], []
    jobs = layers.jobs(asked)
    progress = Progress(len(jobs))
    try:
        for job in jobs:
            jax.config.update("jax_enable_x64", job["dtype"] == "f64")
            rows = run_case(job)
            found += rows
            progress.show(_told(*cases(rows)))
    finally:
        progress.close()
        if asked.out and found:
            versions = {"engines": {"jaxconv": _xla.versions([jaxconv])}}
            head = {"schema": SCHEMA} | run.header(started, load) | versions
            lines = [COLUMNS, *([row[name] for name in COLUMNS] for row in found)]
            files.save_table(asked.out, head, lines)
    print(summary(found))


def _told(case: dict) -> str:
    best = min(case["times"], key=case["times"].get)
    own = f"{case['layer']} {case['op']}: {case['line']} {case['times'][CHOSEN]:.3g} ms"
    return f"{own}, {best} {case['times'][best]:.3g} ms, {regret(case):.2f}"


if __name__ == "__main__":
    flags.run(main)
