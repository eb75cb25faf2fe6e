"""Install clients, run their tests twice, and write down how many passed."""

import csv
import datetime
import json
import os
import re
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
COUNTED = re.compile(r"Convolutions in .*?: (\d+), of \d+ kinds. jaxconv computes (\d+) of them")


def main(argv: Sequence[str]) -> int:
    """Try the clients that were asked for."""
    told = "runs the tests of other projects without and with jaxconv"
    command = flags.Command("tests.clients", told, "CLIENT...")
    DEFINE_string("folder", f"{tempfile.gettempdir()}/clients", "of environments", **command.own)
    asked = command.read(argv)
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
        said = (error.stderr or error.stdout).strip().splitlines()
        return row | {"note": f"does not install: {said[-1]}"}
    row["version"], row["jax"] = (version(folder, name) for name in (client.name, "jax"))
    if client.repository:
        commit = run(["git", "rev-parse", "--short=10", "HEAD"], source)
        row["version"] += f", commit {commit.strip()}"
    without, with_line = (outcomes(client, folder, source, told) for told in ("0", "profile"))
    report = " ".join((folder / "profile.err").read_text().split())
    counts = COUNTED.findall(report) or [("0", "0")]
    row["convolutions"], row["taken"] = counts[-1]
    either = sorted({*without, *with_line})
    row["ran"] = str(sum("SKIPPED" not in (without.get(x), with_line.get(x)) for x in either))
    row |= {"without": passes(without), "with": passes(with_line)}
    row["differ"] = " ".join(x for x in either if without.get(x) != with_line.get(x))
    return row


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


def outcomes(client: Client, folder: Path, source: Path, told: str) -> dict[str, str]:
    """What pytest said of each test; of those until then, if the time is over."""
    command = [str(folder / "bin" / "python"), "-m", "pytest", "-v", "-o", "addopts="]
    command += ["-p", "no:cacheprovider", "--tb=short", "--continue-on-collection-errors"]
    command += client.tests.split()
    environment = os.environ | {"JAXCONV_INSTALL": told, "KERAS_BACKEND": "jax"}
    environment |= {"JAX_PLATFORMS": "cpu"}
    out, err = folder / f"{told}.out", folder / f"{told}.err"
    with out.open("w") as stdout, err.open("w") as stderr:
        limit = 60 * client.minutes
        try:
            subprocess.run(
                command, cwd=source, env=environment, stdout=stdout, stderr=stderr, timeout=limit
            )
        except subprocess.TimeoutExpired:
            stdout.write(f"\nended after {limit} s\n")
    return dict(OUTCOME.findall(out.read_text()))


def passes(found: dict[str, str]) -> str:
    return str(sum(outcome in ("PASSED", "XFAIL", "XPASS") for outcome in found.values()))


def version(folder: Path, name: str) -> str:
    code = f"from importlib.metadata import version; print(version({name!r}))"
    return run([str(folder / "bin" / "python"), "-c", code]).strip()


def run(command: list[str], folder: Path | None = None) -> str:
    return subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True).stdout


def write(known: dict[str, Client], found: dict[str, str]) -> None:
    """The row replaces the one before, in the order of the clients."""
    rows = {row["client"]: row for row in files.load(RESULTS)["rows"]} if RESULTS.exists() else {}
    rows[found["client"]] = found
    with RESULTS.open("w") as text:
        text.write(f"# date: {json.dumps(str(datetime.date.today()))}\n")
        table = csv.DictWriter(text, COLUMNS, lineterminator="\n")
        table.writeheader()
        table.writerows(rows[name] for name in known if name in rows)


if __name__ == "__main__":
    sys.exit(flags.run(main))
