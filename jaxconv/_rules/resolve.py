"""From shapes and user attributes to a geometry, or to an error: one resolver for all six ops."""

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

from jax.export import is_symbolic_dim

from jaxconv._base.geometry import Geometry
from jaxconv._base.messages import Refusal, either, short
from jaxconv._base.typing import Shape
from jaxconv._rules import attributes as parse
from jaxconv._rules import layouts, sizes
from jaxconv._rules.op import Op


@dataclass(frozen=True)
class Resolved:
    """The sizes and pads that an operation uses; see `jaxconv.resolve`.

    The three shapes are the shapes of the forward operation that the op belongs to (a diff
    tensor has the shape of the tensor it differentiates). `pads_begin`, `pads_end` and
    `output_padding` spell the same operation with explicit padding; where an op takes no
    `output_padding`, it is the remainder which the strides leave over.
    """

    op: str
    src_shape: Shape
    weights_shape: Shape
    dst_shape: Shape
    strides: tuple[int, ...]
    pads_begin: tuple[int, ...]
    pads_end: tuple[int, ...]
    dilations: tuple[int, ...]
    output_padding: tuple[int, ...]
    groups: int
    #: the same sizes as one frozen key for the lowerings, without batch and channels
    geometry: Geometry
    #: whether the weights hold their groups on the fine axis (a published transposed layout)
    groups_on_fine: bool

    def shape(self, tensor: str) -> Shape:
        """The shape of a tensor: src, weights, dst, or a diff tensor."""
        shape: Shape = getattr(self, f"{_forward_name(tensor)}_shape")
        return shape


class _Arguments(NamedTuple):
    """The user's arguments, parsed: the key of a cache, and a tuple, since tuples hash fast."""

    op: Op
    first: Shape
    second: Shape
    shape: Shape | None
    strides: tuple[int, ...]
    pads_begin: tuple[int, ...]
    pads_end: tuple[int, ...]
    dilations: tuple[int, ...]
    output_padding: tuple[int, ...]
    auto_pad: str
    groups: int
    data_format: str
    weights_format: str

    def axis(self, i: int) -> sizes.AxisAttributes:
        """The attributes of one axis."""
        return sizes.AxisAttributes(
            self.op.name, i, self.auto_pad, stride=self.strides[i], pad_begin=self.pads_begin[i],
            pad_end=self.pads_end[i], dilation=self.dilations[i],
            output_padding=self.output_padding[i],
        )  # fmt: skip


def resolve_sizes(
    op: Op, first: Shape, second: Shape, result_shape: object = None, **attributes: Any
) -> Resolved:
    """Parse the arguments of `op`, whose two inputs have these shapes, and find the sizes.

    Arguments that no size depends on are ignored.
    """
    name = op.name
    if len(first) < 3:
        rule = "must have a batch axis, a channel axis and at least one spatial axis"
        raise ValueError(Refusal(name, op.inputs[0], rule, f"shape {first}"))
    if len(second) != len(first):
        lesser = op.inputs[len(second) < len(first)]
        hint = "" if lesser == "weights" else f"Does `{lesser}` lack its batch axis?"
        rule = f"must have as many axes as `{op.inputs[0]}`"
        got = f"shapes {short(second)} and {short(first)}"
        raise ValueError(Refusal(name, op.inputs[1], rule, got, hint))
    if len(first) > 64:
        rule = "must have at most 64 axes, as NumPy's arrays"
        raise ValueError(Refusal(name, op.inputs[0], rule, str(len(first))))
    rank = len(first) - 2
    known = {"data_format": layouts.DATA_FORMATS, "weights_format": layouts.WEIGHTS_FORMATS}
    parsed: dict[str, Any] = {n: parse.letters(name, n, attributes[n], known[n]) for n in known}
    if result_shape is not None or op.shape_argument == "weights_shape":
        assert op.shape_argument is not None
        order = parsed["weights_format" if op.shape_argument == "weights_shape" else "data_format"]
        result_shape = parse.shape(
            name, op.shape_argument, result_shape, rank + 2, f"in {order} order"
        )
    for attribute, least in parse.MIN_VALUES.items():
        given = attributes.get(attribute, 0)  # not all operations take an output_padding
        parsed[attribute] = parse.axis_ints(name, attribute, given, rank, least)
    parsed["auto_pad"] = parse.auto_pad(name, attributes["auto_pad"])
    parsed["groups"] = parse.count(name, "groups", attributes["groups"])
    arguments = _Arguments(op, first, second, result_shape, **parsed)
    try:
        return _find_sizes(arguments)
    except ValueError as error:
        message: Refusal = error.args[0]
        raise ValueError(message.with_parts(formats=_layout_hint(arguments))) from None


def _layout_hint(arguments: _Arguments) -> str:
    """Name the nearest formats that these very shapes would fit, if there are any."""
    fits = []
    for data, weights in product(layouts.DATA_FORMATS, layouts.WEIGHTS_FORMATS):
        changes = [f"data_format={data!r}"] if data != arguments.data_format else []
        changes += [f"weights_format={weights!r}"] if weights != arguments.weights_format else []
        try:
            _find_sizes(arguments._replace(data_format=data, weights_format=weights))
        except ValueError:
            continue
        fits.append(changes)
    nearest = min(map(len, fits), default=0)
    names = [" and ".join(changes) for changes in fits if len(changes) == nearest]
    return f"These shapes would fit {either(names)}" if names else ""


