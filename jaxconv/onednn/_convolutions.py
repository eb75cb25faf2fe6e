"""The six operations under the names of the oneDNN Graph API, today's and the older ones."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import jax
from jax import lax

from jaxconv._conv_transpose import (
    conv_transpose,
    conv_transpose_backward_data,
    conv_transpose_backward_weights,
)
from jaxconv._convolution import (
    convolution,
    convolution_backward_data,
    convolution_backward_weights,
)
from jaxconv._messages import either
from jaxconv.onednn._values import entries, is_int, suggestion, unwrapped

#: That API has no defaults for these four, not even when `auto_pad` overrides the pads.
_REQUIRED = ("strides", "pads_begin", "pads_end", "dilations")
_OPTIONAL = ("auto_pad", "groups", "data_format", "weights_format")

#: older name -> today's
_OLDER_ATTRIBUTES = {
    "filter_format": "weights_format",
    "filter_shape": "weights_shape",
    "output_shape": "dst_shape",
}
_OLDER_INPUTS = {
    "input": "src",
    "input_forward": "src",
    "output_delta": "diff_dst",
    "filter": "weights",
    "filter_shape": "weights_shape",
    "output_shape": "dst_shape",
}

_FORWARD = ("src", "weights", "bias")
_DATA = ("diff_dst", "weights")
_DATA_SHAPED = ("diff_dst", "weights", "dst_shape")
_WEIGHTS = ("src", "diff_dst", "weights_shape")


@dataclass(frozen=True)
class _Kind:
    """One kind of operation, as its page describes it."""

    name: str
    function: Callable[..., jax.Array]
    #: In order. The first two are required; a third is a bias or a shape.
    inputs: tuple[str, ...]
    weights_format: str
    #: Attributes beyond the common ones. One that is an input too may be given as either.
    further: tuple[str, ...] = ()

    @property
    def attributes(self) -> tuple[str, ...]:
        """All attributes of this kind, by today's names."""
        return (*_REQUIRED, *_OPTIONAL, *self.further)

    @property
    def shape(self) -> str | None:
        """The shape that is either an input or an attribute, and needed as one of them."""
        return next((name for name in self.inputs if name in self.further), None)


_TABLE = (
    _Kind("Convolution", convolution, _FORWARD, "XIO"),
    _Kind(
        "ConvolutionBackwardData",
        convolution_backward_data, _DATA_SHAPED, "XIO", ("output_padding", "dst_shape"),
    ),
    _Kind(
        "ConvolutionBackwardWeights",
        convolution_backward_weights, _WEIGHTS, "XIO", ("weights_shape",),
    ),
    _Kind("ConvTranspose", conv_transpose, _FORWARD, "XOI", ("output_padding",)),
    _Kind(
        "ConvTransposeBackwardData",
        conv_transpose_backward_data, _DATA, "XOI", ("output_padding",),
    ),
    _Kind(
        "ConvTransposeBackwardWeights",
        conv_transpose_backward_weights, _WEIGHTS, "XOI", ("output_padding", "weights_shape"),
    ),
)  # fmt: skip

#: older kind -> today's, of which it differs in one thing: its weights_format is XIO by default
_OLDER_KINDS = {
    "ConvolutionBackpropData": "ConvolutionBackwardData",
    "ConvolutionBackpropFilters": "ConvolutionBackwardWeights",
    "ConvolutionBackpropWeights": "ConvolutionBackwardWeights",
    "ConvTransposeBackpropData": "ConvTransposeBackwardData",
    "ConvTransposeBackpropFilters": "ConvTransposeBackwardWeights",
    "ConvTransposeBackpropWeights": "ConvTransposeBackwardWeights",
}

_TODAYS = {row.name: row for row in _TABLE}
_BY_NAME = _TODAYS | {
    older: replace(_TODAYS[today], name=older, weights_format="XIO")
    for older, today in _OLDER_KINDS.items()
}

#: All kinds that `apply` knows, today's first.
KINDS = tuple(_BY_NAME)


def apply(
    kind: str,
    inputs: Sequence[Any] | Mapping[str, Any],
    attributes: Mapping[str, Any],
    *,
    precision: Any = None,
    fpmath_mode: str | None = None,
) -> jax.Array:
    """Compute the one output of an operation of this kind.

    Names may be today's or older ones in every kind, but not both for the same thing.

    Args:
      kind: one of `KINDS`.
      inputs: the operation's inputs in order, or by name. An optional one may be left out
        or be None. They are

        ================================  ========================================
        kind                              inputs
        ================================  ========================================
        Convolution, ConvTranspose        src, weights, optional bias
        ConvolutionBackwardData           diff_dst, weights, dst_shape
        ConvTransposeBackwardData         diff_dst, weights
        the two ...BackwardWeights        src, diff_dst, weights_shape
        ================================  ========================================

        `dst_shape` (the full shape of diff_src) and `weights_shape` may be attributes
        instead. One of the two is required; where both are given, the input counts.
      attributes: by name. `strides`, `pads_begin`, `pads_end` and `dilations` are
        required. `auto_pad` ("None"), `groups` (1), `data_format` ("NXC") and
        `weights_format` have defaults: XIO for the kinds of a convolution, XOI for
        ConvTranspose and its Backward kinds, XIO for its older Backprop kinds. All but
        Convolution and its weights gradient take `output_padding` (zeros). A value may be
        wrapped as dumps do it, ``{"type": "s64[]", "value": [1, 1]}``. A shape of zeros, and
        an `output_padding` of zeros that is longer than `strides`, count as not given: dumps
        write 12 zeros for either.
      precision: as the operations take it. By default that of `jax.default_matmul_precision`.
      fpmath_mode: that of a graph, instead of `precision`: "strict" multiplies in full
        precision, "tf32" in at least that, and "bf16", "f16" and "any" as the backend
        prefers. On CPU all of them multiply in full.

    What the attributes mean is told in :mod:`jaxconv`. Any weights format goes with any
    kind.

    Raises:
      TypeError, ValueError: as the operations do, of this API's names and rules too.
    """
    function, arguments = call(kind, inputs, attributes)
    if fpmath_mode is not None:
        if precision is not None:
            raise ValueError(
                f"{kind}: `precision` and `fpmath_mode` say the same: give one of them; "
                f"got {precision!r} and {fpmath_mode!r}"
            )
        precision = fpmath_precision(kind, fpmath_mode)
    return named(kind, function)(**arguments, precision=precision)


