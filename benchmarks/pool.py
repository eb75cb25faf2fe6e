"""The parent's side of the workers: start, ask with a time limit, restart after a crash."""

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
START_SECONDS = 120.0  # imports may be slow on a cold disk


class EngineError(Exception):
    """An engine did not deliver; `status` is missing, unsupported, failed or capped."""

    def __init__(self, status: str, reason: str):
        super().__init__(reason)
        self.status = status
        self.reason = reason.strip()[:500]


@dataclass
class Pool(contextlib.AbstractContextManager):
    """Worker processes by engine label; a context manager that ends them."""

    interpreters: dict[str, str] = field(default_factory=dict)
    paths: dict[str, str] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)  # of every worker
    environments: dict[str, dict[str, str]] = field(default_factory=dict)  # of one label's alone
    versions: dict[str, dict] = field(default_factory=dict)
    _missing: dict[str, EngineError] = field(default_factory=dict)
    _running: dict[str, subprocess.Popen] = field(default_factory=dict)
    _logs: dict[str, object] = field(default_factory=dict)

    def __exit__(self, *exception: object) -> None:
        for label in list(self._running):
            self._stop(label)

    def ask(self, label: str, request: dict, seconds: float) -> dict:
        """The engine's reply; raises EngineError, and ends the worker if it is stuck or dead."""
        self.start(label)
        return self._ask(label, request, seconds)

    def start(self, label: str) -> None:
        """See to it that an engine's worker runs; one that could not start is not tried again."""
        if label in self._missing:
            raise self._missing[label]
        if label in self._running:
            return
        try:
            self._launch(label)
            self.versions[label] = self._ask(label, {"do": "hello"}, START_SECONDS)["versions"]
        except EngineError as error:
            self._missing[label] = error
            self._stop(label)
            raise

    def _launch(self, label: str) -> None:
        python = self.interpreters.get(label, sys.executable)
        command = [python, "-m", "benchmarks.worker", label]
        if label in self.paths:
            command.append(str(Path(self.paths[label]).resolve()))
        self._logs[label] = tempfile.TemporaryFile("w+", errors="replace")  # noqa: SIM115
        try:
            self._running[label] = subprocess.Popen(
                command,
                cwd=ROOT,
                env=os.environ | self.environment | self.environments.get(label, {}),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._logs[label],
            )
        except OSError as error:
            raise EngineError("missing", f"{python}: {error}") from None

    def _ask(self, label: str, request: dict, seconds: float) -> dict:
        process = self._running[label]
        try:
            process.stdin.write(json.dumps(request, default=asdict).encode() + b"\n")
            process.stdin.flush()
            line = _read_line(process.stdout, seconds)
        except BrokenPipeError:
            line = b""
        except TimeoutError:
            self._stop(label)
            raise EngineError("capped", f"{request['do']} took over {seconds:g} s") from None
        if not line:
            code, log = process.wait(), self._logs[label]
            log.seek(0)
            told = log.read()[-400:].strip()
            self._stop(label)
            raise EngineError("failed", f"the process ended with exit code {code}: {told}")
        reply = json.loads(line)
        if "error" in reply:
            raise EngineError(reply["status"], reply["error"])
        return reply

    def _stop(self, label: str) -> None:
        if log := self._logs.pop(label, None):
            log.close()
        if process := self._running.pop(label, None):
            process.kill()
            process.wait()
            with contextlib.suppress(BrokenPipeError):  # a request that nobody read
                process.stdin.close()
            process.stdout.close()


def _read_line(pipe, seconds: float) -> bytes:
    """One line, b"" if the other end is gone, TimeoutError if it takes too long.

    The protocol has one reply in flight, so nothing can follow the line in the buffer.
    """
    ready, _, _ = select.select([pipe], [], [], seconds)
    if not ready:
        raise TimeoutError
    return pipe.readline()
