"""PyTorch's names, and what its functions refuse and the six operations take.

All sizes are left to the operations, whose errors come with PyTorch's names.
"""

from typing import Any

import jax.numpy as jnp

from jaxconv._base.messages import Refusal, either, shown
from jaxconv._base.typing import ArrayLike, Shape
from jaxconv._rules import attributes as parse
from jaxconv._rules.layouts import check_first_axis
from jaxconv._rules.op import OPS
from jaxconv._rules.resolve import is_too_large, resolve_sizes

#: PyTorch's names of padding modes, and those of `jax.numpy.pad`.
PADDING_MODES = {"zeros": "", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}

#: PyTorch's names of paddings, and those of `auto_pad`.
AUTO_PADS = {"valid": "valid", "same": "same_upper"}

#: Our names of arguments, and PyTorch's.
NAMES = {"src": "input", "weights": "weight", "dst": "output"}
NAMES |= {"strides": "stride", "dilations": "dilation"}
NAMES |= {"pads_begin": "padding", "pads_end": "padding"}


def read_attributes(
    name: str, input: Shape, weight: Shape, rules: tuple[object, ...]
) -> dict[str, Any]:
    """Parse the arguments of a layer on a batch: the attributes of the operation.

    `rules` are stride, padding, dilation, groups and, of a transposed layer, output_padding.
    """
    rank, (stride, padding, dilation, groups, *more) = len(input) - 2, rules
    transposed = bool(more)
    groups = parse.count(name, "groups", groups)
    strides = read_ints(name, "stride", stride, rank, 1)
    dilations = read_ints(name, "dilation", dilation, rank, 1)
    attributes = {"strides": strides, "dilations": dilations, "groups": groups}
    attributes |= {"data_format": "NCX", "weights_format": "IOX" if transposed else "OIX"}
    if transposed:
        check_first_axis(input, weight, groups)
        high = read_ints(name, "output_padding", more[0], rank, 0)
        if any(o >= max(steps) for o, *steps in zip(high, strides, dilations, strict=True)):
            rule = "must be smaller than either stride or dilation"
            got = f"{high} with stride {strides} and dilation {dilations}"
            remedy = "jaxconv.conv_transpose takes any"
            raise ValueError(Refusal(name, "output_padding", rule, got, remedy))
        attributes["output_padding"] = high
    if isinstance(padding, str) and not transposed:
        return attributes | {"auto_pad": _find_auto_pad(name, padding, strides)}
    pads = read_ints(name, "padding", padding, rank, 0)
    return attributes | {"pads_begin": pads, "pads_end": pads}


def read_ints(name: str, argument: str, value: object, rank: int, least: int) -> tuple[int, ...]:
    """Parse ints of at least `least` for each axis: an int, or a sequence of one or `rank` ints."""
    if isinstance(value, tuple | list) and len(value) == 1:
        value = tuple(value) * rank
    return parse.axis_ints(name, argument, value, rank, least)


def _find_auto_pad(name: str, padding: str, stride: tuple[int, ...]) -> str:
    """Find our name of a padding; "same" has an odd pixel at the end."""
    if padding not in AUTO_PADS:
        rule = "must be 'valid', 'same' or ints"
        raise ValueError(Refusal(name, "padding", rule, shown(padding)))
    if padding == "same" and max(stride) > 1:
        rule = "must be in ints: 'same' is not supported for strided convolutions"
        remedy = "Give ints, or call jaxconv.convolution, whose auto_pad strides"
        raise ValueError(Refusal(name, "padding", rule, f"stride {stride}", remedy))
    return AUTO_PADS[padding]


def write_padding(
    name: str, data: ArrayLike, weight: Shape, attributes: dict[str, Any], mode: object
) -> tuple[ArrayLike, dict[str, Any]]:
    """Write what a `padding_mode` other than zeros pads with, and take it out of the attributes."""
    if not isinstance(mode, str) or mode not in PADDING_MODES:
        rule = f"must be {either(map(repr, PADDING_MODES))}"
        raise ValueError(Refusal(name, "padding_mode", rule, shown(mode)))
    if mode == "zeros":
        return data, attributes
    given = {"auto_pad": None, **attributes}
    resolved = resolve_sizes(OPS["convolution"], data.shape, weight, **given)
    extents, ends = data.shape[2:], resolved.pads_end
    pads = list(zip(resolved.pads_begin, ends, strict=True))
    room = {"reflect": -1, "circular": 0}.get(mode)
    # An axis is reflected, or wrapped around, once at most.
    if room is not None and any(max(p) > n + room for n, p in zip(extents, pads, strict=True)):
        rule = f"must {'be less than' if room else 'not exceed'} the extent of the input's axis"
        got = f"{ends} for extents {extents} and padding_mode {mode!r}"
        raise ValueError(Refusal(name, "padding", rule, got, "'replicate' takes any"))
    if is_too_large((*data.shape[:2], *(n + sum(p) for n, p in zip(extents, pads, strict=True)))):
        got = f"{ends} for shape {data.shape}"
        rule = "must leave the padded `input` at most 2**48 elements"
        raise ValueError(Refusal(name, "padding", rule, got))
    data = jnp.pad(data, ((0, 0), (0, 0), *pads), mode=PADDING_MODES[mode])
    return data, attributes | {"auto_pad": "valid"}
