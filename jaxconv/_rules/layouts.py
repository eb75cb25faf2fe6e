"""From `data_format` and `weights_format` to axis numbers.

N is the batch, C the channels, X all spatial axes, O and I the output and input channels of the
weights. A spatial rank is the number of spatial axes.
"""

from jaxconv._base.geometry import DataLayout, KernelLayout

DATA_FORMATS = ("NXC", "NCX")
WEIGHTS_FORMATS = ("OIX", "XIO", "IOX", "XOI")


def find_axes(letters: str, spatial_rank: int) -> dict[str, int]:
    """Find the axis of each letter of a format; for X, the first spatial axis."""
    found, axis = {}, 0
    for letter in letters:
        found[letter] = axis
        axis += spatial_rank if letter == "X" else 1
    return found


def parse_data_format(data_format: str, spatial_rank: int) -> DataLayout:
    """Convert NXC or NCX to a layout with this many spatial axes."""
    at = find_axes(data_format, spatial_rank)
    return DataLayout(at["N"], at["C"], tuple(range(at["X"], at["X"] + spatial_rank)))


def parse_weights_format(
    weights_format: str, spatial_rank: int, coarse_letter: str
) -> KernelLayout:
    """Convert a weights format to a layout.

    `coarse_letter` is that of the channels which weights share with the coarse tensor: O in a
    convolution, I in a transposed convolution.
    """
    at = find_axes(weights_format, spatial_rank)
    fine_letter = "I" if coarse_letter == "O" else "O"
    spatial = tuple(range(at["X"], at["X"] + spatial_rank))
    return KernelLayout(at[coarse_letter], at[fine_letter], spatial)
