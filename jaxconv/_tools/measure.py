"""`measure`: time the forms of each contraction of a function, on this machine."""

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
from jaxconv._base.geometry import OPERANDS
from jaxconv._lowering import CHOSEN, Measured, Problem

#: Forms to time beside the table's choice: each was the fastest for some layer.
CONTENDERS = (
    _lowering.PORTABLE,
    "onednn",
    "convolution",
    "im2col",
    "col2im",
    "dot",
    "multiply-adds",
    "by group",
)

#: Most multiply-adds a result of a form to time: more take long to compile.
MOST_TERMS = 128

#: Seconds in which to time the forms of one contraction, and the fewest rounds.
BUDGET, ROUNDS = 0.25, 5
#: A form that takes this many times as long as another is not timed further.
HOPELESS = 2.0
#: Most seconds that a form may take to compile.
COMPILE = 1.0
#: Most temporary memory of a form: TIMES the bytes of operands and result, and MORE bytes.
TIMES, MORE = 3, 32 << 20


def measure(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Measured:
    """Time each contraction that a function needs in several forms, on this machine's CPU.

    The table that chooses forms was found on a few machines; on another, some contractions may
    take up to twice as long as they need to. The function is lowered, and not run. Timing each of
    its contractions takes one to a few seconds, in which nothing else should run on the machine.
    Call `measure` outside of `jax.jit`.

    The result's last bits may change with the form: processes that must agree load one file.
    Contractions that XLA splits over devices, or of a symbolic batch, always go by the table.

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
    recorded = _lowering.Asked()
    with _lowering.forced(recorded):
        call, arrays = _of_arrays(function, args, kwargs)
        jax.jit(call).trace(*arrays).lower(lowering_platforms=("cpu",))
    if not recorded.problems:
        raise ValueError(
            "measure: `function` must contract something, by the operations of jaxconv, on one "
            "device and of a batch of known size; nothing of the kind was found in it"
        )
    with ThreadPoolExecutor(1) as thread:  # the caller's contexts do not hold there
        return thread.submit(_measured, recorded.problems).result()


def _of_arrays(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Callable[..., Any], list[Any]]:
    """A function of the arrays among the arguments alone, and these arrays."""
    leaves, structure = jax.tree.flatten((args, kwargs))
    arrays = {place: leaf for place, leaf in enumerate(leaves) if _is_array(leaf)}

    def call(*traced: Any) -> Any:
        given = dict(enumerate(leaves)) | dict(zip(arrays, traced, strict=True))
        args, kwargs = jax.tree.unflatten(structure, given.values())
        return function(*args, **kwargs)

    return call, list(arrays.values())


def _is_array(x: Any) -> bool:
    """Whether `x` is an array; NumPy ints, or a vector of them, are a shape or an attribute."""
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
    """Milliseconds of the table's choice, and of the contenders that are worth timing."""
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
            if call is None or seconds(call) > 2 * limit:  # the first one warms up
                continue
            once = min(seconds(call), seconds(call))
        except (ValueError, jax.errors.JaxRuntimeError):
            if form == CHOSEN:
                raise
            continue  # the form or its parts cannot compute it, or memory is short
        if once <= limit:
            calls[form], best[form] = call, once
    race(calls, best)
    return {form: round(1e3 * taken, 4) for form, taken in best.items()}


def race(calls: dict[str, Callable[[], Any]], best: dict[str, float]) -> None:
    """Let several calls take turns, and keep the fewest seconds of each."""
    rounds, end = 0, time.perf_counter() + BUDGET
    while len(calls) > 1 and (rounds < ROUNDS or time.perf_counter() < end):
        rounds += 1
        for name, call in calls.items():
            best[name] = min(best[name], seconds(call))


def contenders(problem: Problem) -> list[str]:
    """The contenders with another plan than the table's, except those that compile long."""
    seen = {_lowering.choose_plan(problem, "cpu")}
    found = []
    for name in CONTENDERS:
        if name == "multiply-adds" and problem.taps * problem.summed > MOST_TERMS:
            continue
        try:
            plan = _lowering.choose_plan(problem, "cpu", name)
        except ValueError:  # the form cannot compute this contraction
            continue
        if plan not in seen:
            seen.add(plan)
            found.append(name)
    return found


def _compiled(problem: Problem, form: str, operands: list[jax.Array]) -> Callable[[], Any] | None:
    """A call of the compiled form; None if it took too long to compile, or needs much memory."""
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


def seconds(call: Callable[[], Any]) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start
