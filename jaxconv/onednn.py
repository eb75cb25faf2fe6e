"""The six operations under the names of the oneDNN Graph API, today's and the older ones.

`apply` takes an operation's kind, its inputs and its attributes as that API's pages list
them, for graphs that come from there:

>>> import numpy as np
>>> from jaxconv import onednn
>>> src = np.float32([1, 2, 4, 8]).reshape(1, 4, 1)  # one image, 4 long, one channel
>>> weights = np.float32([1, 10, 100]).reshape(3, 1, 1)
>>> window = {"strides": [1], "pads_begin": [1], "pads_end": [0], "dilations": [1]}
>>> dst = onednn.apply("Convolution", [src, weights], window)
>>> dst.ravel().tolist()
[210.0, 421.0, 842.0]
>>> older = {**window, "filter_format": "XIO", "output_shape": [1, 4, 1]}
>>> named = {"output_delta": dst, "filter": weights}
>>> onednn.apply("ConvolutionBackpropData", named, older).ravel().tolist()
[2521.0, 26052.0, 50520.0, 84200.0]
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import Any

import jax

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
        Convolution and its weights gradient take `output_padding` (zeros).

    What the attributes mean is told in :mod:`jaxconv`. Any weights format goes with any
    kind. Precision is that of `jax.default_matmul_precision`.

    Raises:
      TypeError, ValueError: as the operations do, of this API's names and rules too.
    """
    row = _row(kind)
    inputs = _inputs(row, inputs)
    if not isinstance(attributes, Mapping):
        raise TypeError(f"{kind}: `attributes` must be a dict by name; got {attributes!r}")
    attributes = _todays_names(row, "attribute", attributes, row.attributes, _OLDER_ATTRIBUTES)
    missing = [f"`{name}`" for name in _REQUIRED if name not in attributes]
    if missing:
        raise ValueError(
            f"{kind}: the attributes {', '.join(f'`{name}`' for name in _REQUIRED)} are "
            f"required; missing: {', '.join(missing)}"
        )
    attributes.setdefault("weights_format", row.weights_format)
    if row.shape is not None:
        attribute = attributes.pop(row.shape, None)
        if inputs.setdefault(row.shape, attribute) is None:
            raise ValueError(
                f"{kind}: `{row.shape}` is required, as an input or as an attribute; got neither"
            )
    try:
        return row.function(**inputs, **attributes)
    except (TypeError, ValueError) as error:
        # Our own errors start with the operation's name: tell them of the kind instead.
        operation, separator, message = str(error).partition(": ")
        if separator and operation == row.function.__name__:
            raise type(error)(f"{kind}: {message}") from None
        raise


def _row(kind: Any) -> _Kind:
    if not isinstance(kind, str):
        raise TypeError(f"onednn.apply: `kind` must be a string; got {kind!r}")
    if kind not in _BY_NAME:
        raise ValueError(
            f"onednn.apply: `kind` must be one of {', '.join(KINDS)}; "
            f"got {kind!r}{_suggestion(kind, KINDS)}"
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
                f"got {name!r}{_suggestion(name, (*known, *known_older))}"
            )
        if today in spelled:
            raise ValueError(
                f"{row.name}: the {what}s `{spelled[today]}` and `{name}` are two names of the "
                f"same; got both"
            )
        spelled[today] = name
    return {today: given[name] for today, name in spelled.items()}


def _suggestion(got: Any, known: Sequence[str]) -> str:
    near = get_close_matches(str(got), known, n=1)
    return f"; did you mean {near[0]!r}?" if near else ""
