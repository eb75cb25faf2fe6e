"""Shared by the commands of the package: a progress bar, and a pipe that closes early."""

import os
import sys
import time
from collections.abc import Callable, Sequence


def run(main: Callable[[Sequence[str]], int]) -> None:
    """Exit with the code of `main`; quietly if the reader of the output has closed the pipe."""
    try:
        code = main(sys.argv)
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the last flush
        code = 1
    sys.exit(code)


class Progress:
    """A bar on a terminal, and elsewhere a line for each tenth."""

    def __init__(self, total: int) -> None:
        """Start a bar of `total` steps."""
        self.total, self.done, self.started = total, 0, time.monotonic()

    def step(self, text: str) -> None:
        """Count one more step, and show it with `text`."""
        self.done += 1
        passed = time.monotonic() - self.started
        left = passed / self.done * (self.total - self.done)
        state = f"{self.done}/{self.total}, {left / 60:.0f} min left, {text}"
        if sys.stdout.isatty():
            filled = 30 * self.done // self.total
            end = "\n" if self.done == self.total else ""
            print(f"\r\033[K[{'#' * filled:30}] {state}", end=end, flush=True)
        elif 10 * self.done // self.total > 10 * (self.done - 1) // self.total:
            print(state, flush=True)
