"""Where a long run stands: a bar on a terminal, plain lines otherwise."""

import shutil
import sys
import time


class Progress:
    """Counts finished rows of a known total."""

    def __init__(self, total: int):
        self.total = total
        self.done = 0
        self.started = time.monotonic()

    def show(self, text: str) -> None:
        """One more row is done."""
        self.done += 1
        passed = time.monotonic() - self.started
        left = passed / self.done * (self.total - self.done)
        if not sys.stdout.isatty():
            print(f"[{self.done}/{self.total}] {text}", flush=True)
            return
        width = shutil.get_terminal_size().columns
        filled = 20 * self.done // self.total
        bar = (
            f"{'█' * filled}{'░' * (20 - filled)} {self.done}/{self.total} {left / 60:.0f} min left"
        )
        print(f"\r\033[K{text[: width - 1]}\n\r{bar[: width - 1]}", end="", flush=True)

    def close(self) -> None:
        """Leave the cursor on a line of its own."""
        if sys.stdout.isatty():
            print()
