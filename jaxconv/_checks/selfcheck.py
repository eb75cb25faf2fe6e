"""Are the six operations right on this backend? Fixed layers, and random ones with gradients."""

import itertools
import math
import random
import sys
import textwrap
import time
from collections import Counter
from typing import Any

import jax

from jaxconv._base.messages import one_line
from jaxconv._checks import cases
from jaxconv._checks.cases import DTYPES, OPERATIONS, Case, Judgement, compare
from jaxconv._checks.layer import Layer
from jaxconv._rules.layouts import DATA_FORMATS, WEIGHTS_FORMATS
from jaxconv._tools.clock import draw_bar

WIDTH = 80
MAX_COMPLAINTS = 3  # of one operation

# `python -m jaxconv`: forward, in all types.

CASES = {
    "strided": Layer((7, 12), (3, 2), (2, 3), (1, 1), (1, 0), (0, 1), (3, 4)),
    "dilated, groups": Layer((4, 6), (2, 3), (1, 2), (3, 2), (2, 1), (1, 3), (6, 4), groups=2),
    "depthwise": Layer((5, 4), (3, 2), (1, 1), (1, 1), (1, 1), (1, 0), (6, 6), groups=6),
    "wide": Layer((4, 5), (3, 3), (1, 1), (1, 1), (1, 0), (1, 2), (24, 32)),
    "1-D, groups": Layer((21,), (4,), (3,), (1,), (1,), (2,), (6, 3), groups=3),
    "3-D": Layer((3, 6, 3), (2, 1, 3), (1, 2, 2), (2, 1, 1), (1, 0, 1), (0, 0, 2), (2, 3)),
}


def check() -> int:
    """Print a line for each operation; return how many are wrong."""
    print(
        f"\nIs it right? Each operation against a NumPy float64 loop over its defining sum,\n"
        f"{len(CASES)} cases: strided, dilated, grouped, depthwise, 1-D to 3-D, "
        f"with output_padding.\n"
        f"Integers must be exact, random f32 within 4 eps sqrt(terms) of the largest.\n",
        flush=True,
    )
    labels = "".join(f"{label:>6}" for label in DTYPES)
    print(f"{'operation':31}{labels}{'error':>10}{'bound':>10}")
    return sum(not _check_operation(operation) for operation in cases.OPERATIONS)


def _check_operation(operation: str) -> bool:
    """Print how many cases have exactly the right integers, and the error nearest to its bound."""
    exact = dict.fromkeys(DTYPES, 0)
    nearest = Judgement("")  # of random floats
    complaints: dict[str, None] = {}  # in order, and each once
    for (name, layer), dtype in itertools.product(CASES.items(), DTYPES):
        try:
            integers, *floats = cases.examine(Case(operation, layer, dtype))
        except Exception as error:  # shown as a line, not as a traceback
            complaints[f"{name}: {one_line(error)}"] = None
            continue
        exact[dtype] += not integers.wrong
        nearest = max([*floats, nearest], key=lambda judged: judged.error / judged.bound)
        wrong = (judged.wrong for judged in (integers, *floats) if judged.wrong)
        complaints |= dict.fromkeys(f"{name}, {dtype}: {words}" for words in wrong)
    counts = "".join(f"{f'{count}/{len(CASES)}':>6}" for count in exact.values())
    compared = nearest.bound < math.inf
    of_floats = f"{nearest.error:10.1e}{nearest.bound:10.1e}" if compared else " " * 20
    print(f"{operation:31}{counts}{of_floats}{'FAIL' if complaints else 'ok':>7}", flush=True)
    for complaint in list(complaints)[:MAX_COMPLAINTS]:
        print(indent(complaint))
    if len(complaints) > MAX_COMPLAINTS:
        print(indent(f"and {len(complaints) - MAX_COMPLAINTS} more"))
    return not complaints


def indent(text: str) -> str:
    """A complaint below the line that it belongs to."""
    return textwrap.fill(text, WIDTH, initial_indent="  ", subsequent_indent="    ")


# `python -m jaxconv --selftest`: with a cotangent for the result, all three tensors are checked at
# once.

#: Coarse pixels along an axis, by rank.
MAX_EXTENTS = (0, 40, 12, 6)

Sizes = dict[str, tuple[Any, ...]]  # the arguments of `Layer`

