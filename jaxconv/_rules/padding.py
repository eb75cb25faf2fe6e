"""The padding rules, one function each, for one axis.

The names are the geometry's: f is the fine extent, c the coarse extent, `extent` the
extent of the dilated kernel.
"""


def split(total: int, mode: str) -> tuple[int, int]:
    """Share out `total`; same_upper puts an odd zero at the end, same_lower at the start."""
    low = total // 2 if mode == "same_upper" else (total + 1) // 2
    return low, total - low


def same_of_convolution(f: int, stride: int, extent: int) -> int:
    """Find the total that makes c = ceil(f / stride), never negative."""
    return max((-(-f // stride) - 1) * stride + extent - f, 0)


def same_of_transpose(stride: int, extent: int) -> int:
    """Find the total that makes f = stride * c (plus output_padding), whatever the sizes."""
    return max(extent - stride, 0)


def same_to_reach(f: int, c: int, stride: int, extent: int, output_padding: int) -> int:
    """Find the total that makes a transposed convolution of c give exactly f, if not negative."""
    return max(stride * (c - 1) + extent + output_padding - f, 0)
