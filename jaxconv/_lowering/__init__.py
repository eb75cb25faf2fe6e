"""How a contraction is computed: a plan as data, then the forms that it names, in plain lax."""

from jaxconv._lowering.force import FORMS, PORTABLE, forced, forced_here
from jaxconv._lowering.lower import TABLES, lower, plan_of, planned
from jaxconv._lowering.measured import CHOSEN, Asked, Measured
from jaxconv._lowering.onednn_here import UntestedJaxlibWarning, unavailable
from jaxconv._lowering.plan import Plan
from jaxconv._lowering.problem import Numerics, Problem

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
    "forced",
    "forced_here",
    "lower",
    "plan_of",
    "planned",
    "unavailable",
]