#: Where oneDNN's bfloat16 code is wrong, mostly with AMX alone, or takes its fallback; and a window
#: where its float32 is wrong. `onednn.py` says why, and avoids it.
FAILING: Sizes = {
    "stride (3, 1), kernel (1, 3)": ((67, 4), (1, 3), (3, 1), (1, 1), (0, 1), (0, 1), (32, 48)),
    "stride 2, kernel (1, 3)": ((67, 31), (1, 3), (2, 2), (1, 1), (0, 1), (0, 1), (32, 48)),
    "stride 3, kernel 2x2": ((67, 31), (2, 2), (3, 3), (1, 1), (0, 0), (0, 0), (32, 48)),
    "stride and dilation 3": ((67, 31), (2, 2), (3, 3), (3, 3), (0, 0), (0, 0), (32, 48)),
    "stride 3, 3-D": ((12, 14, 4), (3,) * 3, (3,) * 3, (1,) * 3, (0,) * 3, (0,) * 3, (32, 48)),
    "stride 4, 16 channels": ((8, 8), (4, 4), (4, 4), (1, 1), (0, 0), (0, 0), (16, 48), 1, 16),
    "one window, 16 channels": ((2, 4), (2, 4), (1, 1), (1, 1), (0, 0), (0, 0), (16, 48), 1, 64),
    "one window, one result": ((17, 16), (17, 16), (1, 1), (1, 1), (0, 0), (0, 0), (64, 1), 1, 16),
    "wide padding, groups": ((5,), (5,), (1,), (4,), (16,), (16,), (32, 32), 2, 16),
}

#: Where its code for AMX lets a NaN leak into sums over other windows. Windows tile the data.
LEAKING: Sizes = {
    "NaN, one tap, 40 channels": ((9, 8), (1, 1), (1, 1), (1, 1), (0, 0), (0, 0), (120, 144), 3),
    "NaN, one window": ((6, 5), (6, 5), (1, 1), (1, 1), (0, 0), (0, 0), (20, 48), 1, 40),
}

NAMED = {
    name: Case("convolution", Layer(*sizes), "bf16", nan_windows=name in LEAKING)
    for name, sizes in {**FAILING, **LEAKING}.items()
}


def selftest(count: int, seed: int) -> int:
    """Check named cases and `count` random cases; print a summary, return how many are wrong."""
    rng, start = random.Random(seed), time.monotonic()
    right: Counter[tuple[str, str]] = Counter()
    total: Counter[tuple[str, str]] = Counter()
    wrong = check_named()
    named = f"{len(NAMED) - len(wrong)}/{len(NAMED)}"
    print(f"first, sizes at which oneDNN failed elsewhere: {named} right\n")
    for done in range(1, count + 1):
        case = draw_case(rng, OPERATIONS[(done - 1) % len(OPERATIONS)])
        said = compare(case)
        total[case.operation, case.dtype] += 1
        right[case.operation, case.dtype] += not said
        wrong += [_reproduce(case, said)] if said else []
        left = (time.monotonic() - start) / done * (count - done) / 60
        state = f"{done}/{count}, {left:.1f} min left, {len(wrong)} wrong"
        if sys.stdout.isatty():
            draw_bar(sys.stdout, done, count, f"{state}\n" if done == count else state)
        elif 10 * done // count > 10 * (done - 1) // count:
            print(state, flush=True)
        if done % 50 == 0:
            jax.clear_caches()  # each case is a program of some MB
    print(f"\n{'right of all':33}" + "".join(f"{label:>12}" for label in DTYPES))
    for operation in OPERATIONS:
        cells = (f"{right[operation, label]}/{total[operation, label]}" for label in DTYPES)
        print(f"{operation:33}" + "".join(f"{cell:>12}" for cell in cells))
    for text in wrong:
        print(f"\n{text}")
    return len(wrong)


def check_named() -> list[str]:
    """Check the named cases, and list what is wrong."""
    said = {name: compare(case) for name, case in NAMED.items()}
    return [f"{name}: {_reproduce(NAMED[name], words)}" for name, words in said.items() if words]


def _reproduce(case: Case, said: str) -> str:
    line = f"from jaxconv._checks.cases import *; print(compare({case!r}))"
    return f"{said}; reproduce it by:\n{line}"


def draw_case(rng: random.Random, operation: str) -> Case:
    """Draw a case of an operation."""
    layer, dtype = draw_layer(rng), rng.choice([*DTYPES])
    return Case(operation, layer, dtype, (rng.choice(DATA_FORMATS), rng.choice(WEIGHTS_FORMATS)))


def draw_layer(rng: random.Random) -> Layer:
    """Draw a layer that is valid for all six operations."""
    rank = rng.choice((1, 2, 2, 3))
    groups = rng.choice((1, 1, 2, 3, 8, 16))
    inner, outer = (groups * rng.choice((1, 1, 2, 3, 4, 8, 13, 16)) for _ in "io")
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
