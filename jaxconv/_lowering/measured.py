"""Forms by measurement: which one was fastest, on one machine with one version of JAX."""

import json
import os
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path
from uuid import uuid4

import jax

from jaxconv._lowering.problem import Problem

#: Whatever the table chooses, among the forms of a contraction.
CHOSEN = "chosen"

#: A form counts as faster than what the table chooses if it took less than this of its time.
WORTH = 0.95


class Measured:
    """What `jaxconv.measure` found, for `jaxconv.forced` to use.

    Hashed by identity: reuse one instance, or jit recompiles.
    """

    def __init__(self, milliseconds: Mapping[str, Mapping[str, float]]) -> None:
        """By the name of a contraction, and by that of a form."""
        self.milliseconds = {name: dict(times) for name, times in milliseconds.items()}

    def form(self, problem: Problem) -> tuple[str | None, str]:
        """The form that was faster than what the table chooses, if any was, and by how much.

        Nothing is known of programs that XLA splits over several devices.
        """
        times = {} if problem.partitioned else self.milliseconds.get(named(problem), {})
        fastest = min(times, key=times.__getitem__, default=CHOSEN)
        if fastest == CHOSEN or times[fastest] > WORTH * times.get(CHOSEN, 0.0):
            return None, ""
        return fastest, f"measured: {times[fastest]:.3g} ms, by the table {times[CHOSEN]:.3g}"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Add to a file, beside what it has of other contractions, machines and versions.

        Of processes that save at once, the last one wins.
        """
        every = _read(path)
        every[_here()] = every.get(_here(), {}) | self.milliseconds
        written = Path(f"{os.fspath(path)}.{uuid4().hex}")
        written.write_text(json.dumps(every, indent=1))
        written.replace(path)  # whole, for who reads it

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Measured":
        """What a file has of this machine and these versions; it may be nothing."""
        return cls(_read(path).get(_here(), {}))

    def report(self) -> str:
        """A line for each contraction, with milliseconds by form, the fastest first."""
        return "\n".join(
            f"{name}: "
            + ", ".join(f"{s} {ms:.3g}" for s, ms in sorted(times.items(), key=lambda x: x[1]))
            for name, times in self.milliseconds.items()
        )

    def __repr__(self) -> str:
        """Short, as it stands in every jaxpr that it is used in."""
        return f"Measured({len(self.milliseconds)} contractions)"


class Asked(Measured):
    """Knows nothing, and notes what it is asked for."""

    def __init__(self) -> None:
        """Of nothing."""
        super().__init__({})
        self.problems: dict[str, Problem] = {}

    def form(self, problem: Problem) -> tuple[None, str]:
        """None, as of any contraction that was not measured."""
        if problem.counted and not problem.partitioned:
            self.problems[named(problem)] = problem
        return None, ""


def named(problem: Problem) -> str:
    """Its sizes, type and layouts in one line.

    Neither a wider result nor a precision, which XLA:CPU hardly heeds, makes another contraction.
    """
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
    if not Path(path).exists():
        return {}
    try:
        read = json.loads(Path(path).read_text())
        if not isinstance(read, dict):
            raise ValueError("no JSON object")
        if not _nested(read, 3):
            raise ValueError("other entries than seconds by machine, contraction and form")
    except ValueError as error:
        wrong = f"Measured: {os.fspath(path)} must be a file that `save` wrote; got {error}"
        raise ValueError(wrong) from None
    return read


def _nested(value: object, depth: int) -> bool:
    """Whether it is numbers, in objects nested to this depth."""
    if depth == 0:
        return isinstance(value, int | float)
    return isinstance(value, dict) and all(_nested(v, depth - 1) for v in value.values())


def _here() -> str:
    """The processor, the cores in use and the versions that decide."""
    from jaxconv import __version__  # which is not there yet while this module is imported

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    versions = f"jaxconv {__version__}, jax {jax.__version__}, jaxlib {version('jaxlib')}"
    return f"{_processor()}, {cores} cores, {versions}"


def _processor() -> str:
    """As Linux tells it; virtual machines hide the name, but not family and model."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    told = {key.strip(): value.strip() for key, _, value in (x.partition(":") for x in lines)}
    keys = ("model name", "cpu family", "model", "CPU implementer", "CPU part")  # x86, and Arm
    return " ".join(told[key] for key in keys if told.get(key)) or platform.machine()
