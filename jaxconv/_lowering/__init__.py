"""How a contraction is computed: a plan as data, then the forms that it names, in plain lax.

problem.py                      a contraction in sizes: all that a choice may look at
normal.py                       a problem without taps, pixels and axes that add nothing
form.py                         the records: a form, and a line of a table
cpu.py, gpu.py, tpu.py          a table each: which form when, and why
tables.py                       the tables by platform, the forms by name
plan.py                         the first line that holds: a plan; following a plan
lower.py                        from a primitive's parameters to a plan, and to lax
force.py, measured.py           `forced`: a form by name, or those that were measured
isolate.py                      keeps XLA from fusing a form with its neighbours
onednn_here.py, xla_here.py     what this process may call; how fast this XLA is
onednn_verdict.py               the verdicts of sweeps on this machine
forms/                          the forms
"""

from jaxconv._lowering.force import forced, forced_here
from jaxconv._lowering.lower import lower, problem_of
from jaxconv._lowering.measured import CHOSEN, Asked, Measured
from jaxconv._lowering.onednn_here import UntestedJaxlibWarning, unavailable
from jaxconv._lowering.plan import Plan, choose_plan
from jaxconv._lowering.problem import Numerics, Problem
from jaxconv._lowering.tables import FORMS, PORTABLE, TABLES

__all__ = [
    "CHOSEN",
    "FORMS",
    "PORTABLE",
    "TABLES",
    "Asked",
    "Measured",
    "Numerics",
    "Plan",
    "Problem",
    "UntestedJaxlibWarning",
    "choose_plan",
    "forced",
    "forced_here",
    "lower",
    "problem_of",
    "unavailable",
]
