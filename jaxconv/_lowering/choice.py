"""Which spelling for which contraction on CPU: the first rule that holds."""

from collections.abc import Callable
from dataclasses import dataclass

from jaxconv._lowering.problem import Problem

#: As many multiply-adds as one fused loop may hold before compiling it takes too long.
MOST_TERMS = 128


@dataclass(frozen=True)
class Rule:
    """Use `spelling` `when` this holds, because of `why`."""

    spelling: str
    when: Callable[[Problem], bool]
    why: str


#: What a spelling cannot do at all; one that is not named can do everything.
POSSIBLE: dict[str, Callable[[Problem], bool]] = {
    "matmul": lambda p: p.dense and (p.pointwise or p.patches),
    "phases": lambda p: p.result == "fine",
    "slabs": lambda p: p.geometry.rank > 1,
}

RULES = (
    Rule("matmul", POSSIBLE["matmul"], "one tap, or windows that tile: one dot"),
    Rule(
        "direct",
        lambda p: (
            p.result == "fine"
            and p.dense
            and p.strided
            and p.fine == 1
            # In more dimensions some of these forms make XLA:CPU abort the process.
            and p.geometry.rank == 1
        ),
        "a one-channel waveform: XLA has a dot and a scatter for it",  # wav2vec2-k10-s5, data
    ),
    Rule("phases", POSSIBLE["phases"], "as stride-1 convolutions, which are fast forms"),
    Rule(
        "dots",
        lambda p: not p.dense and p.pointwise and p.result == "kernel",
        "grouped and one tap: one dot with the groups as its batch",
    ),
    Rule(
        "taps",
        lambda p: not p.dense and p.fine <= 8 and p.taps * p.fine <= MOST_TERMS,
        "few channels a group: multiply-adds instead of XLA's scalar loops",
    ),
    Rule(
        "dots",
        lambda p: not p.dense and p.partitioned,
        "grouped and split over devices: a grouped convolution would gather the batch",
    ),
    Rule(
        "slabs",
        lambda p: p.dense and p.geometry.rank > 2 and p.result == "coarse",
        "XLA's fast convolution has two spatial axes",
    ),
    Rule("direct", lambda p: True, "no faster form is known: one convolution"),
)


def choose(problem: Problem) -> Rule:
    """The first rule that holds."""
    return next(rule for rule in RULES if rule.when(problem))


def possible(spelling: str, problem: Problem) -> bool:
    """Whether a spelling can spell a problem."""
    return spelling not in POSSIBLE or POSSIBLE[spelling](problem)
