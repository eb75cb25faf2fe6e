"""How a contraction is spelled for XLA, per platform.

A spelling takes the two operands of a contraction, in the order of `OPERANDS`, and the
parameters `geometry`, `precision`, `dtype` and `early_rounding`; it returns the third
tensor, in plain lax. `None` is every platform without a rule of its own.
"""

from collections.abc import Callable
from typing import Any

from jaxconv._geometry import Slot
from jaxconv._lowering import accelerator, cpu

Spelling = Callable[..., Any]

RULES: dict[Slot, dict[str | None, Spelling]] = {
    slot: {None: accelerator.SPELLINGS[slot], "cpu": cpu.SPELLINGS[slot]}
    for slot in accelerator.SPELLINGS
}