def fpmath_precision(where: str, mode: Any) -> lax.Precision:
    """The least precision that a graph's `fpmath_mode` asks for."""
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


def call(
    kind: str, inputs: Any, attributes: Any
) -> tuple[Callable[..., jax.Array], dict[str, Any]]:
    """The operation of this kind and all that it is called with, by name."""
    row = _row(kind)
    arguments = _inputs(row, inputs)
    if not isinstance(attributes, Mapping):
        raise TypeError(f"{kind}: `attributes` must be a dict by name; got {attributes!r}")
    attributes = _todays_names(row, "attribute", attributes, row.attributes, _OLDER_ATTRIBUTES)
    attributes = unwrapped(kind, attributes)
    missing = [f"`{name}`" for name in _REQUIRED if name not in attributes]
    if missing:
        raise ValueError(
            f"{kind}: the attributes {', '.join(f'`{name}`' for name in _REQUIRED)} are "
            f"required; missing: {', '.join(missing)}"
        )
    _check_pads(kind, attributes)
    attributes.setdefault("weights_format", row.weights_format)
    padding, steps = entries(attributes.get("output_padding")), entries(attributes["strides"])
    if padding and steps and len(padding) > len(steps) and _zeros(padding):
        del attributes["output_padding"]
    if row.shape is not None:
        attribute = attributes.pop(row.shape, None)
        if _zeros(entries(attribute) or [1]):
            attribute = None
        if arguments.setdefault(row.shape, attribute) is None:
            raise ValueError(
                f"{kind}: `{row.shape}` is required, as an input or as an attribute; got neither"
            )
    return row.function, arguments | attributes


def named(kind: str, function: Callable[..., jax.Array]) -> Callable[..., jax.Array]:
    """An operation, of which the errors tell the kind instead of its own name."""

    def renamed(*args: Any, **kwargs: Any) -> jax.Array:
        try:
            return function(*args, **kwargs)
        except (TypeError, ValueError) as error:
            operation, separator, message = str(error).partition(": ")
            if separator and operation == function.__name__:
                raise type(error)(f"{kind}: {message}") from None
            raise

    return renamed


def input_names(kind: str) -> tuple[str, ...]:
    """The inputs of a kind in order, by today's names."""
    return _BY_NAME[kind].inputs


def given_shape(kind: str) -> str | None:
    """The shape that a kind takes as an input or as an attribute."""
    return _BY_NAME[kind].shape


def _zeros(values: list[Any]) -> bool:
    return all(is_int(value) and value == 0 for value in values)


def _check_pads(kind: str, attributes: Mapping[str, Any]) -> None:
    for name in ("pads_begin", "pads_end"):
        pads = entries(attributes[name]) or []
        if any(is_int(pad) and pad < 0 for pad in pads):
            raise ValueError(
                f"{kind}: `{name}` must be at least 0 on every axis, as in the engine's own "
                f"schema; got {pads}. Crop the tensor before, or give the size that the pads are "
                f"to lead to as `dst_shape`, in the kinds that have it"
            )


def _row(kind: Any) -> _Kind:
    if not isinstance(kind, str):
        raise TypeError(f"onednn.apply: `kind` must be a string; got {kind!r}")
    if kind not in _BY_NAME:
        raise ValueError(
            f"onednn.apply: `kind` must be one of {', '.join(KINDS)}; "
            f"got {kind!r}{suggestion(kind, KINDS)}"
        )
    return _BY_NAME[kind]


def _inputs(row: _Kind, given: Any) -> dict[str, Any]:
    """The inputs that are there, by today's names."""
    listed = ", ".join(f"`{name}`" for name in row.inputs)
    if isinstance(given, Mapping):
        named = _todays_names(row, "input", given, row.inputs, _OLDER_INPUTS)
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


def _todays_names(
    row: _Kind, what: str, given: Mapping[str, Any], known: tuple[str, ...], older: dict[str, str]
) -> dict[str, Any]:
    """`given` by today's names; every name must be known, and each thing be named once."""
    known_older = [name for name, today in older.items() if today in known]
    spelled: dict[str, str] = {}
    for name in given:
        today = name if name in known else older.get(name, "")
        if today not in known:
            also = f" (older: {', '.join(known_older)})" if known_older else ""
            raise ValueError(
                f"{row.name}: the {what}s are {', '.join(known)}{also}; "
                f"got {name!r}{suggestion(name, (*known, *known_older))}"
            )
        if today in spelled:
            raise ValueError(
                f"{row.name}: the {what}s `{spelled[today]}` and `{name}` are two names of the "
                f"same; got both"
            )
        spelled[today] = name
    return {today: given[name] for today, name in spelled.items()}
