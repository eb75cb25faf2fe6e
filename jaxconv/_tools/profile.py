"""`profile`: each convolution that JAX compiles in a block, what computes it, and why."""

import csv
import os
import textwrap
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import astuple, dataclass, field, fields
from pathlib import Path
from typing import Any

import jax

from jaxconv._base import environment
from jaxconv._base.environment import Listener, Lowered
from jaxconv._lax import install
from jaxconv._tools import profile_row
from jaxconv._tools.compare import Comparison, compare
from jaxconv._tools.log import Origin, find_origin
from jaxconv._tools.profile_row import WIDTH, Row, format_millions, make_row

#: Most kinds of convolution that a printed report lists for each reason, and a notebook in all.
MAX_LISTED, MAX_IN_A_TABLE = 5, 40

#: What JAX calls the times that it takes to lower a program, and XLA to compile it.
LOWERING = "/jax/core/compile/jaxpr_to_mlir_module_duration"
COMPILING = "/jax/core/compile/backend_compile_duration"

NOTHING = """\
No convolution was lowered here. If there should be one: JAX keeps the programs that it has
compiled, and runs them again. Profile the first call, or call jax.clear_caches() before."""

LEGEND = """\
x: how often; MFLOP: of all of them. forward: convolutions, and data gradients of stride 1, which
look the same to lax. data: other data gradients, and transposed convolutions. weights: weights
gradients. pool: gradients of max pools, which count among the convolutions."""


@dataclass(repr=False)
class Report:
    """The convolutions that JAX compiled in a block, and how; see `jaxconv.profile`.

    Another process can be sent `rows`, and not the report, which has objects of JAX's.
    """

    #: seconds that JAX took to lower the programs with convolutions, and XLA to compile them
    lowering_seconds: float = 0.0
    compiling_seconds: float = 0.0
    #: the names of these programs
    programs: set[str] = field(default_factory=set)
    #: whether the report is as if `install` held, which it did not
    assumed: bool = False
    #: what makes convolutions alike -> the first of the kind, and where all of it were written
    _kinds: dict[Any, tuple[Lowered, list[Origin]]] = field(default_factory=dict, repr=False)
    #: the threads that lower a program with convolutions
    _pending: set[int] = field(default_factory=set)

    @property
    def rows(self) -> tuple[Row, ...]:
        """The convolutions by kind, those with the most work first."""
        rows = (make_row(*kind) for kind in list(self._kinds.values()))
        return tuple(sorted(rows, key=lambda row: -row.work))

    @property
    def share(self) -> float:
        """The share of all multiplications and additions that this library computes.

        The share of all convolutions, where no extents are known.
        """
        rows = self.rows
        sizes = [row.work for row in rows] if any(r.work for r in rows) else [r.count for r in rows]
        taken = (size for size, row in zip(sizes, rows, strict=True) if row.to)
        return sum(taken) / max(sum(sizes), 1)

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """Write the rows to a file, with a line of their names above."""
        with Path(path).open("w", newline="", encoding="utf-8") as file:
            writer = csv.writer(file)
            writer.writerow(field.name for field in fields(Row))
            for row in self.rows:
                cells = astuple(row)
                writer.writerow("; ".join(x) if isinstance(x, tuple) else x for x in cells)

    def compare(self) -> Comparison:
        """Time each kind of convolution that this library computes against lax's, one by one.

        Values are compared, too, on small integers. How long it takes is said before. Nothing else
        should run on the machine. Printed, the result is a table, the least gain first.
        """
        return compare((make_row(*kind), kind[0]) for kind in list(self._kinds.values()))

    def __repr__(self) -> str:
        rows = self.rows
        if not rows:
            return NOTHING
        total = sum(row.work for row in rows) / 100
        lines = [textwrap.fill(self._summary(rows), WIDTH)]
        groups: dict[str, list[Row]] = {}
        with_line = len({row.lines for row in rows}) > 1  # a line that all have says nothing
        for row in sorted(rows, key=lambda row: row.to is not None):  # lax's own first
            groups.setdefault(row.how, []).append(row)
        for how, group in groups.items():
            work = sum(row.work for row in group)
            share = f" ({work / total:.1f} % of the convolutions' work)" if work else ""
            lines += ["", textwrap.fill(f"{how}{share}", WIDTH)]
            lines += [f"{'x':>4}{'MFLOP':>8}  {'what':8}{'operands':46}  line, layer"]
            lines += (profile_row.format_row(row, with_line) for row in group[:MAX_LISTED])
            lines += [f"      and {more} more"] if (more := len(group) - MAX_LISTED) > 0 else []
        return "\n".join([*lines, "", LEGEND])

    def _repr_markdown_(self) -> str:
        """The table that a notebook shows."""
        rows = self.rows
        if not rows:
            return NOTHING
        lines = [self._summary(rows), "", "| x | MFLOP | what | operands | how | line, layer |"]
        lines += ["|---:|---:|---|---|---|---|"]
        for row in rows[:MAX_IN_A_TABLE]:
            cells = (
                *profile_row.to_cells(row),
                row.how,
                profile_row.format_place(row, with_line=True),
            )
            lines.append(f"| {' | '.join(cell.replace('|', '/') for cell in cells)} |")
        left = len(rows) - MAX_IN_A_TABLE
        lines += ["", f"and {left} more kinds: `rows`, `to_csv`"] if left > 0 else []
        return "\n".join(lines)

    def _summary(self, rows: tuple[Row, ...]) -> str:
        count, taken = (sum(r.count for r in some) for some in (rows, [r for r in rows if r.to]))
        programs = sorted(self.programs) or ["no program that was lowered to its end"]
        if more := programs[MAX_LISTED:]:
            programs = [*programs[:MAX_LISTED], f"{len(more)} more"]
        work, unknown = sum(row.work for row in rows), any(row.flops is None for row in rows)
        known = ", as far as it is known" if unknown else ""
        of = f"the convolutions' work{known}, {format_millions(work)} MFLOP" if work else "them"
        compiling = f", and XLA {self.compiling_seconds:.1f} s to compile them"
        return (
            f"{'As if jaxconv.install() held, which it does not: ' if self.assumed else ''}"
            f"Convolutions in {', '.join(programs)}: {count}, of {len(rows)} kinds. jaxconv "
            f"computes {taken} of them: {100 * self.share:.1f} % of {of}. JAX took "
            f"{self.lowering_seconds:.1f} s to lower these programs"
            f"{compiling if self.compiling_seconds else ''}."
        )

    def _hear(self, lowered: Lowered) -> None:
        """Note a convolution that was lowered."""
        primitive, operands, (result,), params = lowered.equation
        types = (*(t.str_short() for t in operands), result.str_short())
        key = (primitive.name, types, tuple(sorted(params.items())), lowered.how, lowered.target)
        new = (lowered, [find_origin()])  # complete: another thread may be printing the report
        kind = self._kinds.setdefault(key, new)
        if kind is not new:
            kind[1].extend(new[1])
        self._pending.add(threading.get_ident())

    def _time(self, event: str, duration_secs: float, **kwargs: str | int) -> None:
        """Note how long a program took, if it has convolutions."""
        program = str(kwargs.get("fun_name", "a program"))
        if event == LOWERING and threading.get_ident() in self._pending:
            self.programs.add(program)
            self.lowering_seconds += duration_secs
            self._pending.remove(threading.get_ident())
        elif event == COMPILING and program in self.programs:
            self.compiling_seconds += duration_secs


