"""CPU: which form computes which contraction.

`to_coarse.py`, `to_fine.py` and `to_kernel.py` have a table for the result in each slot.

The first line that holds decides (`Line.holds`). Contractions to the fine tensor are mostly
rewritten as contractions to the coarse tensor. oneDNN, where jaxlib carries
oneDNN, computes what oneDNN is fast at. The last lines of a table are the portable forms.

A form says what it cannot compute, and how it cuts blocks. All else that says what is faster stands
here: a limit above the function that reads it, and in `common.py` what several tables read.
"""

from jaxconv._lowering.cpu import to_coarse, to_fine, to_kernel
from jaxconv._lowering.problem import Tables

TABLES: Tables = {"coarse": to_coarse.TABLE, "fine": to_fine.TABLE, "kernel": to_kernel.TABLE}
