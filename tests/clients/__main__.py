"""Install clients, run their tests twice, and write down how many passed."""

import csv
import datetime
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from absl.flags import DEFINE_string

from benchmarks import files, flags
from tests.clients import CLIENTS, RESULTS, Client

ROOT = Path(__file__).parents[2]
COLUMNS = (
    "client", "version", "jax", "tests", "ran", "without", "with",
    "convolutions", "taken", "differ", "note",
)  # fmt: skip
OUTCOME = re.compile(
    r"^(\S+::.+?) (?:<- \S+ )?(PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS)\b", re.MULTILINE
)
PASSES = ("PASSED", "XFAIL", "XPASS")
COUNTED = re.compile(r"Convolutions in .*?: (\d+), of \d+ kinds. jaxconv computes (\d+) of them")

#: A program that becomes another. A shell has the commands that it runs in the background ignore
#: interrupts, and commands of those, too.
HEED_INTERRUPTS = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_DFL)
os.execv(sys.argv[1], sys.argv[1:])
"""


def main(argv: Sequence[str]) -> int:
    """Try the clients that were asked for."""
    told = "runs the tests of other projects without and with jaxconv"
    command = flags.Command("tests.clients", told, "CLIENT...")
    DEFINE_string("folder", f"{tempfile.gettempdir()}/clients", "of environments", **command.own)
    asked = command.read(argv)
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's jobs may ignore it
    known = {client.name: client for client in CLIENTS}
    names = [*known] if asked.operands == ["all"] else asked.operands
    if unknown := {*names} - {*known}:
        command.fail(f"no client {', '.join(sorted(unknown))}; known: all, {', '.join(known)}")
    for name in names:
        found = try_client(known[name], Path(asked.folder) / name)
        print(found, flush=True)
        write(known, found)
    return 0


def try_client(client: Client, folder: Path) -> dict[str, str]:
    """The row of a client."""
    row = {"client": client.name, "tests": client.tests}
    folder.mkdir(parents=True, exist_ok=True)
    try:
        source = installed(client, folder)
    except subprocess.CalledProcessError as error:
        said = (
            re.findall("^ERROR: (.*)", error.stderr, re.MULTILINE) or error.stderr.splitlines()[-1:]
        )
        return row | {"note": f"does not install: {said[0]}"}
    row["version"], row["jax"] = (version(folder, name) for name in (client.name, "jax"))
    if client.repository:
        commit = run(["git", "rev-parse", "--short=10", "HEAD"], source)
        row["version"] += f", commit {commit.strip()}"
    return row | compare(client, folder, source)


def compare(client: Client, folder: Path, source: Path) -> dict[str, str]:
    """What the tests said without the line and with it, in an environment that is there.

    If the time of either run was over, the tests that ended in both.
    """
    without, late = outcomes(client, folder, source, "0")
    with_line, later = outcomes(client, folder, source, "profile")
    report = " ".join((folder / "profile.err").read_text().split())
    row: dict[str, str] = {}
    row["convolutions"], row["taken"] = (COUNTED.findall(report) or [("", "")])[-1]
    tests = sorted({*without} & {*with_line} if late or later else {*without, *with_line})
    pairs = {test: (without.get(test), with_line.get(test)) for test in tests}
    row["ran"] = str(sum({*pair} != {"SKIPPED"} for pair in pairs.values()))
    for n, column in enumerate(("without", "with")):
        row[column] = str(sum(pair[n] in PASSES for pair in pairs.values()))
    row["differ"] = " | ".join(test for test, (before, after) in pairs.items() if before != after)
    row["note"] = f"the first {client.minutes} minutes" if late or later else ""
    return row if tests else {"note": "its tests do not start"}


def installed(client: Client, folder: Path) -> Path:
    """The folder of the client's source, for which there is an environment."""
    python, source = folder / "bin" / "python", folder / "source"
    if not python.exists():
        run([client.python, "-m", "venv", str(folder)])
    pip = [str(python), "-m", "pip", "--quiet"]
    if client.repository and not source.exists():
        run(["git", "clone", "--quiet", "--depth=1", client.repository, str(source)])
    wanted = str(source) if client.repository else client.name
    run([*pip, "install", wanted, *client.needs.split(), "pytest", str(ROOT)])
    if not source.exists():
        release = f"{client.name}=={version(folder, client.name)}"
        at = ["--no-deps", "--no-binary", client.name, "--dest", str(folder)]
        run([*pip, "download", *at, release])
        source.mkdir()
        [archive] = folder.glob("*.tar.gz")
        run(["tar", "-xf", str(archive), "--strip-components=1", "-C", str(source)])
    return source


def outcomes(client: Client, folder: Path, source: Path, told: str) -> tuple[dict[str, str], bool]:
    """What pytest said of each test, and whether the time was over before the last."""
    command = [str(folder / "bin" / "python"), "-m", "pytest", "-v", "-o", "addopts="]
    command += ["-p", "no:cacheprovider", "--tb=short", "--continue-on-collection-errors"]
    command += shlex.split(client.tests)
    environment = os.environ | {"JAXCONV_INSTALL": told, "KERAS_BACKEND": "jax"}
    environment |= {"JAX_PLATFORMS": "cpu"}
    out, err = folder / f"{told}.out", folder / f"{told}.err"
    with out.open("w") as stdout, err.open("w") as stderr:
        process = subprocess.Popen(
            [sys.executable, "-c", HEED_INTERRUPTS, *command],
            cwd=source, env=environment, stdout=stdout, stderr=stderr,
        )  # fmt: skip
        try:
            process.wait(60 * client.minutes)
            late = False
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)  # pytest then ends, and the report is printed
            process.wait()
            late = True
    return dict(OUTCOME.findall(out.read_text())), late


def version(folder: Path, name: str) -> str:
    code = f"from importlib.metadata import version; print(version({name!r}))"
    return run([str(folder / "bin" / "python"), "-c", code]).strip()


def run(command: list[str], folder: Path | None = None) -> str:
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


def write(known: dict[str, Client], found: dict[str, str]) -> None:
    """The row replaces the one before, in the order of the clients."""
    rows = {row["client"]: row for row in files.read(RESULTS)["rows"]} if RESULTS.exists() else {}
    rows[found["client"]] = found
    with RESULTS.open("w") as text:
        text.write(f"# date: {json.dumps(str(datetime.date.today()))}\n")
        table = csv.DictWriter(text, COLUMNS, lineterminator="\n")
        table.writeheader()
        table.writerows(rows[name] for name in known if name in rows)


if __name__ == "__main__":
    sys.exit(flags.run(main))
