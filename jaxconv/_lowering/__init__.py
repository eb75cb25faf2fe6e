"""How a contraction is computed: a plan as data, then the forms that it names, in plain lax.

problem.py                      a contraction in sizes: what a choice looks at besides the processor
normal.py                       a problem without taps, pixels and axes that add nothing
form.py                         the records: a form, and a line of a table
cpu/                            a table for each slot: which form when, and why
gpu.py, tpu.py                  a table each
example.py                      a problem by a few sizes, for the witnesses of lines
plan.py                         from a primitive to a plan, the first line that holds, and to lax
force.py, measured.py           `forced`: a form by name, or those that were measured
isolate.py                      keeps XLA from fusing a form with its neighbours
onednn_here.py                  what this process may call
onednn_verdict.py               the verdicts of sweeps on this machine
forms/                          the forms
"""

from jaxconv._lowering.force import FORMS, PORTABLE, forced
from jaxconv._lowering.measured import CHOSEN, Asked, Measured
from jaxconv._lowering.onednn_here import UntestedJaxlibWarning, unavailable
from jaxconv._lowering.plan import TABLES, Plan, choose_plan, lower
from jaxconv._lowering.problem import Problem, problem_of

__all__ = [
    "CHOSEN",
    "FORMS",
    "PORTABLE",
    "TABLES",
    "Asked",
    "Measured",
    "Plan",
    "Problem",
    "UntestedJaxlibWarning",
    "choose_plan",
    "forced",
    "lower",
    "problem_of",
    "unavailable",
]
