"""Spellings by measurement: which one was fastest, on one machine with one version of JAX."""

import json
import os
import platform
from collections.abc import Mapping
from pathlib import Path

import jax

from jaxconv._lowering.choice import by_hand
from jaxconv._lowering.problem import Problem, Rule

#: Among the spellings of a contraction, whatever the rules choose.
CHOSEN = "chosen"

#: What takes more of the time of what the rules choose is not known to be faster.
WORTH = 0.95


class Measured:
    """What `jaxconv.measure` found: milliseconds, by contraction and by spelling.

    `jaxconv.forced` takes it instead of the name of a spelling. It is part of jit's key as the
    object that it is: load a file once, not for each call.
    """

    def __init__(self, milliseconds: Mapping[str, Mapping[str, float]]) -> None:
        """Of contractions by their names."""
        self.milliseconds = {name: dict(times) for name, times in milliseconds.items()}

    def rule(self, problem: Problem) -> Rule | None:
        """The spelling that was faster than what the rules choose, if any was.

        Nothing is known of programs that XLA splits over several devices.
        """
        times = {} if problem.partitioned else self.milliseconds.get(named(problem), {})
        fastest = min(times, key=times.__getitem__, default=CHOSEN)
        if fastest == CHOSEN or times[fastest] > WORTH * times[CHOSEN]:
            return None
        why = f"measured: {times[fastest]:.3g} ms, by the rules {times[CHOSEN]:.3g}"
        return by_hand(fastest, why)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Add to a file, beside what it has of other contractions, machines and versions."""
        every = _read(path)
        every[_here()] = every.get(_here(), {}) | self.milliseconds
        written = Path(f"{os.fspath(path)}.{os.getpid()}")
        written.write_text(json.dumps(every, indent=1))
        written.replace(path)  # at once, for other processes

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Measured":
        """What a file has of this machine and this version of JAX; it may be nothing."""
        return cls(_read(path).get(_here(), {}))

    def __str__(self) -> str:
        """A line for each contraction, with its spellings, the fastest first."""
        return "\n".join(
            f"{name}: "
            + ", ".join(f"{s} {ms:.3g}" for s, ms in sorted(times.items(), key=lambda x: x[1]))
            for name, times in self.milliseconds.items()
        )


class Asked(Measured):
    """Knows nothing, and notes what it is asked for."""

    def __init__(self) -> None:
        """Of nothing."""
        super().__init__({})
        self.problems: dict[str, Problem] = {}

    def rule(self, problem: Problem) -> None:
        """None, as of any contraction that was not measured."""
        if problem.counted and not problem.partitioned:
            self.problems[named(problem)] = problem


def named(problem: Problem) -> str:
    """All that its time depends on, in one line."""
    axes = " ".join(
        f"{a.fine}:k{a.kernel}s{a.stride}d{a.dilation}p{a.pad_low}:{a.coarse}"
        for a in problem.geometry.axes
    )
    data, kernel = ("".join(map(str, problem.geometry.layout(s))) for s in ("fine", "kernel"))
    return (
        f"to {problem.result} {problem.dtype} batch {problem.batch} groups "
        f"{problem.geometry.groups} channels {problem.fine}:{problem.coarse} axes {axes} "
        f"layouts {data} {kernel}"
    )


def _read(path: str | os.PathLike[str]) -> dict[str, dict[str, dict[str, float]]]:
    read: dict[str, dict[str, dict[str, float]]] = {}
    if Path(path).exists():
        read = json.loads(Path(path).read_text())
    return read


def _here() -> str:
    """The processor, the cores in use and the version of JAX."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return f"{_processor()}, {cores} cores, jax {jax.__version__}"


def _processor() -> str:
    """As Linux tells it; virtual machines hide the name, but not family and model."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    told = {key.strip(): value.strip() for key, _, value in (x.partition(":") for x in lines)}
    known = (told.get(key) for key in ("model name", "cpu family", "model"))
    return " ".join(value for value in known if value) or platform.machine()
