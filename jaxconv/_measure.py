"""Time the spellings of what a function contracts, on this machine."""

import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import lax

from jaxconv import _lowering
from jaxconv._geometry import OPERANDS
from jaxconv._lowering import Measured, Problem

#: Seconds to time the spellings of one contraction in, and the fewest rounds.
BUDGET, ROUNDS = 0.25, 5
#: Spellings whose first calls take so many times the time of another are not timed further.
HOPELESS = 2.0
#: Nor are those that take longer to compile, or more temporary memory: so many times the bytes
#: of operands and result, and so many more.
COMPILE, TIMES, MORE = 1.0, 3, 32 << 20


def measure(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Measured:
    """Time each contraction that a function lowers to in several spellings, on CPU.

    The rules by which spellings are chosen were found on a few machines; another may be up to
    twice as fast by others. The function itself is traced and not run. Each contraction of new
    sizes takes one or two seconds.

    Args:
      function: of arrays, which may have been jitted; a training step, say.
      args, kwargs: what it takes. Its arrays may be given as `jax.ShapeDtypeStruct`.

    Returns:
      What `jaxconv.forced` takes, and what can be saved to a file and loaded from it. Contractions
      that were not measured, or are split over devices by XLA, are spelled by the rules.

    Example:
      >>> import functools, jax, jax.numpy as jnp, jaxconv
      >>> src, weights = jnp.ones((1, 8, 8, 2)), jnp.ones((3, 3, 2, 4))
      >>> measured = jaxconv.measure(jaxconv.convolution, src, weights)
      >>> with jaxconv.forced(measured):
      ...     jaxconv.convolution(src, weights).shape
      (1, 6, 6, 4)
    """
    asked = _lowering.Asked()
    traced = function if hasattr(function, "trace") else jax.jit(function)
    with _lowering.forced(asked):
        traced.trace(*args, **kwargs).lower(lowering_platforms=("cpu",))
    with jax.default_device(jax.devices("cpu")[0]):
        return Measured({name: _times(problem) for name, problem in asked.problems.items()})


def _times(problem: Problem) -> dict[str, float]:
    """Milliseconds by spelling, of those worth timing."""
    rng = np.random.default_rng(0)
    operands = [
        jax.device_put(rng.standard_normal(problem.shape(slot)).astype(problem.dtype))
        for slot in OPERANDS[problem.result]
    ]
    calls: dict[str, Callable[[], Any]] = {}
    best: dict[str, float] = {}
    for spelling in (_lowering.CHOSEN, *_lowering.contenders(problem)):
        call = _compiled(problem, spelling, operands)
        if call is not None:
            once = min(_seconds(call) for _ in range(3))
            if once <= HOPELESS * min(best.values(), default=math.inf):
                calls[spelling], best[spelling] = call, once
    rounds, end = 0, time.perf_counter() + BUDGET
    while len(calls) > 1 and (rounds < ROUNDS or time.perf_counter() < end):
        rounds += 1
        for spelling, call in calls.items():
            best[spelling] = min(best[spelling], _seconds(call))
    return {spelling: round(1e3 * seconds, 4) for spelling, seconds in best.items()}


def _compiled(problem: Problem, spelling: str, operands: list[Any]) -> Callable[[], Any] | None:
    """A call, of what the rules choose in any case, and of others where they are possible."""
    chosen = spelling == _lowering.CHOSEN
    spell = partial(
        _lowering.SPELL["cpu"],
        problem.result,
        geometry=problem.geometry,
        precision=(lax.Precision.DEFAULT,) * 2,
        dtype=problem.dtype,
        early_rounding=False,
        devices=1,
        spelling=None if chosen else spelling,
    )
    try:
        lowered = jax.jit(spell).lower(*operands)
    except ValueError:  # it, or what it rewrites to, cannot be spelled so
        return None
    start = time.perf_counter()
    compiled: Any = lowered.compile()
    taken, memory = time.perf_counter() - start, compiled.memory_analysis()
    allowed = TIMES * (memory.argument_size_in_bytes + memory.output_size_in_bytes) + MORE
    if not chosen and (taken > COMPILE or memory.temp_size_in_bytes > allowed):
        return None
    return lambda: jax.block_until_ready(compiled(*operands))


def _seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
