"""The sizes and the padding of one spatial axis: one rule for each operation.

In the rules of auto_pad, f and c are the fine and the coarse extent, and `extent` is the extent of
the dilated kernel.
"""

from collections.abc import Callable
from dataclasses import dataclass

from jaxconv._base.geometry import Axis
from jaxconv._base.messages import Refusal


def share_out(total: int, mode: str) -> tuple[int, int]:
    """Share out `total`; same_upper puts an odd zero at the end, same_lower at the start."""
    low = total // 2 if mode == "same_upper" else (total + 1) // 2
    return low, total - low


def same_of_convolution(f: int, stride: int, extent: int) -> int:
    """Find the total that makes c = ceil(f / stride), never negative."""
    return max((-(-f // stride) - 1) * stride + extent - f, 0)


def same_of_transpose(stride: int, extent: int) -> int:
    """Find the total that makes f = stride * c (plus output_padding), if extent >= stride."""
    return max(extent - stride, 0)


def same_to_reach(f: int, c: int, stride: int, extent: int, output_padding: int) -> int:
    """Find the total that makes a transposed convolution of c give exactly f, if not negative."""
    return max(stride * (c - 1) + extent + output_padding - f, 0)


@dataclass(frozen=True)
class AxisAttributes:
    """The user's attributes for one axis."""

    op: str
    index: int
    auto_pad: str
    stride: int
    pad_begin: int
    pad_end: int
    dilation: int
    output_padding: int

    def extent(self, kernel: int) -> int:
        """The extent of the dilated kernel."""
        return self.dilation * (kernel - 1) + 1

    def pads(self, same_total: Callable[[], int]) -> tuple[int, int]:
        """Find the padding before and after; the same_* modes share out `same_total()`."""
        if self.auto_pad == "none":
            return self.pad_begin, self.pad_end
        if self.auto_pad == "valid":
            return 0, 0
        return share_out(same_total(), self.auto_pad)

    def room(self, name: str, fine: int, kernel: int, low: int, high: int) -> int:
        """Find how far the window can move over the padded tensor of this name."""
        room = low + fine + high - self.extent(kernel)
        if room < 0:
            weights = "weights_shape" if self.op == "convolution_backward_weights" else "weights"
            raise self.error(
                "",
                f"`{weights}`, dilated, must fit into the padded `{name}`",
                f"an extent of {self.extent(kernel)} (kernel {kernel}, dilation {self.dilation}) "
                f"over {low + fine + high} ({name} {fine}, pads {low} and {high})",
            )
        return room

    def axis(self, fine: int, kernel: int, coarse: int, pad_low: int) -> Axis:
        """Make an axis of the geometry."""
        return Axis(fine, kernel, coarse, self.stride, self.dilation, pad_low)

    def error(self, argument: str, rule: str, got: str) -> ValueError:
        """Make an error that names the operation and the axis."""
        return ValueError(Refusal(self.op, argument, rule, f"{got} (spatial axis {self.index})"))


#: An axis of the geometry, and the padding after it as a user would spell it.
Sized = tuple[Axis, int]


def convolution(a: AxisAttributes, *, src: int, weights: int) -> Sized:
    """Find the coarse extent: as many pixels as windows fit."""
    low, high = a.pads(lambda: same_of_convolution(src, a.stride, a.extent(weights)))
    room = a.room("src", src, weights, low, high)
    return a.axis(src, weights, room // a.stride + 1, low), high


def convolution_backward_weights(a: AxisAttributes, *, src: int, dst: int, weights: int) -> Sized:
    """Check that all three given extents are the extents of a convolution."""
    axis, high = convolution(a, src=src, weights=weights)
    if axis.coarse != dst:
        rule = f"must have the extent that convolution gives, {axis.coarse}"
        raise a.error("diff_dst", rule, f"{dst} for {_describe(axis, high, src=src)}")
    return axis, high


def convolution_backward_data(
    a: AxisAttributes, *, dst: int, weights: int, src: int | None = None
) -> Sized:
    """Undo a convolution of `src`; without `src`, find extents as a transposed convolution does."""
    if src is None or a.output_padding:
        return conv_transpose(a, src=dst, weights=weights, dst=src)
    low, high = a.pads(lambda: same_of_convolution(src, a.stride, a.extent(weights)))
    room = src + low + high - a.extent(weights)
    if room < 0 or room // a.stride + 1 != dst:
        if a.auto_pad.startswith("same"):
            first = a.stride * (dst - 1) + 1
        else:
            first = a.stride * (dst - 1) + a.extent(weights) - low - high
        last, first = first + a.stride - 1, max(first, 1)
        fitting = "no extent fits" if last < 1 else f"{first} to {last} fit"
        fitting = f"only {last} fits" if first == last else fitting
        rule = f"must have an extent from which convolution gives that of diff_dst, {dst}"
        raise a.error("dst_shape", rule, f"{src}, and {fitting}")
    return a.axis(src, weights, dst, low), high


def conv_transpose(a: AxisAttributes, *, src: int, weights: int, dst: int | None = None) -> Sized:
    """Find the fine extent that the windows reach, or check the extent in `dst_shape`."""
    extent = a.extent(weights)
    reach = a.stride * (src - 1) + extent
    if dst is None:
        low, high = a.pads(lambda: same_of_transpose(a.stride, extent))
        fine = reach + a.output_padding - low - high
        if fine < 1:
            coarse = "diff_dst" if a.op == "convolution_backward_data" else "src"
            raise a.error(
                "pads_begin",
                "and `pads_end` must leave the result an extent of at least 1",
                f"{fine} = {a.stride} * {src - 1} + {extent} + {a.output_padding} - {low + high} = "
                f"stride * ({coarse} - 1) + dilated kernel + output_padding - pads",
            )
        return a.axis(fine, weights, src, low), high
    low, high = a.pads(lambda: same_to_reach(dst, src, a.stride, extent, a.output_padding))
    implied = dst - (reach - low - high)
    if implied < 0:
        least = reach - low - high
        rule = (
            f"must have an extent of at least {least}, what these pads leave without output_padding"
        )
        raise a.error("dst_shape", rule, str(dst))
    if a.output_padding and implied != a.output_padding and not a.auto_pad.startswith("same"):
        implies = f"which implies an output_padding of {implied}"
        got = f"{dst}, {implies}, and output_padding={a.output_padding}"
        raise a.error("dst_shape", "and `output_padding` must agree", got)
    return a.axis(dst, weights, src, low), high


def conv_transpose_backward_data(a: AxisAttributes, *, dst: int, weights: int) -> Sized:
    """Undo a transposed convolution: the rest that no window reaches is output_padding."""
    extent = a.extent(weights)
    low, high = a.pads(lambda: same_of_transpose(a.stride, extent))
    room = a.room("diff_dst", dst, weights, low, high)
    rest = room - a.output_padding
    if a.output_padding and (rest < 0 or rest % a.stride):
        most = f"{room} = diff_dst + pads - dilated kernel"
        rule = f"must be at most {most}, and leave a multiple of stride {a.stride} of that"
        got = f"{a.output_padding}. Left out, it is {room % a.stride}"
        raise a.error("output_padding", rule, got)
    return a.axis(dst, weights, rest // a.stride + 1, low), high


def conv_transpose_backward_weights(
    a: AxisAttributes, *, src: int, dst: int, weights: int
) -> Sized:
    """Check that all three given extents fit: output_padding is the rest."""
    extent = a.extent(weights)
    low, high = a.pads(lambda: same_of_transpose(a.stride, extent))
    axis = a.axis(dst, weights, src, low)
    implied = dst - (a.stride * (src - 1) + extent - low - high)
    if implied < 0:
        least = f"{dst - implied}, what conv_transpose gives without output_padding"
        got = f"{dst} for {_describe(axis, high, src=src)}"
        raise a.error("diff_dst", f"must have an extent of at least {least}", got)
    if a.output_padding and implied != a.output_padding:
        got = f"{a.output_padding} for {_describe(axis, high, src=src, diff_dst=dst)}"
        raise a.error("output_padding", f"must be what the extents imply, {implied}", got)
    return axis, high


def _describe(axis: Axis, high: int, **extents: int) -> str:
    given = "".join(f"{name} {extent}, " for name, extent in extents.items())
    return (
        f"{given}kernel {axis.kernel}, stride {axis.stride}, dilation {axis.dilation}, "
        f"pads {axis.pad_low} and {high}"
    )


#: The rule of each operation, which has its name.
RULES: dict[str, Callable[..., Sized]] = {
    rule.__name__: rule
    for rule in (
        convolution,
        convolution_backward_data,
        convolution_backward_weights,
        conv_transpose,
        conv_transpose_backward_data,
        conv_transpose_backward_weights,
    )
}
