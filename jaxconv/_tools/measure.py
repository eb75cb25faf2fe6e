"""`measure`: time the forms of each contraction of a function, on this machine."""

import math
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import lax

from jaxconv import _lowering
from jaxconv._base import environment
from jaxconv._base.dtypes import INT32
from jaxconv._base.environment import Target
from jaxconv._base.finish import NOTHING
from jaxconv._base.geometry import OPERANDS
from jaxconv._base.messages import shown
from jaxconv._lowering import CHOSEN, FORMS, PORTABLE, Measured, Problem
from jaxconv._tools.clock import call_in_thread, race, time_call
from jaxconv._tools.inspect import trace

#: The forms to time beside the table's choice.
CONTENDERS = (PORTABLE, *(name for name, form in FORMS.items() if form.contender))

#: Multiply-adds a result of a form to time: more take long to compile.
MAX_TERMS = 128

#: A form that takes this many times as long as another is not timed further.
MAX_TIME_RATIO = 2.0

#: Seconds that any form's first call may take, which reads its code and maps its memory.
FIRST_CALL_SECONDS = 0.1

#: The time in which a form must compile.
MAX_COMPILE_SECONDS = 1.0

#: Temporary memory of a form, in multiples of the bytes of operands and result, plus bytes.
MAX_MEMORY_RATIO, EXTRA_BYTES = 3, 32 << 20


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
      TypeError: no function.
      ValueError: the function contracts nothing that could be measured.

    Example:
      >>> import jax.numpy as jnp, jaxconv
      >>> src, weights = jnp.ones((1, 8, 8, 2)), jnp.ones((3, 3, 2, 4))
      >>> measured = jaxconv.measure(jaxconv.convolution, src, weights, strides=2)
      >>> with jaxconv.forced(measured):
      ...     jaxconv.convolution(src, weights, strides=2).shape
      (1, 3, 3, 4)
    """
    if not callable(function):
        raise TypeError(f"measure: `function` must be a function; got {shown(function)}")
    recorded = _lowering.Recorder()
    with _lowering.forced(recorded), environment.collect():  # no program of the user's
        trace(function, *args, **kwargs).lower(lowering_platforms=("cpu",))
    if not recorded.problems:
        raise ValueError(
            "measure: `function` must contract something, by the operations of jaxconv, or by "
            "jax.lax's where jaxconv.install() holds, on one device and of a batch of known size; "
            "nothing of the kind was found in it"
        )
    times = {
        name: call_in_thread("cpu", problem.bits == 64, _time_forms, problem)
        for name, problem in recorded.problems.items()
    }
    return Measured(times)


def _time_forms(problem: Problem) -> dict[str, float]:
    """Time the table's choice, and the contenders that are worth timing, in milliseconds."""
    rng = np.random.default_rng(0)
    finish, result = problem.finish or NOTHING, problem.shape(problem.result)
    shapes = [problem.shape(slot) for slot in OPERANDS[problem.result]]
    shapes += [(result[problem.geometry.data.channel],)] * finish.bias + [result] * finish.residual
    operands = [
        jax.device_put(rng.standard_normal(shape, np.float32).astype(problem.dtype))
        for shape in shapes
    ]
    calls: dict[str, Callable[[], Any]] = {}
    best: dict[str, float] = {}
    for form in (CHOSEN, *contenders(problem)):
        limit = MAX_TIME_RATIO * min(best.values(), default=math.inf)
        try:
            call = _compile(problem, form, operands)
            if call is None or time_call(call) > max(2 * limit, FIRST_CALL_SECONDS):
                continue
            once = min(time_call(call), time_call(call))
        except (ValueError, jax.errors.JaxRuntimeError):
            if form == CHOSEN:
                raise
            continue  # the form or its parts cannot compute the problem, or memory is short
        if once <= limit:
            calls[form], best[form] = call, once
    if len(calls) > 1:
        best = race(calls)
    return {form: round(1e3 * taken, 4) for form, taken in best.items()}


def contenders(problem: Problem) -> list[str]:
    """List the contenders with another plan than the table's, unless they compile long."""
    seen = {_name_forms(_lowering.choose_plan(problem, "cpu"))}
    found = []
    for name in CONTENDERS:
        if name == "multiply-adds" and problem.taps * problem.summed > MAX_TERMS:
            continue
        try:
            forms = _name_forms(_lowering.choose_plan(problem, "cpu", name))
        except ValueError:  # the form cannot compute this contraction
            continue
        if forms not in seen:
            seen.add(forms)
            found.append(name)
    return found


def _name_forms(plan: _lowering.Plan) -> tuple[str, ...]:
    return tuple(name for name, _ in plan.steps())


def _compile(problem: Problem, form: str, operands: list[jax.Array]) -> Callable[[], Any] | None:
    """Compile a form, and make a call; None if compiling is too long, or memory too much."""
    chosen = form == CHOSEN
    run = partial(
        _lowering.lower,
        problem.result,
        target=Target("cpu"),
        geometry=problem.geometry,
        precision=(lax.Precision.DEFAULT,) * 2,
        dtype=INT32 if problem.bits == 8 else problem.dtype,
        finish=problem.finish,
        forced=None if chosen else form,
    )
    lowered = jax.jit(run).lower(*operands)
    start = time.perf_counter()
    compiled = lowered.compile()
    taken, memory = time.perf_counter() - start, compiled.memory_analysis()
    if not chosen and (taken > MAX_COMPILE_SECONDS or (memory is not None and _takes_much(memory))):
        return None
    return lambda: jax.block_until_ready(compiled(*operands))


def _takes_much(memory: Any) -> bool:
    tensors = memory.argument_size_in_bytes + memory.output_size_in_bytes
    return bool(memory.temp_size_in_bytes > MAX_MEMORY_RATIO * tensors + EXTRA_BYTES)
