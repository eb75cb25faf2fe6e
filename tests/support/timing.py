"""Comparing times on a noisy machine: by ratios, interleaved, the least of several."""

import time
from collections.abc import Callable


def takes_at_most(limit: float, one: Callable, other: Callable) -> bool:
    """Whether `one` takes at most `limit` times as long; a noisy moment is measured once more."""
    return any(least_ratio(one, other) <= limit for _ in range(2))


def least_ratio(one: Callable, other: Callable) -> float:
    """How many times as long `one` takes as `other`."""
    ratios = []
    for _ in range(7):
        ratios.append(min(timed(one) for _ in range(3)) / min(timed(other) for _ in range(3)))
    return min(ratios[1:])  # the first warms up


def timed(f: Callable) -> float:
    """Seconds of one call."""
    start = time.perf_counter()
    f()
    return time.perf_counter() - start
