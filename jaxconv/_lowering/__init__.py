"""How a contraction is computed: a plan as data, then the forms that it names, in plain lax."""

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
