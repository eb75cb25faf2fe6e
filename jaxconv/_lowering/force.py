"""`forced`: compute by one form, for tests, or by the forms that `measure` found fastest here.

And `Measured`, the times of forms, with the file that keeps them by machine.
"""

import json
import os
import platform
from collections.abc import Mapping
from contextlib import AbstractContextManager
from importlib.metadata import version
from pathlib import Path
from typing import Any
from uuid import uuid4

import jax

from jaxconv._base.environment import FORCED
from jaxconv._lowering import cpu, tpu
from jaxconv._lowering.onednn_here import read_cpuinfo
from jaxconv._lowering.problem import Form, Problem

#: All forms that can be forced on CPU, by name; for tests, those of TPU, too, but not those of GPU:
#: XLA:CPU may abort on them.
FORMS: dict[str, Form] = {
    line.form.name: line.form
    for tables in (cpu.TABLES, tpu.TABLES)
    for table in tables.values()
    for line in table
}

#: The choice of the CPU's table as if there were no oneDNN.
PORTABLE = "portable"

#: Stands for the table's choice among the forms of a contraction.
CHOSEN = "chosen"

#: A form counts as faster if its time is at most this part of the time of the table's choice.
MAX_OF_CHOSEN = 0.95


class Measured:
    """The times that `jaxconv.measure` found, for `jaxconv.forced` to use.

    Hashed by identity: reuse one instance, or jit recompiles.
    """

    def __init__(self, milliseconds: Mapping[str, Mapping[str, float]]) -> None:
        """Take milliseconds by contraction and form, both by name."""
        self.milliseconds = {name: dict(times) for name, times in milliseconds.items()}

    def form(self, problem: Problem) -> tuple[str | None, str]:
        """Find the form that was faster than the table's choice, if any, and say both times.

        Programs that XLA splits over several devices are not measured.
        """
        times = {} if problem.partitioned else self.milliseconds.get(name_problem(problem), {})
        fastest = min(times, key=times.__getitem__, default=CHOSEN)
        if fastest == CHOSEN or times[fastest] > MAX_OF_CHOSEN * times.get(CHOSEN, 0.0):
            return None, ""
        return fastest, f"measured: {times[fastest]:.3g} ms, by the table {times[CHOSEN]:.3g}"

    def save(self, path: str | os.PathLike[str]) -> None:
        """Add these times to a file, which keeps the times of other contractions and machines.

        If several processes save at once, the last one wins.
        """
        every = _read(path) if Path(path).exists() else {}
        every[_describe_machine()] = every.get(_describe_machine(), {}) | self.milliseconds
        written = Path(f"{os.fspath(path)}.{uuid4().hex}")
        written.write_text(json.dumps(every, indent=1))
        written.replace(path)  # at once, so that nobody reads half a file

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> "Measured":
        """Read the times of this machine and these versions from a file; it may have none."""
        return cls(_read(path).get(_describe_machine(), {}))

    def report(self) -> str:
        """Write a line for each contraction: milliseconds by form, the fastest first."""
        return "\n".join(
            f"{name}: "
            + ", ".join(f"{s} {ms:.3g} ms" for s, ms in sorted(times.items(), key=lambda x: x[1]))
            for name, times in self.milliseconds.items()
        )

    def __repr__(self) -> str:
        """Briefly, since jaxprs of forced contractions contain this text."""
        return f"Measured({len(self.milliseconds)} contractions)"


class Recorder(Measured):
    """No times: an instance records the contractions that a program looks up."""

    def __init__(self) -> None:
        """Start without times or contractions."""
        super().__init__({})
        self.problems: dict[str, Problem] = {}

    def form(self, problem: Problem) -> tuple[None, str]:
        """Record a contraction; None, as for a contraction that was not measured."""
        if problem.counted and not problem.partitioned:
            self.problems[name_problem(problem)] = problem
        return None, ""


Forced = str | Measured | None


