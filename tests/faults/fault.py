"""What a fault is: a few characters of one file, replaced."""

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Fault:
    """`old`, which stands exactly once in a file of the package, becomes `new`."""

    what: str
    file: str  # below jaxconv/
    old: str
    new: str

    @property
    def room(self) -> str:
        """The folder of the tests that are likely to see it; only for speed."""
        first = self.file.split("/")[0].removesuffix(".py").removeprefix("_")
        return f"tests/{'transforms' if first in ('contract', 'base') else first}"

    def applied(self, root: Path) -> str:
        """The text of the file with the fault in it."""
        text = (root / "jaxconv" / self.file).read_text()
        if (count := text.count(self.old)) != 1 or self.old == self.new:
            raise ValueError(f"{self.what}: {self.old!r} stands {count} times in {self.file}")
        return text.replace(self.old, self.new)


def faults(*of_files: tuple) -> tuple[Fault, ...]:
    """Those of a table: a file, and for each of its faults what, old and new."""
    return tuple(Fault(what, file, old, new) for file, *rows in of_files for what, old, new in rows)
