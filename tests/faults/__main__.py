"""Apply faults, run the default tests, and write down which test caught each."""

import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.faults import FAULTS
from tests.faults.fault import Fault

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "tests" / "FAULTS.md"
HEAD = """\
# Faults that the default tests catch

Each was put into the package alone, by `python -m tests.faults`. The seconds are those until the
test failed, on two cores, the likely tests first.

| fault | file | caught by | seconds |
|---|---|---|---|
"""
ENDS = " (the process ends)"
COPIED = ("jaxconv", "tests", "benchmarks", "notebooks", "docs", "examples", "[!.]*.*", "LICENSE")


def main(words: list[str]) -> int:
    """Try the faults that were asked for; 1 if the tests missed one."""
    rows = known_rows()
    new = "--new" in words
    words = [word for word in words if word != "--new"]
    for fault in FAULTS:
        fault.applied(ROOT)  # before hours are spent, fail if any is out of date
    missed = 0
    for fault in FAULTS:
        asked = not words or any(word in f"{fault.file} {fault.what}" for word in words)
        if not asked or (new and fault.what in rows):
            continue
        start = time.monotonic()
        caught = caught_by(fault, before(rows.get(fault.what)))
        seconds = time.monotonic() - start
        rows[fault.what] = row(fault, caught, seconds)
        print(rows[fault.what], flush=True)
        missed += caught is None
        write(rows)
    return int(missed > 0)


def caught_by(fault: Fault, before: list[str]) -> str | None:
    """The first of the default tests that fails with the fault in the package, and only then.

    The test that caught the fault before is tried first, then those of the room, then all.
    """
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder)
        for pattern in COPIED:
            for path in ROOT.glob(pattern):
                into = copy / path.name
                shutil.copytree(path, into) if path.is_dir() else shutil.copy(path, into)
        changed = copy / "jaxconv" / fault.file
        right = changed.read_text()
        changed.write_text(fault.applied(ROOT))
        tries = [*([before] if before else []), [fault.room], ["-n", "auto"]]
        caught = next(filter(None, (first_failure(copy, words) for words in tries)), None)
        changed.write_text(right)
        if caught is not None and first_failure(copy, [f"tests/{caught.removesuffix(ENDS)}"]):
            raise RuntimeError(f"{caught} fails without a fault, too")
        return caught


def first_failure(copy: Path, arguments: list[str]) -> str | None:
    """The name of the first test that fails, or of the file that cannot even be imported."""
    options = ["-x", "-q", "-p", "no:cacheprovider", "--ignore=tests/test_faults.py"]
    command = [sys.executable, "-m", "pytest", *options, *arguments]
    done = subprocess.run(command, cwd=copy, capture_output=True, text=True)
    found = re.search(r"^(?:FAILED|ERROR) tests/(.+?)(?: - |$)", done.stdout, re.MULTILINE)
    if found:
        return found[1]
    if "Fatal Python error" in done.stderr:  # of what XLA was told, say
        frames = re.findall(r'tests/((?:\w+/)?test_\w+\.py)", line \d+ in (test_\w+)', done.stderr)
        return "::".join(frames[-1]) + ENDS if frames else f"{arguments[0][6:]}{ENDS}"
    if done.returncode not in (0, 4, 5):  # 4, 5: no such test any more
        raise RuntimeError(f"{command}: exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
    return None


def row(fault: Fault, caught: str | None, seconds: float) -> str:
    cell = "**none**" if caught is None else "`" + caught.replace("|", "\\|") + "`"
    return f"| {fault.what} | `{fault.file}` | {cell} | {seconds:.0f} |"


def before(row: str | None) -> list[str]:
    """The test that a row names, as an argument of pytest's."""
    found = row and re.search(r"`((?:\w+/)?test_.+)` \| \d+ \|$", row)
    return [f"tests/{found[1].removesuffix(ENDS)}".replace("\\|", "|")] if found else []


def known_rows() -> dict[str, str]:
    """What the table says now, by fault."""
    lines = TABLE.read_text().splitlines() if TABLE.exists() else []
    return {line[2:].split(" | `")[0]: line for line in lines if line.startswith("| ")}


def write(rows: dict[str, str]) -> None:
    """Rows in the order of the faults, and none of faults that are no longer there."""
    kept = [rows[fault.what] for fault in FAULTS if fault.what in rows]
    TABLE.write_text(HEAD + "".join(f"{line}\n" for line in kept))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
