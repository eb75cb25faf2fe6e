"""Random problems by oneDNN's call, in a process of its own: `test_onednn_sweeps.py` starts it."""

import os
import sys
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np

import jaxconv
from jaxconv import _lowering
from jaxconv._base.geometry import OPERANDS
from jaxconv._checks import selfcheck
from tests.support.small import SLOTS, TO, claims, draw, expected, kind, tensors


def run(seed: int, count: int, named: bool) -> None:
    """Compute so many problems on one core, and exit with an error if one is not exact."""
    os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
    assert _lowering.why_unavailable() is None, _lowering.why_unavailable()
    if named and (wrong := selfcheck.check_named()):
        sys.exit("; ".join(wrong))
    calls = list(_calls(seed, count))
    for some in (calls[n : n + 20] for n in range(0, len(calls), 20)):  # many calls a program
        compute = jax.jit(partial(_compute, [c[:3] for c in some]))
        results = compute([c[3] for c in some])
        for (problem, slot, _, given, exact), result in zip(some, results, strict=True):
            if not np.array_equal(result, exact):
                sys.exit(f"wrong {slot} in {given[0].dtype}: {problem}")


def _compute(some, many):
    return [_one(*one, operands) for one, operands in zip(some, many, strict=True)]


def _form(slot):
    """Forced, so that what is too little work is tried, too."""
    return "onednn-weights" if slot == "kernel" else "onednn"


def _one(problem, slot, order, operands):
    with jaxconv.forced(_form(slot)):
        more = {"preferred_element_type": jnp.float32, "weights_format": order}
        return problem.op(TO[slot], **more)(*operands)


def _calls(seed, count):
    """Problems, slots, the order of the kernel's axes, operands, and the exact result."""
    problems = draw(seed, count)
    # 3-D depthwise is called undilated alone, and few draws are.
    volumes = [p for p in draw(seed, 20 * count, (3,)) if kind(p) == "depthwise"]
    problems += [p for p in volumes if max(p.dilations) == 1][: count // 5]
    for number, problem in enumerate(problems):
        dtype = (jnp.float32, jnp.bfloat16, jnp.bfloat16, jnp.float16)[number % 4]
        drawn = tensors(problem)
        for slot in SLOTS:
            if not claims(problem, slot, _form(slot)):
                continue
            given, order = [jnp.asarray(drawn[s], dtype) for s in OPERANDS[slot]], "XIO"
            if slot != "kernel" and number % 3 == 0:  # a kernel of any order
                given[1], order = jnp.moveaxis(given[1], (-1, -2), (0, 1)), "OIX"
            yield problem, slot, order, given, expected(problem, slot, drawn)
