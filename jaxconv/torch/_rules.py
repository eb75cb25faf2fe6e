"""PyTorch's rules for a layer: from sizes and arguments to attributes of ours, or to an error."""

from functools import lru_cache
from typing import Any, NamedTuple

from jaxconv._base.messages import either, shown
from jaxconv._base.typing import Shape
from jaxconv._rules import attributes as parse

#: PyTorch's names of padding modes, and those of `jax.numpy.pad`.
PADDING_MODES = {"zeros": "", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}

#: Our names of arguments, and PyTorch's.
NAMES = {"src": "input", "weights": "weight", "strides": "stride", "dilations": "dilation"}
NAMES |= {"pads_begin": "padding", "pads_end": "padding"}

Pairs = tuple[tuple[int, int], ...]


class Layer(NamedTuple):
    """A layer as the operation takes it."""

    attributes: dict[str, Any]
    #: what is written around the input before, on each axis; none of zeros
    written: Pairs


def read_layer(
    name: str,
    rank: int,
    sizes: tuple[Shape, Shape, Shape | None],
    rules: tuple[object, ...],
    padding_mode: object,
) -> Layer:
    """Parse the arguments of a layer on a batch; `sizes` are those of input, weight and bias.

    `rules` are stride, padding, dilation, groups and, of a transposed layer, output_padding.
    """
    stride, padding, dilation, groups, *output_padding = rules
    if not isinstance(padding_mode, str) or padding_mode not in PADDING_MODES:
        modes = either(map(repr, PADDING_MODES))
        raise ValueError(f"{name}: `padding_mode` must be {modes}; got {shown(padding_mode)}")
    if not isinstance(padding, str) or output_padding:
        padding = read_ints(name, "padding", padding, rank)
    return _find_layer(
        name,
        sizes,
        read_ints(name, "stride", stride, rank),
        padding,
        read_ints(name, "dilation", dilation, rank),
        parse.count(name, "groups", groups),
        read_ints(name, "output_padding", output_padding[0], rank) if output_padding else None,
        padding_mode,
    )


def read_ints(name: str, argument: str, value: object, rank: int) -> tuple[int, ...]:
    """Parse ints for each axis: an int, or a sequence of one or `rank` ints, of any sign."""
    if isinstance(value, tuple | list) and len(value) == 1:
        value = value[0]
    return parse.axis_ints(name, argument, value, rank, -parse.MAX_INT)


@lru_cache(maxsize=4096)
def _find_layer(
    name: str,
    sizes: tuple[Shape, Shape, Shape | None],
    stride: tuple[int, ...],
    padding: tuple[int, ...] | str,
    dilation: tuple[int, ...],
    groups: int,
    output_padding: tuple[int, ...] | None,
    padding_mode: str,
) -> Layer:
    """Check all sizes. The key of the cache has ints, tuples and strings: no 1.0, no True."""
    (input, weight, bias), transposed = sizes, output_padding is not None
    _check_sizes(name, len(stride), input, weight, transposed)
    for argument, values, least in (
        ("stride", stride, 1),
        ("dilation", dilation, 1),
        ("padding", (0,) if isinstance(padding, str) else padding, 0),
        ("output_padding", output_padding or (0,), 0),
    ):
        if min(values) < least:
            sign = "non-positive" if least else "negative"
            raise ValueError(
                f"{name}: {sign} {argument} is not supported; got {values}, and `{argument}` "
                f"must be at least {least}"
            )
    _check_channels(name, input, weight, groups, transposed)
    reach = tuple(d * (k - 1) for d, k in zip(dilation, weight[2:], strict=True))
    pads = _find_pads(name, padding, stride, reach)
    kernel = tuple(r + 1 for r in reach)
    padded = tuple(n + sum(p) for n, p in zip(input[2:], pads, strict=True))
    if output_padding is not None:
        steps = map(max, stride, dilation)
        if any(o >= step for o, step in zip(output_padding, steps, strict=True)):
            raise ValueError(
                f"{name}: output padding must be smaller than either stride or dilation; got "
                f"output_padding {output_padding}, stride {stride}, dilation {dilation}. "
                f"jaxconv.conv_transpose takes any"
            )
        axes = zip(input[2:], stride, kernel, output_padding, pads, strict=True)
        extents = tuple(s * (n - 1) + k + more - sum(p) for n, s, k, more, p in axes)
        if min(extents) < 1:
            raise ValueError(
                f"{name}: the output must have extents of at least 1; got {_by(extents)}, since "
                f"`padding` {padding} is cropped from both ends"
            )
    elif any(k > n for k, n in zip(kernel, padded, strict=True)):
        raise ValueError(
            f"{name}: kernel size can't be greater than actual input size: the dilated kernel "
            f"is {_by(kernel)}, the padded input {_by(padded)}. Pad more, or dilate less"
        )
    channels = weight[1] * groups if transposed else weight[0]
    if bias not in (None, (channels,)):
        raise ValueError(
            f"{name}: expected bias to be 1-dimensional with {channels} elements, one for "
            f"each output channel; got bias of size {bias}"
        )
    written = pads if PADDING_MODES[padding_mode] else ()
    _check_written(name, padding_mode, input[2:], written)
    around = ((0, 0),) * len(pads) if written else pads
    attributes = {
        "strides": stride,
        "pads_begin": tuple(low for low, _ in around),
        "pads_end": tuple(high for _, high in around),
        "dilations": dilation,
        "groups": groups,
        "data_format": "NCX",
        "weights_format": "IOX" if transposed else "OIX",
    }
    return Layer(attributes | ({"output_padding": output_padding} if transposed else {}), written)


