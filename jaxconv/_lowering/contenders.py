"""What `jaxconv.measure` tries beside what the rules choose, data channels last."""

from jaxconv._lowering.choice import choose, possible
from jaxconv._lowering.conditions import most_terms
from jaxconv._lowering.problem import Problem

#: Each was the fastest of all for some layer of the benchmark, of one group and of several. The
#: reference is not among them, as it is slow within loops.
DENSE = ("direct", "columns", "dots", "slabs", "abreast", "images")
GROUPED = ("taps", "skewed", "strips", "each", "columns", "abreast")

#: Those of them that have a piece of the program for each tap, or for each term.
UNROLLED = ("taps", "skewed", "strips", "columns", "dots", "slabs")


def contenders(p: Problem) -> list[str]:
    """None whose program would be long, or with which XLA:CPU may abort the process."""
    chosen = choose(p)
    without = set() if chosen.channels_first else {chosen.spelling}
    if p.taps * (1 if p.dense else p.summed) > most_terms(p):
        without |= {*UNROLLED}
    if p.result == "fine" and p.fine == 1 and p.strided:
        without |= {"direct"}
    names = DENSE if p.dense else GROUPED
    return [name for name in names if name not in without and possible(name, p)]
