"""TPU, and whatever else has no table of its own: one convolution in the layouts at hand.

XLA:TPU needs no rewrites; large axes kept whole serve it best.
"""

from jaxconv._lowering import reference
from jaxconv._lowering.plan import Regime, Table

TABLE: Table = (
    Regime("empty", reference.ZEROS, lambda p: p.empty, "nothing is summed"),
    Regime("all others", reference.FORM, lambda p: True, "one convolution"),
)