def forced(form: Forced) -> AbstractContextManager[Any]:
    """A context in which one form computes the contractions, on CPU.

    The form of that name computes every contraction, or an error names one that it cannot compute.
    If the form cannot compute data gradients, these are rewritten first, and the form computes the
    parts. If the form is a rewrite itself, the parts are planned as usual.

    ``"portable"`` plans as usual, without oneDNN. ``"reference"`` is one
    ``lax.conv_general_dilated`` in the layouts at hand, on GPU and TPU too. The result of
    `jaxconv.measure` names the forms that were faster. None returns to the tables, also within
    another such context.

    Take derivatives, and call jitted functions, inside the context, which acts when JAX traces,
    and for lax's convolutions under `install` when JAX lowers.

    Args:
      form: a name, the result of `jaxconv.measure`, or None.

    Raises:
      ValueError: no such form.

    Example:
      >>> import jax.numpy as jnp, jaxconv
      >>> with jaxconv.forced("portable"):
      ...     jaxconv.convolution(jnp.ones((1, 8, 8, 2)), jnp.ones((3, 3, 2, 4))).shape
      (1, 6, 6, 4)
    """
    known = form is None or isinstance(form, Measured)
    if not known and not (isinstance(form, str) and form in (*FORMS, PORTABLE)):
        raise ValueError(
            f"forced: `form` must be one of {', '.join(map(repr, (PORTABLE, *FORMS)))}, what "
            f"`jaxconv.measure` found, or None; got {form!r}"
        )
    context: AbstractContextManager[Any] = FORCED(form)
    return context


def name_problem(problem: Problem) -> str:
    """Name a contraction by its sizes, type, layouts and what follows the sum, in one line.

    The result's type and the precision, which XLA:CPU hardly heeds, are no part of the name.
    """
    axes = " ".join(
        f"{a.fine}:k{a.kernel}s{a.stride}d{a.dilation}p{a.pad_low}:{a.coarse}"
        for a in problem.geometry.axes
    )
    data, kernel = ("".join(map(str, problem.geometry.layout(s))) for s in ("fine", "kernel"))
    return (
        f"to {problem.result} {problem.dtype} batch {problem.batch} groups "
        f"{problem.geometry.groups} channels {problem.fine_channels}:{problem.coarse_channels} "
        f"axes {axes} layouts {data} {kernel}"
        + (f" then {problem.finish}" if problem.finish else "")
        + ("" if problem.onednn else " without oneDNN")
    )


def _read(path: str | os.PathLike[str]) -> dict[str, dict[str, dict[str, float]]]:
    try:
        read = json.loads(Path(path).read_text())
        if not isinstance(read, dict):
            raise ValueError("no JSON object")
        if not _is_nested(read, 3):
            raise ValueError("other entries than milliseconds by machine, contraction and form")
    except ValueError as error:
        wrong = f"Measured: {os.fspath(path)} must be a file that `save` wrote; got {error}"
        raise ValueError(wrong) from None
    return read


def _is_nested(value: object, depth: int) -> bool:
    """Whether a value is numbers in dicts, nested to this depth."""
    if depth == 0:
        return isinstance(value, int | float)
    return isinstance(value, dict) and all(_is_nested(v, depth - 1) for v in value.values())


def _describe_machine() -> str:
    """Name the processor, the cores in use and the versions."""
    from jaxconv import __version__  # not set yet when this module is imported

    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    versions = f"jaxconv {__version__}, jax {jax.__version__}, jaxlib {version('jaxlib')}"
    return f"{_describe_processor()}, {cores} cores, {versions}"


def _describe_processor() -> str:
    """Name the processor, its family and its model, which virtual machines do not hide."""
    fields = read_cpuinfo()
    keys = ("model name", "cpu family", "model", "CPU implementer", "CPU part")  # x86, and Arm
    named = " ".join(fields[key] for key in keys if fields.get(key))
    return named or platform.processor() or platform.machine()
