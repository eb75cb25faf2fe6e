"""Named and random cases of the six operations and their gradients, against the defining sum.

With a cotangent for the result, all three tensors are checked at once. Integers must come out
exact, rounded once to the type; random float32 must be within a bound. The named cases come first:
sizes at which a library below was wrong on processors that we did not have.
"""

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import jax
import ml_dtypes
import numpy as np

from jaxconv._checks import cases
from jaxconv._checks.cases import DTYPES, OPERATIONS, Array, Case
from jaxconv._checks.layer import Layer
from jaxconv._checks.terminal import Progress
from jaxconv._rules.layouts import DATA_FORMATS, WEIGHTS_FORMATS

#: Coarse pixels along an axis, by rank.
MAX_EXTENTS = (0, 40, 12, 6)

#: Sizes at which oneDNN's bfloat16 code for AMX is wrong; `onednn.py` says why, and avoids it.
STRIDED = {
    "stride (3, 1), kernel (1, 3)": Layer(
        (67, 4), (1, 3), (3, 1), (1, 1), (0, 1), (0, 1), (32, 48),
    ),
    "stride 2, kernel (1, 3)": Layer(
        (67, 31), (1, 3), (2, 2), (1, 1), (0, 1), (0, 1), (32, 48),
    ),
    "stride 3, kernel 2x2": Layer((67, 31), (2, 2), (3, 3), (1, 1), (0, 0), (0, 0), (32, 48)),
    "stride 3, kernel 2x2, dilation 3": Layer(
        (67, 31), (2, 2), (3, 3), (3, 3), (0, 0), (0, 0), (32, 48),
    ),
    "stride 3, 3-D, width 1": Layer(
        (12, 14, 4), (3, 3, 3), (3, 3, 3), (1, 1, 1), (0, 0, 0), (0, 0, 0), (32, 48),
    ),
}  # fmt: skip

#: Sizes at which that code lets a NaN leak into sums over other windows. Windows tile the data.
LEAKING = {
    "NaN, one tap, 40 channels": Layer(
        (9, 8), (1, 1), (1, 1), (1, 1), (0, 0), (0, 0), (120, 144), groups=3,
    ),
    "NaN, one window of an image": Layer(
        (6, 5), (6, 5), (1, 1), (1, 1), (0, 0), (0, 0), (20, 48), batch=40,
    ),
}  # fmt: skip

NAMED = {name: Case("convolution", layer, "bf16") for name, layer in STRIDED.items()}
NAMED |= {name: Case("convolution", layer, "bf16", leaks=True) for name, layer in LEAKING.items()}


def test(count: int, seed: int) -> int:
    """Check named cases and `count` random cases; print a summary, return how many are wrong."""
    rng = random.Random(seed)
    right: Counter[tuple[str, str]] = Counter()
    total: Counter[tuple[str, str]] = Counter()
    wrong = check_named()
    named = f"{len(NAMED) - len(wrong)}/{len(NAMED)}"
    print(f"first, sizes at which oneDNN failed elsewhere: {named} right\n")
    progress = Progress(count)
    for number in range(count):
        case = draw_case(rng, OPERATIONS[number % len(OPERATIONS)])
        said = compare(case)
        key = case.operation, case.dtype
        total[key] += 1
        right[key] += not said
        if said:
            wrong += [_reproduce(case, said)]
        progress.step(f"{len(wrong)} wrong")
        if number % 50 == 49:
            jax.clear_caches()  # each case is a program of some MB
    _print_summary(right, total, wrong)
    return len(wrong)


def check_named() -> list[str]:
    """Check the named cases, and list what is wrong."""
    found = ((name, case, compare(case)) for name, case in NAMED.items())
    return [f"{name}: {_reproduce(case, said)}" for name, case, said in found if said]


def _reproduce(case: Case, said: str) -> str:
    line = f"from jaxconv._checks.selftest import *; print(compare({case!r}))"
    return f"{said}; reproduce it by:\n{line}"


