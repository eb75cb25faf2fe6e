"""`python -m benchmarks.regret`: what the CPU table's choice costs against the fastest form.

A row is a layer and an op. The form that the table chooses, each other form that can compute the
row, and the plan that results where one line of the table is left out are timed in turns, in this
process, on this release of JAX. Equal plans share a program.
"""

import contextlib
import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain

import jax
import numpy as np
from jax import lax

import jaxconv
from benchmarks import arrays, flags, layers, machine, run
from benchmarks.engines import _xla
from benchmarks.engines import jaxconv as engine
from benchmarks.layer import DTYPES, layer_class
from benchmarks.summary import geometric_mean, grouped
from jaxconv import _lowering
from jaxconv._base.geometry import OPERANDS
from jaxconv._lowering import Plan, Problem, choose_plan
from jaxconv._lowering.plan import emit_plan
from jaxconv._lowering.problem import Numerics
from jaxconv._tools import clock

SCHEMA = "regret 1"
ROW = ("layer", "class", "op", "dtype", "layout", "line")
#: `line` decided about the row; `contender` is `chosen`, a form or `without LINE`; `form` the
#: outermost one of its plan; `ms` the fastest call, if there is a program.
COLUMNS = (*ROW, "contender", "form", "ms")
CHOSEN, WITHOUT = "chosen", "without "

#: A contender that takes this many times as long as the fastest is not timed further.
FAR = 3.0
#: Products a result that a form may write out one by one, and plans in a contender's: more take
#: long to compile, and are slow.
MOST_TERMS, MOST_PLANS = 128, 16
MOST_BYTES = 2 << 30  # of temporary memory
HIGH = (1.25, 1.5)  # regrets of which the summary has the share


def plans(problem: Problem) -> dict[str, Plan]:
    """The plan of each contender: the table's, the table's without a line, and those of forms."""
    chosen, found = choose_plan(problem, "cpu"), {}
    for line in dict.fromkeys(plan.line for plan in walk(chosen)):  # other lines change nothing
        with contextlib.suppress(AssertionError):  # nothing else computes it, or its part
            found[WITHOUT + line] = choose_plan(problem, "cpu", without=line)
    many = problem.taps * max(problem.summed, problem.result == "kernel") > MOST_TERMS
    for name in _lowering.FORMS:
        if not (many and name.startswith("multiply-adds")):
            with contextlib.suppress(ValueError):  # the form cannot compute this
                found[name] = choose_plan(problem, "cpu", name)
    most = max(MOST_PLANS, len(walk(chosen)))
    return {CHOSEN: chosen} | {n: plan for n, plan in found.items() if len(walk(plan)) <= most}


def walk(plan: Plan) -> list[Plan]:
    """A plan and all of its parts."""
    return [plan, *(inner for part in plan.parts for inner in walk(part))]


def measure(problem: Problem, programs: Sequence[Plan]) -> dict[Plan, float]:
    """The fewest milliseconds of each program that can be had; the table's choice is the first."""
    shapes, rng = map(problem.shape, OPERANDS[problem.result]), np.random.default_rng(0)
    operands = [jax.device_put(rng.normal(size=s).astype(problem.dtype)) for s in shapes]
    with ThreadPoolExecutor(machine.cores()) as threads:  # nearly all of the time
        ready = threads.map(lambda plan: compiled(plan, operands), programs)
    calls = {plan: call for plan, call in zip(programs, ready, strict=True) if call}
    best = {}
    for x, call in calls.items():  # what is far takes few calls, of which any may stall
        once = clock.time_call(call)
        more = 2 if once < clock.BUDGET_SECONDS else 0
        best[x] = min(once, *(clock.time_call(call) for _ in range(more)), once)
    limit = FAR * min(best.values())
    near = {x: call for x, call in calls.items() if best[x] <= limit or x == programs[0]}
    raced = clock.race(near)
    return {x: 1e3 * min(seconds, raced.get(x, math.inf)) for x, seconds in best.items()}


def compiled(plan: Plan, operands: list[jax.Array]) -> Callable[[], object] | None:
    """A call of a program that has run once; None if it cannot, or takes much memory.

    A form that is forced may make a program that XLA cannot run, as of some dots in bfloat16.
    """
    numerics = Numerics((lax.Precision.DEFAULT,) * 2, plan.problem.dtype)
    try:
        lowered = jax.jit(lambda x, y: emit_plan(plan, x, y, numerics)).lower(*operands)
        executable = lowered.compile()
        if executable.memory_analysis().temp_size_in_bytes > MOST_BYTES:
            return None
        jax.block_until_ready(executable(*operands))
    except (ValueError, jax.errors.JaxRuntimeError):
        return None
    return lambda: jax.block_until_ready(executable(*operands))


