"""The letters of `data_format` and `weights_format`, as axis positions."""

from jaxconv._base.geometry import DataLayout, KernelLayout

DATA_FORMATS = ("NXC", "NCX")
WEIGHTS_FORMATS = ("OIX", "XIO", "IOX", "XOI")


def positions(letters: str, rank: int) -> dict[str, int]:
    """Find the axis of each letter of a format, and the first spatial axis for X."""
    found, axis = {}, 0
    for letter in letters:
        found[letter] = axis
        axis += rank if letter == "X" else 1
    return found


def data_layout(data_format: str, rank: int) -> DataLayout:
    """Read NXC or NCX with `rank` spatial axes."""
    at = positions(data_format, rank)
    return DataLayout(at["N"], at["C"], tuple(range(at["X"], at["X"] + rank)))


def kernel_layout(weights_format: str, rank: int, coarse_letter: str) -> KernelLayout:
    """Read a weights format, where `coarse_letter` (O or I) meets the coarse tensor."""
    at = positions(weights_format, rank)
    fine_letter = "I" if coarse_letter == "O" else "O"
    spatial = tuple(range(at["X"], at["X"] + rank))
    return KernelLayout(at[coarse_letter], at[fine_letter], spatial)