def _print_summary(right: Counter[Any], total: Counter[Any], wrong: Sequence[str]) -> None:
    print(f"\n{'right of all':33}" + "".join(f"{label:>12}" for label in DTYPES))
    for operation in OPERATIONS:
        cells = (f"{right[operation, label]}/{total[operation, label]}" for label in DTYPES)
        print(f"{operation:33}" + "".join(f"{cell:>12}" for cell in cells))
    for text in wrong:
        print(f"\n{text}")


def draw_case(rng: random.Random, operation: str) -> Case:
    """Draw a case of an operation."""
    layer, dtype = draw_layer(rng), rng.choice([*DTYPES])
    return Case(operation, layer, dtype, (rng.choice(DATA_FORMATS), rng.choice(WEIGHTS_FORMATS)))


def draw_layer(rng: random.Random) -> Layer:
    """Draw a layer that is valid for all six operations."""
    rank = rng.choice((1, 2, 2, 3))
    groups = rng.choice((1, 1, 2, 3, 8, 16))
    inner, outer = (groups * rng.choice((1, 1, 2, 3, 4, 8, 13)) for _ in "io")
    sizes = zip(*(_axis(rng, MAX_EXTENTS[rank]) for _ in range(rank)), strict=True)
    fine, kernel, strides, dilations, begin, end = sizes
    batch = rng.choice((1, 2, 2, 3))
    return Layer(fine, kernel, strides, dilations, begin, end, (inner, outer), groups, batch)


def _axis(rng: random.Random, longest: int) -> tuple[int, ...]:
    """Draw fine extent, kernel, stride, dilation and pads that leave at least one coarse pixel."""
    while True:
        coarse, kernel = rng.randint(1, longest), rng.choice((1, 2, 3, 3, 4, 5, 7, 17))
        stride, dilation = rng.choice((1, 1, 2, 2, 3, 5)), rng.choice((1, 1, 1, 2, 3))
        extent = dilation * (kernel - 1) + 1
        begin, end = (rng.choice((0, 0, 1, extent // 2, extent - 1, extent + 1)) for _ in "be")
        unread = rng.randrange(stride)
        fine = stride * (coarse - 1) + extent + unread - begin - end
        if 1 <= fine <= 2 * longest:
            return fine, kernel, stride, dilation, begin, end


def compare(case: Case) -> str:
    """Say what is wrong with an operation in a case; empty if all is right.

    And with its gradients, unless something follows the sum or is not a number.
    """
    result, *_ = case.slots
    gradients = not (case.finishes or case.leaks)
    whole, broken = cases.draw(case)
    problems = [(whole, DTYPES[case.dtype])]
    if gradients and case.dtype == "f32":
        problems.append((broken, np.float32))
    try:
        run = cases.bind(case, gradients)
        computed = [tensors for problem in problems for tensors in run([problem])]
    except Exception as error:  # shown as a line, not as a traceback
        return f"{case}: {cases.one_line(error)}"
    for (tensors, _), of_problem in zip(problems, computed, strict=True):
        for slot in case.slots if gradients else (result,):
            terms = None if tensors is whole else case.layer.terms(slot)
            if said := _judge(case, of_problem[slot], cases.expect(case, slot, tensors), terms):
                what = "the result" if slot == result else f"the gradient by the {slot} tensor"
                return f"{case}: {what} {said}"
    return ""


def _judge(case: Case, values: Array, expected: Array, terms: int | None) -> str:
    """Say what is wrong with a tensor: of integers, or of random floats that sum so many terms."""
    if terms is not None:
        error, bound = cases.find_error(values, expected, terms)
        return "" if error <= bound else f"is off by {error:.1e}, above {bound:.1e}"
    if case.activation in cases.EXACT:
        wrong = cases.count_wrong(values, expected)
        return f"has {wrong} of {values.size} integers wrong" if wrong else ""
    # half a unit of rounding, and the approximation of the function
    bounds = float(ml_dtypes.finfo(values.dtype).eps) * np.abs(expected) + 2.0**-18
    off = float(np.max(np.abs(values.astype(np.float64) - expected) / bounds))
    return "" if off <= 1 else f"is off by {off:.1f} times the bound"
