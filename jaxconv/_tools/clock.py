"""The clock of all that is timed here: calls take turns, and the fastest of each counts."""

import math
import random
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, TextIO

import jax

#: Seconds in which calls take turns.
BUDGET_SECONDS = 0.4
#: The fewest turns, however long they take.
MIN_ROUNDS = 3


def time_call(call: Callable[[], Any]) -> float:
    """The seconds of one call."""
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def race(calls: Mapping[str, Callable[[], Any]]) -> dict[str, float]:
    """Let several calls, compiled before, take turns: the fewest seconds of each.

    A turn has two calls, and the order changes: a call takes longer after one that left other data
    in the caches. In one order, of two equal programs the second took 0.96 of the first's time.
    """
    best = dict.fromkeys(calls, math.inf)
    order, shuffle = list(calls), random.Random(0).shuffle
    rounds, end = 0, time.perf_counter() + BUDGET_SECONDS
    while rounds < MIN_ROUNDS or time.perf_counter() < end:
        rounds += 1
        shuffle(order)
        for name in order:
            best[name] = min(best[name], time_call(calls[name]), time_call(calls[name]))
    return best


def time_both(
    ours: Callable[..., Any], laxs: Callable[..., Any], *arguments: Any
) -> tuple[float, float]:
    """Call two jitted functions, which compiles them, and let them take turns."""

    def call(function: Callable[..., Any]) -> None:
        jax.block_until_ready(function(*arguments))

    calls = {"jaxconv": partial(call, ours), "lax": partial(call, laxs)}
    for first_call in calls.values():
        first_call()
    best = race(calls)
    return best["jaxconv"], best["lax"]


def call_in_thread(
    platform: str | None, wide: bool, function: Callable[..., Any], *arguments: Any
) -> Any:
    """Call a function in a thread, where the caller's contexts do not hold, on a platform.

    None is the platform that JAX uses by itself. `wide` enables float64.
    """
    # Not above: it cannot be imported once Python's main thread has ended, and reports can be made.
    from concurrent.futures import ThreadPoolExecutor

    def call() -> Any:
        with jax.default_device(jax.devices(platform)[0]), jax.enable_x64(wide):
            return function(*arguments)

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(call).result()


def draw_bar(stream: TextIO, done: int, total: int, text: str) -> None:
    """Draw how far a long run is, over what the line of a terminal had before."""
    bar = "#" * (30 * done // total)
    print(f"\r\033[K[{bar:30}] {text}", end="", file=stream, flush=True)
