"""`python -m jaxconv --qualify`: is oneDNN's call right and safe in this release of jaxlib?

The call is private to XLA. A release that changed the call could answer with wrong values, end the
process or wait forever. So sweeps and threads run in other processes, each with a time limit:

- sweeps of named and random cases of the operations and their gradients, all exact. Sweeps run on
  one core, on which even oneDNN's fallback comes to an end (`onednn.py` says why the fallback
  must not be chosen), while oneDNN prints which of its implementations run, and the C library
  checks its heap;
- threads that run branches and loops at once on all cores.
"""

import os
import random
import re
import subprocess
import sys
import textwrap
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

import jaxconv
from jaxconv._checks.cases import ACTIVATIONS, OPERATIONS, compare
from jaxconv._checks.selfcheck import WIDTH, check_named, draw_case
from jaxconv._lowering import onednn_here
from jaxconv._lowering.cpu import to_coarse, to_kernel
from jaxconv._lowering.onednn_here import Verdict

SWEEP_SECONDS, THREADS_SECONDS = 25, 8  # of one sweep, and of the threads
SEEDS = (1, 2, 3)  # of the sweeps
MIN_CASES = 20  # random ones of a sweep, however slow the machine is
MIN_CALLS = 50  # of all sweeps together, for a verdict
ADDED = ("bias", "bias", "residual", "bias and residual")  # drawn: a bias alone twice as often

#: A process hangs that uses no processor for so long, or this much processor time for each core
#: that it may use, of which a sweep has one: on a busy machine, other time says little.
IDLE_SECONDS, BUSY_SECONDS = 30, 200

#: The C library ends a process that writes beyond its memory (glibc 2.34 or newer).
HEAP_CHECK = {"LD_PRELOAD": "libc_malloc_debug.so.0", "MALLOC_CHECK_": "3"}


def qualify() -> int:
    """Test the call in this environment, keep and print the verdict; return 1 if it is bad."""
    print(
        "\nIs oneDNN right and safe here? In processes of their own: random cases, exact,\n"
        "while oneDNN prints which of its implementations run; then eight threads.\n",
        flush=True,
    )
    if reason := onednn_here.why_impossible():
        verdict = Verdict(False, reason)
    else:
        verdict = judge()
        kept = onednn_here.write_verdict(verdict, onednn_here.features(), onednn_here.held_to())
        lost = "Not kept: JAXCONV_CACHE_DIR must be a folder to write to"
        print(f"\n{f'Kept in {kept}' if kept else lost}.")
    head = "good: jaxconv may call oneDNN" if verdict.good else "bad: jaxconv runs without oneDNN"
    print(textwrap.fill(f"{head}. {verdict.text[0].upper()}{verdict.text[1:]}.", WIDTH))
    return int(not verdict.good)


def judge(prelude: str = "") -> Verdict:
    """Run all parts until one fails; each process runs `prelude` first, in which tests sabotage."""
    ran: Counter[str] = Counter()
    for seed in SEEDS:
        found = _run(f"{prelude}\nsweep({seed})")
        if not found.good:
            return found
        ran.update(re.findall(r"^onednn_verbose.*,exec,cpu,convolution,([^,]*),", found.text, re.M))
        print(f"sweep of seed {seed}: exact; {_describe_calls(ran)} so far", flush=True)
    if slow := [name for name in ran if re.search("(?<!br)gemm|ref", name)]:
        return Verdict(False, f"its fallback {slow[0]} ran, which may wait for itself forever")
    if sum(ran.values()) < MIN_CALLS:
        return Verdict(False, f"only {sum(ran.values())} calls were seen to run")
    found = _run(f"{prelude}\nstress()", len(os.sched_getaffinity(0)))
    if not found.good:
        return found
    print(f"eight threads at once: {found.text.split()[-1]} programs, all alike", flush=True)
    listed = ", ".join(f"{count} by {name}" for name, count in ran.most_common())
    return Verdict(True, f"{_describe_calls(ran)}, all exact: {listed}")


