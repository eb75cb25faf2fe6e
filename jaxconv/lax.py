"""`jax.lax`'s general convolution by the operations of this library, for code that calls that.

>>> import numpy as np
>>> from jaxconv import lax as jaxconv_lax
>>> lhs, rhs = np.float32([[[1, 2, 4, 8]]]), np.float32([[[1, 10, 100]]])
>>> jaxconv_lax.conv_general_dilated(lhs, rhs, (2,), "SAME_LOWER").tolist()
[[[210.0, 842.0]]]
"""

import operator
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from typing import Any, NamedTuple

import jax
import numpy as np
from jax import lax
from jax.sharding import NamedSharding, PartitionSpec
from jax.typing import DTypeLike

from jaxconv import _arguments, _attributes, _dtypes, _layouts, _sharding
from jaxconv._attributes import PrecisionLike
from jaxconv._conv_transpose import conv_transpose
from jaxconv._convolution import convolution
from jaxconv._reshape import reorder

#: Of one axis: the zeros before, after and between, as `lax.pad` takes them, and attributes.
Planned = tuple[tuple[int, int, int], dict[str, int]]


def conv_general_dilated(
    lhs: Any,
    rhs: Any,
    window_strides: Sequence[int],
    padding: str | Iterable[tuple[int, int]],
    lhs_dilation: Sequence[int] | None = None,
    rhs_dilation: Sequence[int] | None = None,
    dimension_numbers: lax.ConvGeneralDilatedDimensionNumbers = None,
    feature_group_count: int = 1,
    batch_group_count: int = 1,
    precision: PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    out_sharding: NamedSharding | PartitionSpec | None = None,
) -> jax.Array:
    """As `jax.lax.conv_general_dilated`: a convolution over a dilated lhs.

    ::

        out[n, g*O + o, q] = sum_{i, t} rhs[g*O + o, i, t]
            * dilated[n, g*I + i, window_strides*q + rhs_dilation*t - pad_low]

    where `dilated` is lhs at the multiples of lhs_dilation, and zero elsewhere. With no
    lhs_dilation this is `jaxconv.convolution`, with no window_strides but a lhs_dilation
    `jaxconv.conv_transpose`; with both, the zeros are written out. Layouts without a name
    in :mod:`jaxconv` are transposed.

    What those operations do not have is handed to `jax.lax`: other types and weak ones,
    batch groups, dot algorithms as `precision`, no spatial axis, empty operands or results
    (but for the batch), symbolic extents (but for the batch), an `out_sharding` of a layout
    without a name or of operands on no explicit mesh, and whatever is malformed.

    In derivatives, a cotangent that `preferred_element_type` made wider is rounded to the
    type of the operands first, which lax does not do.

    Args:
      lhs, rhs: data and weights, laid out as `dimension_numbers` says.
      window_strides, lhs_dilation, rhs_dilation: one int for each spatial axis.
      padding: "SAME", "SAME_LOWER", "VALID" or, for each spatial axis, the zeros before
        and after the dilated lhs; negative ones crop.
      dimension_numbers: three strings as ("NHWC", "HWIO", "NHWC"), a
        `jax.lax.ConvDimensionNumbers`, or None for channels first.
      feature_group_count, batch_group_count: at most one of them above 1.
      precision, preferred_element_type, out_sharding: see `jax.lax.conv_general_dilated`.

    Raises:
      AttributeError, TypeError, ValueError, RuntimeError: those of `jax.lax`.

    Example:
      >>> import jax.numpy as jnp, jaxconv
      >>> lhs, rhs = jnp.ones((8, 32, 32, 6)), jnp.ones((3, 3, 3, 16))
      >>> layouts = ("NHWC", "HWIO", "NHWC")
      >>> jaxconv.lax.conv_general_dilated(
      ...     lhs, rhs, (2, 2), "SAME", dimension_numbers=layouts, feature_group_count=2
      ... ).shape
      (8, 16, 16, 16)
    """
    if isinstance(padding, Iterator):  # of a zip, say, which can be read once
        padding = tuple(padding)
    numbers: Any = lax.conv_dimension_numbers(lhs.shape, rhs.shape, dimension_numbers)
    window = (window_strides, padding, lhs_dilation, rhs_dilation)
    numerics = (precision, preferred_element_type, out_sharding)
    axes = _axes(lhs.shape, rhs.shape, numbers, feature_group_count, *window)
    if not axes or batch_group_count != 1 or not _known(lhs, rhs, numbers, *numerics):
        rest: Any = (*window, numbers, feature_group_count, batch_group_count, *numerics)
        return lax.conv_general_dilated(lhs, rhs, *rest)
    transposed = all(a.stride == 1 for a in axes) and any(a.lhs_dilation > 1 for a in axes)
    edges, each = zip(*map(_transposed if transposed else _strided, axes), strict=True)
    attributes: Any = {name: [of_axis[name] for of_axis in each] for name in each[0]}
    if any(map(any, edges)):
        around = dict(zip(numbers.lhs_spec[2:], edges, strict=True))
        config = [around.get(axis, (0, 0, 0)) for axis in range(lhs.ndim)]
        lhs = lax.pad(lhs, np.zeros((), lhs.dtype), config)
    if transposed:
        rhs = lax.rev(rhs, numbers.rhs_spec[2:])
    (data_format, data_spec), (weights_format, weights_spec) = _layouts_for(numbers)
    operation = conv_transpose if transposed else convolution
    out = operation(
        reorder(lhs, numbers.lhs_spec, data_spec),
        reorder(rhs, numbers.rhs_spec, weights_spec),
        **attributes,
        groups=int(feature_group_count),
        data_format=data_format,
        weights_format=weights_format,
        precision=precision,
        preferred_element_type=preferred_element_type,
        out_sharding=out_sharding,
    )
    ordered: jax.Array = reorder(out, data_spec, numbers.out_spec)
    return ordered