def run_case(job: dict) -> list[dict]:
    """The lines of the CSV of a job, the table's choice first."""
    layer, op, dtype, layout = (job[name] for name in ("layer", *ROW[2:5]))
    jax.config.update("jax_enable_x64", dtype == "f64")
    *shapes, _ = arrays.shapes_in(layer, op, layout)
    typed = [jax.ShapeDtypeStruct(shape, DTYPES[dtype]) for shape in shapes]
    with jaxconv.forced(asked := _lowering.Recorder()):
        jax.jit(engine.contraction(layer, op, layout)).lower(*typed)
    [problem] = asked.problems.values()
    named = plans(problem)
    times = measure(problem, list(dict.fromkeys(named.values())))
    row = (layer.name, layer_class(layer), op, dtype, layout, named[CHOSEN].line)
    found = []
    for name, plan in named.items():
        ms = f"{times.get(plan, math.nan):.4g}".replace("nan", "")
        found.append(dict(zip(COLUMNS, (*row, name, plan.form.name, ms), strict=True)))
    return found


def cases(rows: Sequence[dict]) -> list[dict]:
    """Each layer and op once, with milliseconds by contender, and the choice's over the fewest."""
    found: dict[tuple, dict] = {}
    for row in rows:
        case = found.setdefault(tuple(row[name] for name in ROW), row | {"times": {}})
        if row["ms"]:
            case["times"][row["contender"]] = float(row["ms"])
    return [x | {"regret": x["times"][CHOSEN] / min(x["times"].values())} for x in found.values()]


def worth(*tables: Sequence[dict]) -> dict[str, list[float]]:
    """By line, the time without it over the time with it, the largest first, of rows of tables."""
    found: dict[str, list[float]] = {}
    for case in chain(*map(cases, tables)):
        for name, ms in case["times"].items():
            line = name.removeprefix(WITHOUT)
            if line != name:
                found.setdefault(line, []).append(ms / case["times"][CHOSEN])
    return {line: sorted(ratios, reverse=True) for line, ratios in found.items()}


def summary(rows: Sequence[dict]) -> str:
    """Regret by class and by line, and what each line is worth."""
    told = [f"{'chosen over fastest':32} rows  mean" + "".join(f"  over {x}" for x in HIGH)]
    for name, own in grouped(cases(rows), "class", "line").items():
        regrets = [case["regret"] for case in own]
        shares = (sum(x > high for x in regrets) / len(regrets) for high in HIGH)
        mean = f"{name:32} {len(regrets):4}  {geometric_mean(regrets):.2f}"
        told.append(mean + "".join(f"  {share:8.0%}" for share in shares))
    told += ["", f"{'without over with':32} rows  mean  most"]
    for line, ratios in sorted(worth(rows).items(), key=lambda x: -geometric_mean(x[1])):
        most = ", ".join(f"{x:.2f}" for x in ratios[:3])
        told.append(f"{line:32} {len(ratios):4}  {geometric_mean(ratios):.2f}  {most}")
    return "\n".join(told)


def main(argv: Sequence[str]) -> None:
    """Measure what the flags ask for, print a line per row and a summary, and write the results."""
    command = flags.choosing("benchmarks.regret", "the CPU table's choice against the fastest form")
    layers.define_rows(command)
    asked = command.read(argv)
    jax.config.update("jax_platforms", "cpu")
    about = {"schema": SCHEMA, "engines": {"jaxconv": _xla.versions([jaxconv])}}
    results = run.follow(asked.out, layers.jobs(asked), run_case, _line, lambda: about)
    print(summary(results["rows"]))


def _line(rows: list[dict]) -> str:
    [case] = cases(rows)
    times = case["times"]
    best = min(times, key=times.get)
    chosen = f"{case['layer']} {case['op']}: {case['line']} {times[CHOSEN]:.3g} ms"
    return f"{chosen}, {best} {times[best]:.3g} ms, {case['regret']:.2f}"


if __name__ == "__main__":
    flags.run(main)