@contextmanager
def profile() -> Iterator[Report]:
    """A context that reports each convolution that JAX compiles within it, in all threads.

    The report has the convolutions of this library, those of `jax.lax` on CPU, and the gradients
    of max pools, taken over by :func:`install` or not: how often, what computes them and why, the
    share of the work that this library computes, the lines of Python that wrote them, and how long
    the programs took to compile. `print` shows it, notebooks show a table, `rows` and `to_csv` have
    all of it, and `compare` times each convolution against lax's.

    JAX compiles a program once. So profile the first call of a function, or its `lower`, which runs
    nothing; or call `jax.clear_caches` before. Functions that are compiled already do not become
    slower: only lowering is.

    Example:
      >>> import jax, jax.numpy as jnp, jaxconv
      >>> def loss(x, w):
      ...     return jax.lax.conv(x, w, (2, 2), "VALID").sum()
      >>> x, w = jnp.ones((8, 16, 32, 32)), jnp.ones((32, 16, 3, 3))
      >>> with jaxconv.installed(), jaxconv.profile() as report:
      ...     lowered = jax.jit(jax.grad(loss, argnums=(0, 1))).lower(x, w)
      >>> sorted(row.to for row in report.rows), report.share
      (['fine', 'kernel'], 1.0)
    """
    with profile_thread() as report:
        yield report


@contextmanager
def profile_thread(thread: int | None = None) -> Iterator[Report]:
    """The same for what one thread lowers."""
    install.register()
    report = Report()
    jax.monitoring.register_event_duration_secs_listener(report._time)
    try:
        listener = Listener(lambda: thread in (None, threading.get_ident()), report._hear)
        with environment.listening(listener):
            yield report
    finally:
        with suppress(AssertionError):  # somebody has cleared all of JAX's listeners
            jax.monitoring.unregister_event_duration_listener(report._time)


# In a notebook.

MAGIC = "jaxconv_profile"


def load_ipython_extension(shell: Any) -> None:
    """Do what `%load_ext jaxconv` asks for: install, and make `%%jaxconv_profile` known."""

    def run_profiled(line: str, cell: str) -> None:
        """Run the cell, then print how its convolutions were computed."""
        with profile() as report:
            result = shell.run_cell(cell)
        print(report)
        result.raise_error()  # so that "run all" ends here

    install.install()
    shell.register_magic_function(run_profiled, "cell", MAGIC)


def unload_ipython_extension(shell: Any) -> None:
    """Undo `%load_ext jaxconv`, for `%unload_ext jaxconv`."""
    install.uninstall()
    shell.magics_manager.magics["cell"].pop(MAGIC, None)
