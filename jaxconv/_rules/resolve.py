"""From shapes and user attributes to a geometry, or to an error: one resolver for all six ops."""

import math
from dataclasses import dataclass
from functools import lru_cache
from itertools import product
from typing import NamedTuple

from jax.export import is_symbolic_dim

from jaxconv._base.geometry import Geometry
from jaxconv._base.messages import either, short
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
        shape: Shape = getattr(self, f"{forward_name(tensor)}_shape")
        return shape


class _Given(NamedTuple):
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

    def axis(self, index: int) -> sizes.AxisAttributes:
        """The attributes of one axis."""
        ints = {name: getattr(self, name)[index] for name in parse.MIN_VALUES}
        return sizes.AxisAttributes(self.op.name, index, self.auto_pad, *ints.values())


def resolve_sizes(
    op: Op,
    first: Shape,
    second: Shape,
    result_shape: object,
    **attributes: object,
) -> Resolved:
    """Parse the arguments of `op`, whose two inputs have these shapes, and find the sizes."""
    name = op.name
    if len(first) < 3:
        raise ValueError(
            f"{name}: `{op.inputs[0]}` must have a batch axis, a channel axis and at least one "
            f"spatial axis; got shape {first}"
        )
    if len(second) != len(first):
        lesser = op.inputs[len(second) < len(first)]
        hint = "" if lesser == "weights" else f". Does `{lesser}` lack its batch axis?"
        raise ValueError(
            f"{name}: `{op.inputs[1]}` must have as many axes as `{op.inputs[0]}`; "
            f"got shapes {short(second)} and {short(first)}{hint}"
        )
    if len(first) > 64:
        raise ValueError(
            f"{name}: `{op.inputs[0]}` must have at most 64 axes, as NumPy's arrays; "
            f"got {len(first)}"
        )
    rank = len(first) - 2
    data_format, weights_format = (
        parse.letters(name, letters, attributes[letters], known)
        for letters, known in (
            ("data_format", layouts.DATA_FORMATS),
            ("weights_format", layouts.WEIGHTS_FORMATS),
        )
    )
    if result_shape is not None or op.shape_argument == "weights_shape":
        assert op.shape_argument is not None
        order = weights_format if op.shape_argument == "weights_shape" else data_format
        result_shape = parse.shape(
            name, op.shape_argument, result_shape, rank + 2, f"in {order} order"
        )
    ints = {
        attribute: parse.axis_ints(name, attribute, attributes[attribute], rank, least)
        for attribute, least in parse.MIN_VALUES.items()
    }
    given = _Given(
        op,
        first,
        second,
        result_shape,
        auto_pad=parse.auto_pad(name, attributes["auto_pad"]),
        groups=parse.count(name, "groups", attributes["groups"]),
        data_format=data_format,
        weights_format=weights_format,
        **ints,
    )
    try:
        return _find_sizes(given)
    except ValueError as error:
        raise ValueError(f"{error}{_layout_hint(given)}") from None


def _layout_hint(given: _Given) -> str:
    """Name the nearest formats that these very shapes would fit, if there are any."""
    fits = []
    for data, weights in product(layouts.DATA_FORMATS, layouts.WEIGHTS_FORMATS):
        changes = [f"data_format={data!r}"] if data != given.data_format else []
        changes += [f"weights_format={weights!r}"] if weights != given.weights_format else []
        try:
            _find_sizes(given._replace(data_format=data, weights_format=weights))
        except ValueError:
            continue
        fits.append(changes)
    nearest = min(map(len, fits), default=0)
    names = [" and ".join(changes) for changes in fits if len(changes) == nearest]
    return f". These shapes would fit {either(names)}" if names else ""


