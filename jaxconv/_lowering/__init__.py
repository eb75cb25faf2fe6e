"""How a contraction is spelled for XLA, per platform.

A platform's `spell` takes the result's slot, the two operands in the order of `OPERANDS`
and the parameters of the primitive; it returns the third tensor, in plain lax.
"""

from collections.abc import Callable
from typing import Any

from jaxconv._lowering import accelerator, cpu, gpu
from jaxconv._lowering.force import forced, forced_here
from jaxconv._lowering.measured import CHOSEN, Asked, Measured
from jaxconv._lowering.problem import Problem, Rule

#: `None` is every platform without a rule of its own; JAX takes "gpu" for CUDA and ROCm.
SPELL: dict[str | None, Callable[..., Any]] = {
    None: accelerator.spell,
    "cpu": cpu.spell,
    "gpu": gpu.spell,
}

__all__ = [
    "CHOSEN",
    "SPELL",
    "Asked",
    "Measured",
    "Problem",
    "Rule",
    "forced",
    "forced_here",
]