@lru_cache(maxsize=4096)
def _find_sizes(arguments: _Arguments) -> Resolved:
    """Find the sizes; cached, since each eager call needs the sizes."""
    op, groups = arguments.op, arguments.groups
    data_format, weights_format = arguments.data_format, arguments.weights_format
    rank = len(arguments.first) - 2
    layout = layouts.parse_data_format(data_format, rank)
    shapes = dict(zip(op.inputs, (arguments.first, arguments.second), strict=True))
    if arguments.shape is not None:
        assert op.shape_argument is not None
        shapes[op.shape_argument] = arguments.shape
    for name, shape in shapes.items():
        _check_extents(op, name, shape, None if name.startswith("weights") else layout.batch)
    asked = shapes.pop("dst_shape", None)
    weights = shapes.pop("weights_shape", None) or shapes.pop("weights")
    batches = [shape[layout.batch] for shape in shapes.values()]
    if len(shapes) == 2 and batches[0] != batches[1]:
        rule = f"must have the batch of `{op.inputs[0]}`"
        got = f"shapes {arguments.second} and {arguments.first} ({data_format})"
        raise ValueError(Refusal(op.name, op.inputs[1], rule, got))
    on_fine = layouts.check_channels(op, shapes, weights, groups, data_format, weights_format)
    kernel = layouts.parse_weights_format(weights_format, rank, op.transposed)
    coarse_channels = weights[kernel.coarse] * (groups if on_fine else 1)
    fine_channels = weights[kernel.fine] * (1 if on_fine else groups)

    # A rule takes extents as src, weights and dst.
    sized: list[sizes.Sized] = [
        sizes.RULES[op.name](
            arguments.axis(i),
            weights=weights[kernel.spatial[i]],
            **{_forward_name(name): shape[layout.spatial[i]] for name, shape in shapes.items()},
            **({} if asked is None else {_forward_name(op.result): asked[layout.spatial[i]]}),
        )
        for i in range(rank)
    ]
    geometry = Geometry(tuple(axis for axis, _ in sized), groups, layout, kernel)
    fine = geometry.shape_of("fine", batches[0], fine_channels)
    coarse = geometry.shape_of("coarse", batches[0], coarse_channels)
    result = {"fine": fine, "coarse": coarse, "kernel": weights}[op.slot(op.result)]
    _check_result(op, result, arguments)
    if asked is not None and asked != result:
        parts = f"the batch of `{op.inputs[0]}` and the channels of the weights"
        rule = f"must be the full shape of the result, with {parts}, {fine} ({data_format})"
        raise ValueError(Refusal(op.name, "dst_shape", rule, str(asked)))
    return Resolved(
        op=op.name,
        src_shape=coarse if op.transposed else fine,
        weights_shape=weights,
        dst_shape=fine if op.transposed else coarse,
        strides=arguments.strides,
        pads_begin=tuple(axis.pad_low for axis in geometry.axes),
        pads_end=tuple(high for _, high in sized),
        dilations=arguments.dilations,
        output_padding=tuple(high - axis.pad_high for axis, high in sized),
        groups=groups,
        geometry=geometry,
        groups_on_fine=on_fine,
    )


def _check_extents(op: Op, name: str, shape: Shape, batch: int | None) -> None:
    extents = [n for axis, n in enumerate(shape) if axis != batch]
    if any(is_symbolic_dim(n) for n in extents):
        rule = "must have constant extents (only the batch may be symbolic)"
    elif min(extents) < 1:
        rule = "must have extents of at least 1 (only the batch may be 0)"
    elif is_too_large(shape):
        rule = "must have at most 2**48 elements"
    else:
        return
    raise ValueError(Refusal(op.name, name, rule, f"shape {shape}"))


def _check_result(op: Op, shape: Shape, arguments: _Arguments) -> None:
    """Refuse a result of too many elements."""
    if is_too_large(shape):
        given = any(arguments.output_padding)
        names = [name for name in parse.MIN_VALUES if given or name != "output_padding"]
        attributes = ", ".join(f"`{name}` {getattr(arguments, name)}" for name in names)
        inputs = f"`{op.inputs[0]}` {arguments.first} and `{op.inputs[1]}` {arguments.second}"
        got = f"shape {shape} of {inputs} with {attributes}"
        raise ValueError(Refusal(op.name, "", "the result must have at most 2**48 elements", got))


def is_too_large(shape: Shape) -> bool:
    """Whether there are over 2**48 elements: at 2**63, XLA ends the process.

    A symbolic or empty batch counts as 1.
    """
    return math.prod(n for n in shape if isinstance(n, int) and n) > parse.MAX_ELEMENTS


def _forward_name(tensor: str) -> str:
    """Find the name of a tensor in the forward operation: diff_src is src."""
    return tensor.removeprefix("diff_")