class _Axis(NamedTuple):
    """What lax is told of one spatial axis."""

    extent: int
    kernel: int
    stride: int
    low: int
    high: int
    lhs_dilation: int
    rhs_dilation: int

    @property
    def reach(self) -> int:
        """From the first tap of the kernel to its last."""
        return self.rhs_dilation * (self.kernel - 1)

    @property
    def span(self) -> int:
        """From the first element of the dilated lhs to behind its last."""
        return self.lhs_dilation * (self.extent - 1) + 1

    @property
    def fits(self) -> bool:
        """Whether all steps are forward, and the window has room."""
        steps = (self.stride, self.lhs_dilation, self.rhs_dilation)
        return min(steps) > 0 and self.span + self.low + self.high > self.reach


def _strided(a: _Axis) -> Planned:
    """For a convolution: lhs is cropped and dilated first."""
    low, high = min(a.low, 0), min(a.high, 0)
    if a.span + low + high < 1:  # nothing is left to pad: the zeros are made here
        low, high = a.low, a.high
    pads = {"pads_begin": a.low - low, "pads_end": a.high - high}
    return (low, high, a.lhs_dilation - 1), {
        "strides": a.stride,
        "dilations": a.rhs_dilation,
        **pads,
    }


def _transposed(a: _Axis) -> Planned:
    """For a transposed convolution: it crops what the kernel reaches beyond lax's pads.

    Where those are the larger ones, lhs gets zeros in front, and the result has some at its end.
    """
    begin, end = a.reach - a.low, a.reach - a.high
    front = max(-(begin // a.lhs_dilation), 0)
    pads = {"pads_begin": begin + front * a.lhs_dilation, "pads_end": max(end, 0)}
    steps = {"strides": a.lhs_dilation, "dilations": a.rhs_dilation}
    return (front, 0, 0), steps | pads | {"output_padding": max(-end, 0)}


def _axes(
    lhs: Any, rhs: Any, numbers: Any, groups: Any,
    strides: Any, padding: Any, lhs_dilation: Any, rhs_dilation: Any,
) -> list[_Axis] | None:  # fmt: skip
    """The spatial axes, or None: shapes are not the library's, or arguments are malformed."""
    try:
        if any(sorted(spec) != [*range(len(shape))] for spec in numbers for shape in (lhs, rhs)):
            return None
        (batch, features, *spatial), (outputs, inputs, *taps), _ = numbers
        constant = (*lhs[:batch], *lhs[batch + 1 :], *rhs)
        if not all(isinstance(extent, int) and extent > 0 for extent in constant):
            return None
        if lhs[features] != rhs[inputs] * groups or rhs[outputs] % groups:
            return None
        extents, kernels = [lhs[axis] for axis in spatial], [rhs[axis] for axis in taps]
        ones = [1] * len(spatial)
        bases, spacings = (ones if d is None else list(d) for d in (lhs_dilation, rhs_dilation))
        if isinstance(padding, str):
            if bases != ones:  # lax refuses
                return None
            windows = [d * (k - 1) + 1 for d, k in zip(spacings, kernels, strict=True)]
            padding = lax.padtype_to_pads(extents, windows, strides, padding)
        columns = (extents, kernels, strides, *zip(*padding, strict=True), bases, spacings)
        rows = zip(*columns, strict=True)
        axes = [_Axis(*(int(operator.index(number)) for number in row)) for row in rows]
    except (TypeError, ValueError):
        return None
    return axes if all(axis.fits for axis in axes) else None


def _known(
    lhs: Any, rhs: Any, numbers: Any, precision: Any, preferred: Any, out_sharding: Any
) -> bool:
    """Whether the library has these types and this precision, and can say `out_sharding`."""
    try:
        operand = _arguments.common_dtype("", lhs=lhs, rhs=rhs)
        _dtypes.result_dtype("", operand, preferred)
        _attributes.precision("", precision)
    except (TypeError, ValueError):
        return False
    types = jax.typeof(lhs), jax.typeof(rhs)
    if all(t.weak_type for t in types):  # so is lax's result, and none of the library's
        return False
    explicit = any(_sharding.explicit(t) is not None for t in types)
    return out_sharding is None or (explicit and _layouts_for(numbers)[0][1] == numbers.out_spec)


@cache
def _layouts_for(numbers: lax.ConvDimensionNumbers) -> Any:
    """The format and the axes that an operation gets data in, and weights."""
    rank = len(numbers.out_spec) - 2
    data = {_layouts.data_layout(f, rank).spec: f for f in _layouts.DATA_FORMATS}
    weights = {_layouts.kernel_layout(f, rank, "O").spec: f for f in ("XIO", "OIX", "IOX", "XOI")}

    def named(formats: dict[tuple[int, ...], str], *wanted: Any) -> tuple[str, tuple[int, ...]]:
        spec = next(s for s in (*wanted, *formats) if s in formats)
        return formats[spec], spec

    return named(data, numbers.out_spec, numbers.lhs_spec), named(weights, numbers.rhs_spec)
