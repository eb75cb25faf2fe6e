"""`python -m jaxconv --qualify`: is oneDNN's call right and safe in this release of jaxlib?

The call is private to XLA. A release that changed it could answer with wrong values, end the
process or wait forever. So everything runs in processes of their own, each with a time limit:

- sweeps of named and random cases of the operations and their gradients, all exact. They run on
  one core, on which even oneDNN's fallback comes to an end (`onednn_call.py` says why it must not
  be chosen), while oneDNN prints which of its implementations run, and the C library checks its
  heap;
- threads that run branches and loops at once on all cores.
"""

import os
import random
import re
import subprocess
import sys
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import jax
import jax.numpy as jnp
import numpy as np

import jaxconv
from jaxconv import _selftest
from jaxconv._layouts import DATA_FORMATS, WEIGHTS_FORMATS
from jaxconv._lowering import onednn_here, onednn_verdict
from jaxconv._lowering.onednn_verdict import Verdict
from jaxconv._selfcheck import DTYPES, OPERATIONS

#: How long one sweep goes on, and the threads; a process that takes LIMIT_SECONDS more hangs.
SWEEP_SECONDS, THREADS_SECONDS, LIMIT_SECONDS = 25, 8, 20

#: The C library ends a process that writes beyond its memory (glibc 2.34 or newer).
HEAP_CHECK = {"LD_PRELOAD": "libc_malloc_debug.so.0", "MALLOC_CHECK_": "3"}

#: Seeds of the sweeps.
SEEDS = (1, 2, 3)

#: Fewest calls that all sweeps together must have run, for a verdict.
FEWEST_CALLS = 100


def qualify() -> Verdict:
    """Test the call in this environment, say how that goes, and keep the verdict."""
    if reason := onednn_here.impossible():
        return Verdict(False, reason)
    verdict = judge()
    kept = onednn_verdict.write(verdict, onednn_here.features(), onednn_here.held_to())
    print(f"\nKept in {kept}." if kept else "\nNo folder to keep it in: set JAXCONV_CACHE_DIR.")
    return verdict


def judge(prelude: str = "") -> Verdict:
    """Run all parts until one fails; each process runs `prelude` first, in which tests sabotage."""
    ran: Counter[str] = Counter()
    for seed in SEEDS:
        found = _run(f"{prelude}\nsweep({seed})", SWEEP_SECONDS)
        if not found.good:
            return found
        ran.update(re.findall(r"^onednn_verbose.*,exec,cpu,convolution,([^,]*),", found.text, re.M))
        listed = ", ".join(f"{count} by {name}" for name, count in ran.most_common())
        print(f"sweep of seed {seed}: exact; calls so far: {listed or 'none'}", flush=True)
    if slow := [name for name in ran if "gemm" in name or "ref" in name]:
        return Verdict(False, f"its fallback {slow[0]} ran, which may wait for itself forever")
    if sum(ran.values()) < FEWEST_CALLS:
        return Verdict(False, f"only {sum(ran.values())} calls were seen to run")
    found = _run(f"{prelude}\nstress()", THREADS_SECONDS)
    if not found.good:
        return found
    print(f"eight threads at once: {found.text.split()[-1]} programs, all alike", flush=True)
    return Verdict(True, f"{sum(ran.values())} calls by {len(ran)} implementations, all exact")


def _run(code: str, seconds: float) -> Verdict:
    """Run a part in a process of its own: what it printed, or what went wrong."""
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_backend_optimization_level=0"
    more = {"JAXCONV_ONEDNN": onednn_here.ALWAYS, "ONEDNN_VERBOSE": "1", "XLA_FLAGS": flags}
    more |= {"JAX_PLATFORMS": "cpu", "PYTHONPATH": os.pathsep.join(x for x in sys.path if x)}
    more |= HEAP_CHECK
    try:
        done = subprocess.run(
            [sys.executable, "-c", f"from jaxconv._qualify import *\n{code}"],
            env={k: v for k, v in os.environ.items() if k != "JAX_COMPILATION_CACHE_DIR"} | more,
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds + LIMIT_SECONDS,
        )
    except subprocess.TimeoutExpired:
        return Verdict(False, f"it hangs: no end within {seconds + LIMIT_SECONDS} s")
    if done.returncode:
        said = (done.stderr.strip().splitlines() or ["nothing"])[-1][:200]
        return Verdict(False, f"a process ended with code {done.returncode} and said: {said}")
    return Verdict(True, done.stdout)


# What the processes run.


def sweep(seed: int) -> None:
    """Check cases on one core for a while; stop with a sentence at the first wrong one."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    if wrong := _selftest.named():
        sys.exit(wrong[0].split(";")[0])
    rng, end = random.Random(seed), time.monotonic() + SWEEP_SECONDS
    while time.monotonic() < end:
        case = rng.choice([*OPERATIONS]), _selftest.draw(rng), rng.choice([*DTYPES])
        if told := _selftest.compare(*case, rng.choice(DATA_FORMATS), rng.choice(WEIGHTS_FORMATS)):
            sys.exit(f"{told}: {case}")


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
