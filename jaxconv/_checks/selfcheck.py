"""Are the six operations right on this backend? A few layers, forward, in all types."""

import math
from dataclasses import dataclass, field

import numpy as np

from jaxconv._checks import cases
from jaxconv._checks.cases import DTYPES, Case
from jaxconv._checks.layer import Layer

CASES = {
    "strided": Layer((7, 12), (3, 2), (2, 3), (1, 1), (1, 0), (0, 1), (3, 4)),
    "dilated, groups": Layer((4, 6), (2, 3), (1, 2), (3, 2), (2, 1), (1, 3), (6, 4), groups=2),
    "depthwise": Layer((5, 4), (3, 2), (1, 1), (1, 1), (1, 1), (1, 0), (6, 6), groups=6),
    "wide": Layer((4, 5), (3, 3), (1, 1), (1, 1), (1, 0), (1, 2), (24, 32)),
    "1-D, groups": Layer((21,), (4,), (3,), (1,), (1,), (2,), (6, 3), groups=3),
    "3-D": Layer(
        (3, 6, 3), (2, 1, 3), (1, 2, 2), (2, 1, 1), (1, 0, 1), (0, 0, 2), (2, 3),
    ),
}  # fmt: skip


@dataclass
class Finding:
    """The outcome of all cases of one operation."""

    #: dtype -> number of cases with exactly the right integers
    exact: dict[str, int] = field(default_factory=lambda: dict.fromkeys(DTYPES, 0))
    #: error of the random case nearest to its bound, relative to the largest element
    error: float = 0.0
    bound: float = math.inf
    complaints: list[str] = field(default_factory=list)

    @property
    def compared(self) -> bool:
        """Whether a random case ran to its end."""
        return self.bound < math.inf

    @property
    def ok(self) -> bool:
        """Whether all cases passed."""
        return not self.complaints


def check(operation: str) -> Finding:
    """Compare an operation to the reference in all cases, on JAX's default device."""
    finding = Finding()
    for name, layer in CASES.items():
        try:
            _check_case(finding, name, Case(operation, layer))
        except Exception as error:  # shown as a line, not as a traceback
            finding.complaints.append(f"{name}: {cases.one_line(error)}")
    return finding


def _check_case(finding: Finding, name: str, case: Case) -> None:
    whole, broken = cases.draw(case)
    problems = [(whole, dtype) for dtype in DTYPES.values()] + [(broken, np.float32)]
    slot = case.slots[0]
    *of_integers, of_floats = (tensors[slot] for tensors in cases.bind(case)(problems))

    exact = cases.expect(case, slot, whole)
    for label, values in zip(DTYPES, of_integers, strict=True):
        wrong = cases.count_wrong(values, exact)
        finding.exact[label] += not wrong
        if wrong:
            finding.complaints.append(
                f"{name}, {label} integers: {wrong} of {values.size} elements are wrong"
            )

    exact = cases.expect(case, slot, broken)
    error, bound = cases.find_error(of_floats, exact, case.layer.terms(slot))
    if error / bound >= finding.error / finding.bound:
        finding.error, finding.bound = error, bound
    if error > bound:
        finding.complaints.append(f"{name}, random f32: off by {error:.1e}, above the bound")
