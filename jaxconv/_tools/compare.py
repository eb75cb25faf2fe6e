"""`Report.compare`: each convolution of a report, timed and checked against lax's."""

import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

from jaxconv._base import environment
from jaxconv._base.environment import FORCED, Lowered
from jaxconv._base.messages import one_line
from jaxconv._lax.install import bind_mapped, installed
from jaxconv._tools.clock import call_in_thread, draw_bar, race, time_call
from jaxconv._tools.flops import count_bytes
from jaxconv._tools.profile_row import Row, cut, format_cells

#: Seconds that one comparison takes, mostly to compile; more where lax is slow.
SECONDS_EACH = 1.5

#: A call that takes more seconds is timed once.
MAX_RACED_SECONDS = 0.5

#: Tensors of more bytes are left out.
MAX_BYTES = 1 << 30

#: Times that differ by less than this factor are alike.
NOISE = 1.1


@dataclass(frozen=True, repr=False)
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

    def __repr__(self) -> str:
        times = f"{self.jaxconv:9.3f}{self.lax:9.3f}{self.lax / self.jaxconv:7.1f}"
        off = f"{self.difference:.0e}" if self.difference else "exact"
        return cut(f"{times}{off:>7}{self.what}")


@dataclass(frozen=True, repr=False)
class Comparison:
    """All convolutions that could be compared, the least gain first."""

    listed: tuple[Compared, ...]
    #: how many kinds are split over devices, exported, for other devices, of unknown extents, or
    #: too large
    left_out: int
    #: the words for each kind that raised an error, and the error's first line below
    failed: tuple[str, ...] = ()

    def __repr__(self) -> str:
        if not (self.listed or self.failed or self.left_out):
            return "Nothing to compare: jaxconv computes no convolution of this report."
        ours = sum(c.count * c.jaxconv for c in self.listed)
        laxs = sum(c.count * c.lax for c in self.listed)
        slower = sum(c.jaxconv > NOISE * c.lax for c in self.listed)
        head = f"{'jaxconv':>9}{'lax, ms':>9}{'times':>7}{'off':>7}{'x':>4}{'MFLOP':>8}  what"
        verdict = f"jaxconv is over {NOISE - 1:.0%} slower for {slower} of {len(self.listed)} kinds"
        total = f"{ours:9.3f}{laxs:9.3f}  all of them"
        lines = [head, *map(repr, self.listed), total, verdict] if self.listed else []
        lines += self.failed
        if self.left_out:
            lines.append(
                f"left out: {self.left_out}, split over devices, not for this one, of symbolic "
                "extents or large"
            )
        return "\n".join(lines)


def compare(kinds: Iterable[tuple[Row, Lowered]]) -> Comparison:
    """Time and check each kind of convolution that this library computes, one by one."""
    taken = [(row, lowered) for row, lowered in kinds if lowered.contraction]
    small = [(row, lowered) for row, lowered in taken if _is_small(lowered)]
    listed, failed = [], []
    about = f"about {SECONDS_EACH * len(small):.0f} s"
    print(f"compare: {len(small)} kinds of convolution, {about}", file=sys.stderr, flush=True)
    on_terminal = sys.stderr.isatty()
    for done, (row, lowered) in enumerate(small):
        if on_terminal:
            draw_bar(sys.stderr, done, len(small), f"{done}/{len(small)}")
        try:
            wide = lowered.equation.results[0].dtype.itemsize == 8
            times = call_in_thread(lowered.target.platform, wide, _time_both, lowered)
            listed.append(Compared(format_cells(row), row.count, *times))
        except Exception as error:
            failed.append(f"{cut(format_cells(row))}\n{cut(f'  failed: {one_line(error)}')}")
    if on_terminal:
        print("\r\033[K", end="", file=sys.stderr, flush=True)
    listed.sort(key=lambda c: c.lax / c.jaxconv)
    return Comparison(tuple(listed), len(taken) - len(small), tuple(failed))


def _is_small(lowered: Lowered) -> bool:
    """Whether one device that is here computes it, of known extents that are not large."""
    size, target, backend = count_bytes(lowered), lowered.target, jax.default_backend()
    here = "cpu", backend if backend in ("cpu", "gpu") else None  # None is any other
    return target.alone and target.platform in here and size is not None and size <= MAX_BYTES


def _time_both(lowered: Lowered) -> tuple[float, float, float]:
    """Milliseconds by this library and by lax, and the difference of the results."""
    rng = np.random.default_rng(0)
    operands = [
        jax.device_put(rng.integers(-4, 5, t.shape).astype(t.dtype))
        for t in lowered.equation.operands
    ]
    calls = {name: _compiled(run, operands) for name, run in _bind_both(lowered).items()}
    ours, laxs = (np.asarray(call(), np.float64) for call in calls.values())
    best = {name: time_call(call) for name, call in calls.items()}
    if max(best.values()) < MAX_RACED_SECONDS:
        best = race(calls)
    difference = np.abs(ours - laxs).max(initial=0) / max(np.abs(laxs).max(initial=0), 1)
    return 1e3 * best["jaxconv"], 1e3 * best["lax"], float(difference)


def _compiled(run: Callable[..., Any], operands: list[jax.Array]) -> Callable[[], Any]:
    with installed(False), environment.collect():  # no program of the user's
        compiled = jax.jit(run).lower(*operands).compile()
    return lambda: jax.block_until_ready(compiled(*operands))


def _bind_both(lowered: Lowered) -> dict[str, Callable[..., Any]]:
    """The convolution as it was compiled, and as lax would compute it."""
    primitive, _, _, params = equation = lowered.equation

    def bind(**changes: Any) -> Callable[..., Any]:
        return lambda *operands: primitive.bind(*operands, **params | changes)

    if "geometry" in params:  # a contraction of this library's: lax's is the form `reference`
        return {"jaxconv": bind(sharding=None), "lax": bind(sharding=None, forced="reference")}
    assert lowered.contraction is not None
    forced = lowered.contraction.params.get("forced")

    def compute(*operands: Any) -> Any:
        with FORCED(forced):
            return bind_mapped(lowered.mapped, equation)(*operands)

    on_meshes = {"out_sharding": None} if "out_sharding" in params else {}
    return {"jaxconv": compute, "lax": bind(**on_meshes)}