def _check_sizes(name: str, rank: int, input: Shape, weight: Shape, transposed: bool) -> None:
    channels = "in_channels, out_channels" if transposed else "out_channels, in_channels"
    for argument, size, meaning in (
        ("input", input, "(batch, channels, *spatial)"),
        ("weight", weight, f"({channels}/groups, *kernel)"),
    ):
        if len(size) != rank + 2:
            expected = f"{rank + 2}-dimensional {argument}, {meaning}"
            if argument == "input":
                expected = f"{rank + 1}D (unbatched) or {rank + 2}D (batched) {argument}, {meaning}"
            raise ValueError(f"{name}: expected {expected}; got size {size}")
        if not all(isinstance(n, int) and n > 0 for n in size[argument == "input" :]):
            raise ValueError(
                f"{name}: `{argument}` must have constant extents of at least 1, except for "
                f"the batch; got size {size}"
            )


def _check_channels(name: str, input: Shape, weight: Shape, groups: int, transposed: bool) -> None:
    if weight[0] % groups:
        raise ValueError(
            f"{name}: expected weight to be divisible by groups={groups} at dimension 0; got "
            f"weight of size {weight}"
        )
    expected = weight[0] if transposed else weight[1] * groups
    if input[1] != expected:
        last = ". Channels last would fit: move that axis to the front" * (input[-1] == expected)
        raise ValueError(
            f"{name}: given groups={groups} and weight of size {weight}, expected input {input} to "
            f"have {expected} channels, but got {input[1]} channels instead{last}"
        )


def _find_pads(
    name: str, padding: tuple[int, ...] | str, stride: tuple[int, ...], reach: tuple[int, ...]
) -> Pairs:
    """Find the padding before and after, on each axis; "same" has an odd pixel at the end."""
    if not isinstance(padding, str):
        return tuple((p, p) for p in padding)
    if padding not in ("valid", "same"):
        raise ValueError(
            f"{name}: invalid padding string {padding!r}; `padding` must be 'valid', 'same' or ints"
        )
    if padding == "valid":
        return ((0, 0),) * len(stride)
    if max(stride) > 1:
        raise ValueError(
            f"{name}: padding='same' is not supported for strided convolutions; got stride "
            f"{stride}. Give `padding` in ints, or call jaxconv.convolution, whose auto_pad strides"
        )
    return tuple((r // 2, r - r // 2) for r in reach)


def _check_written(name: str, mode: str, extents: tuple[int, ...], written: Pairs) -> None:
    """Check that an axis is long enough to be reflected, or to be wrapped around once."""
    room = {"reflect": -1, "circular": 0}.get(mode)
    if room is None or all(max(p) <= n + room for n, p in zip(extents, written, strict=True)):
        return
    rule = "be less than" if room else "not exceed"
    raise ValueError(
        f"{name}: padding size should {rule} the corresponding input dimension where padding_mode "
        f"is {mode!r}; got padding {written} for an input of {_by(extents)}. 'replicate' takes any"
    )


def _by(extents: tuple[int, ...]) -> str:
    return f"({' x '.join(map(str, extents))})"
