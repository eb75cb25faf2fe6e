"""Time the forms of what a function contracts, on this machine."""

import math
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import lax

from jaxconv import _lowering
from jaxconv._geometry import OPERANDS
from jaxconv._lowering import CHOSEN, Measured, Problem

#: What is tried beside what the table chooses: each was the fastest for some layer.
CONTENDERS = (
    _lowering.PORTABLE,
    "onednn",
    "convolution",
    "im2col",
    "dot",
    "multiply-adds",
    "by group",
)

#: Multiply-adds for each result of more than this make a program that is long to compile.
MOST_TERMS = 128

#: Seconds to time the forms of one contraction in, and the fewest rounds.
BUDGET, ROUNDS = 0.25, 5
#: A form that takes so many times the time of another is not timed further.
HOPELESS = 2.0
#: Nor is one that takes so many seconds to compile,
COMPILE = 1.0
#: or more temporary memory than so many times the bytes of operands and result, and so many more.
TIMES, MORE = 3, 32 << 20


def measure(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Measured:
    """Time each contraction that a function needs in several forms, on this machine's CPU.

    The table that chooses forms was found on a few machines; on another, some contractions may
    take up to twice as long as they need to. The function is lowered here, and not run. Each of its
    contractions takes one to a few seconds, by itself, in a process that should have the machine to
    itself. Call it outside of `jax.jit`.

    The result's last bits may change with the form: processes that must agree load one file.
    Contractions that XLA will split over devices, or of a symbolic batch, go by the table always.

    Args:
      function: a training step, say, jitted or not.
      args, kwargs: what it takes. Its arrays may be given as `jax.ShapeDtypeStruct`; what is no
        array is taken as it is, and so is a NumPy vector of ints: a shape, say, or strides.

    Raises:
      ValueError: the function contracts nothing that could be measured.

    Example:
      >>> import jax.numpy as jnp, jaxconv
      >>> src, weights = jnp.ones((1, 8, 8, 2)), jnp.ones((3, 3, 2, 4))
      >>> measured = jaxconv.measure(jaxconv.convolution, src, weights, strides=2)
      >>> with jaxconv.forced(measured):
      ...     jaxconv.convolution(src, weights, strides=2).shape
      (1, 3, 3, 4)
    """
    asked = _lowering.Asked()
    with _lowering.forced(asked):
        call, arrays = _of_arrays(function, args, kwargs)
        jax.jit(call).trace(*arrays).lower(lowering_platforms=("cpu",))
    if not asked.problems:
        raise ValueError(
            "measure: `function` must contract something, by the operations of jaxconv, on one "
            "device and of a batch of known size; nothing of the kind was found in it"
        )
    with ThreadPoolExecutor(1) as thread:  # where no context of the caller's holds
        return thread.submit(_measured, asked.problems).result()


def _of_arrays(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Callable[..., Any], list[Any]]:
    """The function of its arrays alone, wherever they are in its arguments, and these."""
    leaves, structure = jax.tree.flatten((args, kwargs))
    arrays = {place: leaf for place, leaf in enumerate(leaves) if _is_array(leaf)}

    def call(*traced: Any) -> Any:
        given = dict(enumerate(leaves)) | dict(zip(arrays, traced, strict=True))
        args, kwargs = jax.tree.unflatten(structure, given.values())
        return function(*args, **kwargs)

    return call, list(arrays.values())


def _is_array(x: Any) -> bool:
    """Not so NumPy's ints, one or a vector of them: operations want shapes and attributes known."""
    if isinstance(x, np.ndarray | np.generic) and np.issubdtype(x.dtype, np.integer):
        return x.ndim > 1
    return hasattr(x, "shape") and hasattr(x, "dtype")


def _measured(problems: dict[str, Problem]) -> Measured:
    found = {}
    for name, problem in problems.items():
        cpu = jax.devices("cpu")[0]
        with jax.default_device(cpu), jax.enable_x64(problem.bits == 64):
            found[name] = _milliseconds(problem)
    return Measured(found)


def _milliseconds(problem: Problem) -> dict[str, float]:
    """Of what the table chooses, and of the contenders that are worth timing."""
    rng = np.random.default_rng(0)
    operands = [
        jax.device_put(rng.standard_normal(problem.shape(slot), np.float32).astype(problem.dtype))
        for slot in OPERANDS[problem.result]
    ]
    calls: dict[str, Callable[[], Any]] = {}
    best: dict[str, float] = {}
    for form in (CHOSEN, *contenders(problem)):
        limit = HOPELESS * min(best.values(), default=math.inf)
        try:
            call = _compiled(problem, form, operands)
            if call is None or _seconds(call) > 2 * limit:  # the first one warms up
                continue
            once = min(_seconds(call), _seconds(call))
        except (ValueError, jax.errors.JaxRuntimeError):
            if form == CHOSEN:
                raise
            continue  # it, or what it rewrites to, cannot be computed so, or lacks memory
        if once <= limit:
            calls[form], best[form] = call, once
    rounds, end = 0, time.perf_counter() + BUDGET
    while len(calls) > 1 and (rounds < ROUNDS or time.perf_counter() < end):
        rounds += 1
        for form, call in calls.items():
            best[form] = min(best[form], _seconds(call))
    return {form: round(1e3 * seconds, 4) for form, seconds in best.items()}


def contenders(problem: Problem) -> list[str]:
    """The forms that make another plan than the table does, none of them a long program."""
    seen = {_lowering.planned(problem, "cpu")}
    found = []
    for name in CONTENDERS:
        if name == "multiply-adds" and problem.taps * problem.summed > MOST_TERMS:
            continue
        try:
            plan = _lowering.planned(problem, "cpu", name)
        except ValueError:  # it cannot compute this contraction
            continue
        if plan not in seen:
            seen.add(plan)
            found.append(name)
    return found


def _compiled(problem: Problem, form: str, operands: list[jax.Array]) -> Callable[[], Any] | None:
    """A call; None if the form takes too much to compile or to run."""
    chosen = form == CHOSEN
    run = partial(
        _lowering.lower,
        problem.result,
        platform="cpu",
        geometry=problem.geometry,
        precision=(lax.Precision.DEFAULT,) * 2,
        dtype=problem.dtype,
        early_rounding=False,
        forced=None if chosen else form,
        devices=1,
        exported=False,
    )
    lowered = jax.jit(run).lower(*operands)
    start = time.perf_counter()
    compiled = lowered.compile()
    taken, memory = time.perf_counter() - start, compiled.memory_analysis()
    if not chosen and (taken > COMPILE or (memory is not None and _large(memory))):
        return None
    return lambda: jax.block_until_ready(compiled(*operands))


def _large(memory: Any) -> bool:
    allowed = TIMES * (memory.argument_size_in_bytes + memory.output_size_in_bytes) + MORE
    return bool(memory.temp_size_in_bytes > allowed)


def _seconds(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
