"""How a contraction is computed: a plan as data, then the forms that it names, in lax.

problem.py        a contraction in sizes; the records of a form, and of a line of a table
normal.py         a problem without taps, pixels and axes that add nothing
cpu/              a table for each slot: which form when, and why
gpu.py, tpu.py    a table each, and its own form
plan.py           forms for a contraction and its parts; then operations of lax
force.py          `forced`: a form by name, or those that were measured
onednn_here.py    whether this process may call oneDNN, and the verdicts of sweeps
forms/            the forms
"""

from jaxconv._lowering.force import CHOSEN, FORMS, PORTABLE, Measured, Recorder, forced
from jaxconv._lowering.onednn_here import UntestedJaxlibWarning, why_unavailable
from jaxconv._lowering.plan import TABLES, Plan, choose_plan, lower
from jaxconv._lowering.problem import Problem, problem_of

__all__ = [
    "CHOSEN",
    "FORMS",
    "PORTABLE",
    "TABLES",
    "Measured",
    "Plan",
    "Problem",
    "Recorder",
    "UntestedJaxlibWarning",
    "choose_plan",
    "forced",
    "lower",
    "problem_of",
    "why_unavailable",
]
