"""What every measuring command shares: flags, workers, the header of the results."""

import datetime
import os
import re
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict

from absl import app, flags

from benchmarks import engines, files, machine
from benchmarks.layer import DTYPES
from benchmarks.pool import EngineError, Pool
from benchmarks.progress import Progress
from benchmarks.rounds import Plan

_ENGINES = flags.DEFINE_list("engines", list(engines.DEFAULT), "NAME, jaxconv:SPELLING; + @TAG")
_FILTER = flags.DEFINE_string("filter", "", "regular expression: rows by name, network or tag")
_DTYPES = flags.DEFINE_list("dtypes", ["f32"], f"of {', '.join(DTYPES)}")
_REPEATS = flags.DEFINE_integer("repeats", 5, "interleaved rounds", lower_bound=1)
_BURST = flags.DEFINE_float("burst", 0.04, "seconds of calls per turn")
_CAP = flags.DEFINE_float(
    "cap", 20.0, "seconds an engine may take to prepare a row; a quarter of it for its turns"
)
_ONCE = flags.DEFINE_float(
    "once", None, "a first call of more seconds is the only one; default a quarter of --cap"
)
_ENV = flags.DEFINE_multi_string("env", [], "ENGINE=NAME=VALUE: a variable of its process alone")
_DEVICE = flags.DEFINE_enum("device", "any", ["any", "cpu"], "cpu hides every accelerator")
_F32 = flags.DEFINE_enum(
    "f32", "default", ["default", "exact"], "exact: no TF32 or bf16 passes on accelerators either"
)
_PYTHON = flags.DEFINE_multi_string("python", [], "ENGINE=INTERPRETER")
_PATH = flags.DEFINE_multi_string("path", [], "ENGINE=FOLDER to import packages from first")
_OUT = flags.DEFINE_string("out", "", "where the CSV goes")


# Every engine is a process of its own: none may take the memory of the others.
SHARED = {"JAX_ENABLE_COMPILATION_CACHE": "false", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
# For all that JAX and for all that CUDA's libraries multiply; PyTorch's convolutions are cuDNN's.
EXACT_F32 = {"JAX_DEFAULT_MATMUL_PRECISION": "highest", "NVIDIA_TF32_OVERRIDE": "0"}

ON_CPU = {"JAX_PLATFORMS": "cpu", "CUDA_VISIBLE_DEVICES": ""}


def labels() -> list[str]:
    """The engines asked for."""
    for label in _ENGINES.value:
        try:
            engines.name_of(label)
        except ValueError as error:
            raise app.UsageError(f"--engines: {error}") from None
    return _ENGINES.value


def dtypes() -> list[str]:
    """The types asked for."""
    check("dtypes", _DTYPES.value, tuple(DTYPES))
    return _DTYPES.value


def exact_f32() -> bool:
    """Whether accelerators multiply f32 as CPUs do."""
    return _F32.value == "exact"


def platforms(pool: Pool, keys: Iterable[str]) -> dict[str, str]:
    """By "label/variant", the platform by whose default f32 is multiplied."""
    if exact_f32():
        return dict.fromkeys(keys, "cpu")
    return {key: pool.versions[key.partition("/")[0]]["platform"] for key in keys}


def wanted(*names: str) -> bool:
    """Whether --filter finds something in these names."""
    return re.search(_FILTER.value, " ".join(names)) is not None


def plan() -> Plan:
    """How long to measure."""
    once = _CAP.value / 4 if _ONCE.value is None else _ONCE.value
    return Plan(_REPEATS.value, _BURST.value, _CAP.value, once)


def open_pool(cpu: bool = False) -> Pool:
    """The workers; an engine that does not even start is named on stderr."""
    environment = SHARED | (EXACT_F32 if exact_f32() else {})
    if cpu or _DEVICE.value == "cpu":
        environment |= ON_CPU
    pool = Pool(
        _pairs("python", _PYTHON.value),
        _pairs("path", _PATH.value),
        environment,
        _variables(_ENV.value),
    )
    for label in labels():
        try:
            pool.start(label)
        except EngineError as error:
            print(f"{label}: {error.status}: {error.reason}", file=sys.stderr)
    return pool


def collect(pool: Pool, jobs: list, measure: Callable, line: Callable, extra: dict) -> list[dict]:
    """Measure every job, show a line for each, write the results; also when interrupted."""
    started, rows = time.time(), []
    load = os.getloadavg()[0]
    progress = Progress(len(jobs))
    try:
        for job in jobs:
            rows.append(measure(job))
            progress.show(line(rows[-1]))
    finally:
        progress.close()
        if _OUT.value and rows:
            files.write(_OUT.value, _header(pool, started, load) | extra | {"rows": rows})
    return rows


def check(name: str, values: Iterable[str], known: tuple[str, ...]) -> None:
    """Refuse values of a flag that nothing knows."""
    if unknown := [v for v in values if v not in known]:
        raise app.UsageError(f"--{name}: {', '.join(unknown)}; known: {', '.join(known)}")


def no_arguments(argv: list[str]) -> None:
    """These commands take flags only."""
    if len(argv) > 1:
        raise app.UsageError(f"unexpected: {' '.join(argv[1:])}")


def times(row: dict) -> str:
    """A row's engines for people: milliseconds, or what became of them."""
    return ", ".join(
        f"{label} {1e3 * entry['median_s']:.3g} ms"
        if entry["status"] == "ok"
        else f"{label} {entry['status']}"
        for label, entry in row["engines"].items()
    )


def _header(pool: Pool, started: float, load: float) -> dict:
    date = datetime.datetime.fromtimestamp(started, datetime.UTC)
    return {
        "date": date.isoformat(timespec="seconds"),
        "seconds": round(time.time() - started, 1),
        "command": sys.argv[1:],
        "machine": machine.describe() | {"load_before": load},
        "git": machine.revision(),
        "plan": asdict(plan()),
        "engines": {label: pool.versions.get(label) for label in labels()},
    }


def _variables(texts: list[str]) -> dict[str, dict[str, str]]:
    """By engine, what --env sets for it."""
    environments: dict[str, dict[str, str]] = {}
    for text in texts:
        label, _, assignment = text.partition("=")
        name, equals, value = assignment.partition("=")
        if not (name and equals):
            raise app.UsageError(f"--env: {text!r} is not ENGINE=NAME=VALUE")
        environments.setdefault(label, {})[name] = value
    check("env", environments, tuple(labels()))
    return environments


def _pairs(name: str, texts: list[str]) -> dict[str, str]:
    pairs = dict(text.partition("=")[::2] for text in texts)
    check(name, pairs, tuple(labels()))
    return pairs
