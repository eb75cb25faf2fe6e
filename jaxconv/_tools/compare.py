"""`Report.compare`: each convolution of a report, timed and checked against lax's."""

import math
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import lax

from jaxconv._base.contexts import FORCED
from jaxconv._base.lowerings import Lowered
from jaxconv._lax.from_lax import Mapped, as_contraction, compute
from jaxconv._lax.install import installed
from jaxconv._lax.max_pool import MaxPool, as_max_pool
from jaxconv._lax.max_pool import compute as compute_pool
from jaxconv._tools.clock import race, time_call

#: Columns of what is printed.
WIDTH = 100

#: Seconds that one comparison takes, mostly to compile; more where lax is slow.
ABOUT = 1.5

#: A call that takes more seconds is timed once, and operands of more bytes are not.
SLOW, MOST_BYTES = 0.5, 1 << 30

#: Times that differ by less than this factor are alike.
NOISE = 1.1


@dataclass(frozen=True)
class Compared:
    """A kind of convolution by this library and by lax."""

    #: the words of the report for it
    what: str
    #: how often the report has it
    count: int
    #: milliseconds of one call
    jaxconv: float
    lax: float
    #: the largest difference of two results, of the largest element; operands are small integers
    difference: float

    def __str__(self) -> str:
        times = f"{self.jaxconv:9.3f}{self.lax:9.3f}{self.lax / self.jaxconv:7.1f}"
        off = f"{self.difference:.0e}" if self.difference else "exact"
        return fitted(f"{times}{off:>7}{self.what}")


@dataclass(frozen=True)
class Comparison:
    """All convolutions that could be compared, the least gain first."""

    listed: tuple[Compared, ...]
    #: how many kinds are split over devices, of unknown extents, or too large
    left_out: int
    #: the words for each kind that raised an error, and the error's first line below
    failed: tuple[str, ...] = ()

    def __str__(self) -> str:
        ours = sum(c.count * c.jaxconv for c in self.listed)
        laxs = sum(c.count * c.lax for c in self.listed)
        slower = sum(c.jaxconv > NOISE * c.lax for c in self.listed)
        head = f"{'jaxconv':>9}{'lax, ms':>9}{'times':>7}{'off':>7}{'x':>4}{'MFLOP':>8}  what"
        lines = [head, *map(str, self.listed), f"{ours:9.1f}{laxs:9.1f}  all of them"]
        lines += [
            f"jaxconv is over {NOISE - 1:.0%} slower for {slower} of {len(self.listed)} kinds"
        ]
        lines += self.failed
        left = f"left out: {self.left_out}, split over devices, of symbolic extents or large"
        return "\n".join(lines + [left] * bool(self.left_out))


def compare(kinds: Iterable[tuple[str, int, Lowered]]) -> Comparison:
    """Time and check each kind of convolution that this library computes, one by one."""
    taken = [kind for kind in kinds if kind[2].contraction]
    fit = [kind for kind in taken if kind[2].devices == 1 and _bytes(kind[2]) <= MOST_BYTES]
    found, failed = [], []
    with ThreadPoolExecutor(1) as thread:  # the caller's contexts do not hold there
        _tell(f"compare: {len(fit)} kinds of convolution, about {ABOUT * len(fit):.0f} s\n")
        for done, (what, count, lowered) in enumerate(fit):
            if sys.stderr.isatty():
                _tell(f"\r\033[K[{'#' * (30 * done // len(fit)):30}] {done}/{len(fit)}")
            try:
                found.append(Compared(what, count, *thread.submit(_both, lowered).result()))
            except Exception as error:
                first = f"{type(error).__name__}: {error}".splitlines()[0]
                failed.append(f"{fitted(what)}\n{fitted(f'  failed: {first}')}")
        if sys.stderr.isatty():
            _tell("\r\033[K")
    found.sort(key=lambda c: c.lax / c.jaxconv)
    return Comparison(tuple(found), len(taken) - len(fit), tuple(failed))


def fitted(text: str) -> str:
    """A line that is cut to the columns of what is printed."""
    return text if len(text) <= WIDTH else f"{text[: WIDTH - 1]}…"


def _tell(text: str) -> None:
    print(text, end="", file=sys.stderr, flush=True)


def _bytes(lowered: Lowered) -> float:
    """Bytes of operands and result; infinite for symbolic extents."""
    types = (*lowered.equation.operands, *lowered.equation.results)
    if not all(isinstance(n, int) for t in types for n in t.shape):
        return math.inf
    return float(sum(math.prod(t.shape) * t.dtype.itemsize for t in types))


def _both(lowered: Lowered) -> tuple[float, float, float]:
    """Milliseconds by this library and by lax, and the difference of the results."""
    rng = np.random.default_rng(0)
    equation, wide = lowered.equation, lowered.equation.results[0].dtype.itemsize == 8
    with jax.default_device(jax.devices("cpu")[0]), jax.enable_x64(wide):
        operands = [
            jax.device_put(rng.integers(-4, 5, t.shape).astype(t.dtype)) for t in equation.operands
        ]
        calls = {name: _compiled(run, operands) for name, run in _ways(lowered).items()}
        ours, laxs = (np.asarray(call(), np.float64) for call in calls.values())
        best = {name: time_call(call) for name, call in calls.items()}
        if max(best.values()) < SLOW:
            best = race(calls)
    difference = np.abs(ours - laxs).max(initial=0) / max(np.abs(laxs).max(initial=0), 1)
    return 1e3 * best["jaxconv"], 1e3 * best["lax"], float(difference)


def _compiled(run: Callable[..., Any], operands: list[jax.Array]) -> Callable[[], Any]:
    with installed(False):
        compiled = jax.jit(run).lower(*operands).compile()
    return lambda: jax.block_until_ready(compiled(*operands))


def _ways(lowered: Lowered) -> dict[str, Callable[..., Any]]:
    """The convolution as it was compiled, and as lax would."""
    (primitive, types, (result,), params), contraction = lowered[:2]
    forced = contraction.params.get("forced") if contraction else None

    def bound(**changes: Any) -> Callable[..., Any]:
        return lambda *operands: primitive.bind(*operands, **params | changes)

    pool = as_max_pool(types, **params) if primitive is lax.select_and_scatter_add_p else None
    if isinstance(pool, MaxPool):
        return {"jaxconv": partial(compute_pool, pool), "lax": bound()}
    if primitive is not lax.conv_general_dilated_p:
        return {"jaxconv": bound(sharding=None), "lax": bound(sharding=None, forced="reference")}
    found = as_contraction(types, result, **params)
    assert isinstance(found, Mapped)

    def taken_over(*operands: Any) -> Any:
        with FORCED(forced):
            return compute(found, params, result.dtype, *operands)

    return {"jaxconv": taken_over, "lax": bound(out_sharding=None)}
