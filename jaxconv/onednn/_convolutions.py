"""The six operations under the names of the oneDNN Graph API, today's and older names."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from jax import Array, lax

from jaxconv._base.messages import either
from jaxconv._base.typing import PrecisionLike
from jaxconv._rules.values import entries, is_int, unwrap
from jaxconv.onednn._names import OLDER_ATTRIBUTES, OLDER_INPUTS, REQUIRED, Kind, find_kind, rename

T = TypeVar("T")


def apply(
    kind: str,
    inputs: Sequence[Any] | Mapping[str, Any],
    attributes: Mapping[str, Any],
    *,
    precision: PrecisionLike = None,
    fpmath_mode: str | None = None,
) -> Array:
    """Compute the one output of an operation of this kind.

    Names may be today's or older names in every kind, but not both for the same thing.

    Args:
      kind: one of `KINDS`.
      inputs: the operation's inputs in order, or by name. An optional input may be left out
        or be None. The inputs are

        ================================  ========================================
        kind                              inputs
        ================================  ========================================
        Convolution, ConvTranspose        src, weights, optional bias
        ConvolutionBackwardData           diff_dst, weights, dst_shape
        ConvTransposeBackwardData         diff_dst, weights
        the two ...BackwardWeights        src, diff_dst, weights_shape
        ================================  ========================================

        `dst_shape` (the full shape of diff_src) and `weights_shape` may be attributes
        instead. An input or an attribute is required; the input counts if both are given.
      attributes: by name. `strides`, `pads_begin`, `pads_end` and `dilations` are
        required. `auto_pad` ("None"), `groups` (1), `data_format` ("NXC") and
        `weights_format` have defaults: XIO for the kinds of a convolution, XOI for
        ConvTranspose and its Backward kinds, XIO for its older Backprop kinds. All but
        Convolution and its weights gradient take `output_padding` (zeros). A value may be
        wrapped as in dumps, ``{"type": "s64[]", "value": [1, 1]}``. A shape of zeros, and
        an `output_padding` of zeros that is longer than `strides`, count as not given: dumps
        write 12 zeros for either.
      precision: as the operations take it; `jax.default_matmul_precision` by default.
      fpmath_mode: a graph's mode, instead of `precision`: "strict" multiplies in full
        precision, "tf32" in TF32 at least, and "bf16", "f16" and "any" as the backend
        prefers. On CPU all modes multiply in full.

    :mod:`jaxconv` says what the attributes mean. Any weights format goes with any kind.

    Raises:
      TypeError, ValueError: as the operations do, and for this API's names and rules.
    """
    function, arguments = prepare_call(kind, inputs, attributes)
    if fpmath_mode is not None:
        if precision is not None:
            raise ValueError(
                f"{kind}: `precision` and `fpmath_mode` say the same: give one of them; "
                f"got {precision!r} and {fpmath_mode!r}"
            )
        precision = fpmath_precision(kind, fpmath_mode)
    return blame_kind(kind, function)(**arguments, precision=precision)


def fpmath_precision(where: str, mode: object) -> lax.Precision:
    """Find the least precision that a graph's `fpmath_mode` asks for."""
    if not isinstance(mode, str) or mode not in _FPMATH:
        raise ValueError(
            f"{where}: `fpmath_mode` must be {either(map(repr, _FPMATH))}; got {mode!r}"
        )
    return _FPMATH[mode]


_FPMATH = {
    "strict": lax.Precision.HIGHEST,
    "tf32": lax.Precision.HIGH,
    "bf16": lax.Precision.DEFAULT,
    "f16": lax.Precision.DEFAULT,
    "any": lax.Precision.DEFAULT,
}


def prepare_call(
    kind: str, inputs: object, attributes: object, shape: tuple[int, ...] | None = None
) -> tuple[Callable[..., Array], dict[str, Any]]:
    """Find the operation of a kind, and all arguments of the call by name.

    `shape` is used if the operation takes a shape and neither an input nor an attribute gives one.
    """
    row = find_kind(kind)
    arguments = _name_inputs(row, inputs)
    if not isinstance(attributes, Mapping):
        raise TypeError(f"{kind}: `attributes` must be a dict by name; got {attributes!r}")
    attributes = rename(row, "attribute", attributes, row.attributes, OLDER_ATTRIBUTES)
    attributes = unwrap(kind, attributes)
    missing = [f"`{name}`" for name in REQUIRED if name not in attributes]
    if missing:
        raise ValueError(
            f"{kind}: the attributes {', '.join(f'`{name}`' for name in REQUIRED)} are "
            f"required; missing: {', '.join(missing)}"
        )
    _check_pads(kind, attributes)
    attributes.setdefault("weights_format", row.weights_format)
    padding, steps = entries(attributes.get("output_padding")), entries(attributes["strides"])
    if padding and steps and len(padding) > len(steps) and _are_zeros(padding):
        del attributes["output_padding"]
    if row.shape is not None:
        attribute = attributes.pop(row.shape, None)
        if attribute is None or _are_zeros(entries(attribute) or [1]):
            attribute = shape
        if arguments.setdefault(row.shape, attribute) is None:
            raise ValueError(
                f"{kind}: `{row.shape}` is required, as an input or as an attribute; got neither"
            )
    return row.function, arguments | attributes


def blame_kind(kind: str, function: Callable[..., T]) -> Callable[..., T]:
    """Make an operation whose errors name the kind instead of the operation."""

    def call(*args: Any, **kwargs: Any) -> T:
        try:
            return function(*args, **kwargs)
        except (TypeError, ValueError) as error:
            operation, separator, message = str(error).partition(": ")
            if separator and operation == function.__name__:
                raise type(error)(f"{kind}: {message}") from error.__cause__
            raise

    return call


def _are_zeros(values: list[Any]) -> bool:
    return all(is_int(value) and value == 0 for value in values)


def _check_pads(kind: str, attributes: Mapping[str, Any]) -> None:
    for name in ("pads_begin", "pads_end"):
        pads = entries(attributes[name]) or []
        if any(is_int(pad) and pad < 0 for pad in pads):
            raise ValueError(
                f"{kind}: `{name}` must be at least 0 on every axis, as in the engine's own "
                f"schema; got {pads}. A negative pad would crop: slice the tensor instead, or give "
                f"its size as `dst_shape`, where the kind takes one"
            )


def _name_inputs(row: Kind, given: object) -> dict[str, Any]:
    """Collect the inputs by today's names."""
    listed = ", ".join(f"`{name}`" for name in row.inputs)
    if isinstance(given, Mapping):
        named = rename(row, "input", given, row.inputs, OLDER_INPUTS)
    elif not isinstance(given, Sequence) or isinstance(given, str):
        raise TypeError(
            f"{row.name}: `inputs` must be a sequence or a dict by name of {listed}; "
            f"got {type(given).__name__}"
        )
    elif len(given) > len(row.inputs):
        raise ValueError(
            f"{row.name}: `inputs` must be at most {len(row.inputs)}, {listed}; got {len(given)}"
        )
    else:
        named = dict(zip(row.inputs, given, strict=False))
    named = {name: value for name, value in named.items() if value is not None}
    for name in row.inputs[:2]:
        if name not in named:
            raise ValueError(
                f"{row.name}: the input `{name}` is required; "
                f"got {', '.join(f'`{name}`' for name in named) or 'none'}"
            )
    return named