@lru_cache(maxsize=4096)
def _find_sizes(given: _Given) -> Resolved:
    """Find the sizes; cached, since each eager call needs the sizes."""
    op, groups, data_format = given.op, given.groups, given.data_format
    rank = len(given.first) - 2
    layout = layouts.parse_data_format(data_format, rank)
    shapes = dict(zip(op.inputs, (given.first, given.second), strict=True))
    if given.shape is not None:
        assert op.shape_argument is not None
        shapes[op.shape_argument] = given.shape
    for name, shape in shapes.items():
        _check_extents(op, name, shape, None if name.startswith("weights") else layout.batch)
    asked = shapes.pop("dst_shape", None)
    weights = shapes.pop("weights_shape", None) or shapes.pop("weights")
    batches = [shape[layout.batch] for shape in shapes.values()]
    if len(shapes) == 2 and batches[0] != batches[1]:
        raise ValueError(
            f"{op.name}: `{op.inputs[1]}` must have the batch of `{op.inputs[0]}`; "
            f"got shapes {given.second} and {given.first} ({data_format})"
        )
    on_fine = layouts.check_channels(op, shapes, weights, groups, data_format, given.weights_format)
    kernel = layouts.parse_weights_format(given.weights_format, rank, "I" if op.transposed else "O")
    coarse_channels = weights[kernel.coarse] * (groups if on_fine else 1)
    fine_channels = weights[kernel.fine] * (1 if on_fine else groups)

    sized = [
        sizes.RULES[op.name](
            given.axis(i),
            weights=weights[kernel.spatial[i]],
            **{forward_name(name): shape[layout.spatial[i]] for name, shape in shapes.items()},
            **({} if asked is None else {forward_name(op.result): asked[layout.spatial[i]]}),
        )
        for i in range(rank)
    ]
    axes = tuple(axis for axis, _ in sized)

    def data_shape(channels: int, extents: tuple[int, ...]) -> Shape:
        shape = dict(zip(layout.spec, (batches[0], channels, *extents), strict=True))
        return tuple(shape[axis] for axis in range(rank + 2))

    fine = data_shape(fine_channels, tuple(a.fine for a in axes))
    coarse = data_shape(coarse_channels, tuple(a.coarse for a in axes))
    result = {"fine": fine, "coarse": coarse, "kernel": weights}[op.slot(op.result)]
    _check_result(op, result, given)
    if asked is not None and asked != result:
        raise ValueError(
            f"{op.name}: `dst_shape` must be the full shape of the result, with the batch of "
            f"`{op.inputs[0]}` and the channels of the weights, {fine} ({data_format}); got {asked}"
        )
    return Resolved(
        op=op.name,
        src_shape=coarse if op.transposed else fine,
        weights_shape=weights,
        dst_shape=fine if op.transposed else coarse,
        strides=given.strides,
        pads_begin=tuple(a.pad_low for a in axes),
        pads_end=tuple(high for _, high in sized),
        dilations=given.dilations,
        output_padding=tuple(high - axis.pad_high for axis, high in sized),
        groups=groups,
        geometry=Geometry(axes, groups, layout, kernel),
        groups_on_fine=on_fine,
    )


def _check_extents(op: Op, name: str, shape: Shape, batch: int | None) -> None:
    extents = [n for axis, n in enumerate(shape) if axis != batch]
    if any(is_symbolic_dim(n) for n in extents):
        raise ValueError(
            f"{op.name}: `{name}` must have constant extents (only the batch may be symbolic); "
            f"got shape {shape}"
        )
    if min(extents) < 1:
        raise ValueError(
            f"{op.name}: `{name}` must have extents of at least 1 (only the batch may be 0); "
            f"got shape {shape}"
        )
    if _count_elements(shape) > parse.MAX_ELEMENTS:
        raise ValueError(f"{op.name}: `{name}` must have at most 2**48 elements; got shape {shape}")


def _check_result(op: Op, shape: Shape, given: _Given) -> None:
    """Refuse a result of too many elements: at 2**63, XLA ends the process."""
    if _count_elements(shape) > parse.MAX_ELEMENTS:
        attributes = ", ".join(f"`{name}` {getattr(given, name)}" for name in parse.MIN_VALUES)
        raise ValueError(
            f"{op.name}: the result must have at most 2**48 elements; got shape {shape} of "
            f"`{op.inputs[0]}` {given.first} and `{op.inputs[1]}` {given.second} with {attributes}"
        )


def _count_elements(shape: Shape) -> int:
    """Count elements; a symbolic or empty batch counts as 1."""
    return math.prod(n for n in shape if isinstance(n, int) and n)


def forward_name(tensor: str) -> str:
    """Find the name of a tensor in the forward operation: diff_src is src."""
    return tensor.removeprefix("diff_")