def _describe_calls(ran: Counter[str]) -> str:
    return f"{sum(ran.values())} calls by {len(ran)} implementations"


def _run(code: str, cores: int = 1) -> Verdict:
    """Run code in another process: the verdict has its output, or says what went wrong."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=0"
    more = {"JAXCONV_ONEDNN": onednn_here.ALWAYS, "ONEDNN_VERBOSE": "1", "XLA_FLAGS": flags}
    more |= {"JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(x for x in sys.path if x)}
    more |= HEAP_CHECK
    with subprocess.Popen(
        [sys.executable, "-c", f"from jaxconv._checks.qualify import *\n{code}"],
        env={k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"} | more,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
    ) as process:
        written = _wait(process, BUSY_SECONDS * cores)
    if written is None:
        return Verdict(False, "it hangs: a process made no progress")
    out, errors = written
    if process.returncode:
        said = (errors.strip().splitlines() or ["nothing"])[-1][:200]
        return Verdict(False, f"a process ended with code {process.returncode} and said: {said}")
    return Verdict(True, out)


def _wait(process: subprocess.Popen[str], most: float) -> tuple[str, str] | None:
    """Wait for what a process writes; end one that hangs, or takes too long on all cores: None."""
    used, since = 0.0, time.monotonic()
    while True:
        try:
            return process.communicate(timeout=0.2)
        except subprocess.TimeoutExpired:
            now, passed = _processor_seconds(process.pid), time.monotonic()
        if now > used + 0.1:
            used, since = now, passed
        if passed - since > IDLE_SECONDS or used > most:
            process.kill()
            return None


def _processor_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:  # the process has ended
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# The code that the processes run.


def sweep(seed: int) -> None:
    """Check cases on one core for a while; stop with a sentence at the first wrong case."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    if named := check_named():
        sys.exit(named[0].split(";")[0])
    to_coarse.MIN_ONEDNN_WORK = to_kernel.MIN_WEIGHTS_WORK = 0  # so that small cases call it, too
    rng, end, done = random.Random(seed), time.monotonic() + SWEEP_SECONDS, 0
    while done < MIN_CASES or time.monotonic() < end:
        done += 1
        cases = [draw_case(rng, rng.choice(OPERATIONS))]
        if cases[0].operation in ("convolution", "conv_transpose"):
            activation, adds = rng.choice([*ACTIVATIONS]), rng.choice(ADDED)
            cases.append(replace(cases[0], activation=activation, adds=adds))
        for case in cases:
            if wrong := compare(case):
                sys.exit(f"{wrong}: {case!r}")


def stress() -> None:
    """Run one program of branches and a loop from eight threads, and compare all results."""
    rng = np.random.default_rng(0)
    src = rng.integers(-2, 3, (4, 12, 12, 16)).astype(np.float32)
    weights = rng.integers(-2, 3, (4, 3, 3, 8, 16)).astype(np.float32)

    def layer(src: jax.Array, weights: jax.Array) -> jax.Array:
        return jaxconv.convolution(src, weights, pads_begin=1, pads_end=1, groups=2)

    def loss(weights: jax.Array, src: jax.Array) -> jax.Array:
        branches = sum(jnp.sum(layer(src, one) ** 2) for one in weights)
        looped, _ = jax.lax.scan(
            lambda y, one: (jnp.clip(layer(y, one), -1, 1), None), src, weights
        )
        return branches + jnp.sum(looped)

    program = jax.jit(jax.value_and_grad(loss))
    expected = jax.tree.map(np.asarray, program(weights, src))
    end = time.monotonic() + THREADS_SECONDS

    def repeat(thread: int) -> int:
        count = 0
        while time.monotonic() < end:
            jax.tree.map(np.testing.assert_array_equal, program(weights, src), expected)
            count += 1
        return count

    with ThreadPoolExecutor(8) as threads:
        print(sum(threads.map(repeat, range(8))))
