"""TPU, and whatever else has no table of its own: one convolution in the layouts at hand.

XLA:TPU needs no rewrites; large axes kept whole serve it best.
"""

from jaxconv._lowering.form import Line, Table
from jaxconv._lowering.forms import reference

TABLE: Table = (
    Line("empty", reference.ZEROS, lambda p: p.empty, "nothing is summed"),
    Line("all others", reference.FORM, lambda p: True, "one convolution"),
)
