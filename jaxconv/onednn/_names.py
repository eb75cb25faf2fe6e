"""The kinds of the six operations as a table: inputs, attributes, today's and older names."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from jaxconv._base.messages import Refusal
from jaxconv._rules.op import OPS
from jaxconv._rules.values import suggestion

#: Attributes without defaults in that API, not even when `auto_pad` overrides the pads.
REQUIRED = ("strides", "pads_begin", "pads_end", "dilations")
_OPTIONAL = ("auto_pad", "groups", "data_format", "weights_format")

#: older name -> today's
OLDER_ATTRIBUTES = {
    "filter_format": "weights_format",
    "filter_shape": "weights_shape",
    "output_shape": "dst_shape",
}
OLDER_INPUTS = {
    "input": "src",
    "input_forward": "src",
    "output_delta": "diff_dst",
    "filter": "weights",
    "filter_shape": "weights_shape",
    "output_shape": "dst_shape",
}


@dataclass(frozen=True)
class Kind:
    """One kind of operation, as its page describes it."""

    name: str
    #: the name of the operation
    op: str
    weights_format: str
    takes_output_padding: bool = False

    @property
    def inputs(self) -> tuple[str, ...]:
        """In order: two required inputs, and a bias or a shape, which may be an attribute, too."""
        last = "bias" if OPS[self.op].result == "dst" else self.shape
        return (*OPS[self.op].inputs, *([last] if last else []))

    @property
    def attributes(self) -> tuple[str, ...]:
        """All attributes of this kind, by today's names."""
        further = ("output_padding",) if self.takes_output_padding else ()
        return (*REQUIRED, *_OPTIONAL, *further, *([self.shape] if self.shape else []))

    @property
    def shape(self) -> str | None:
        """The shape that the kind needs, either as an input or as an attribute."""
        return None if OPS[self.op].result == "dst" else OPS[self.op].shape_argument


_TABLE = (
    Kind("Convolution", "convolution", "XIO"),
    Kind("ConvolutionBackwardData", "convolution_backward_data", "XIO", True),
    Kind("ConvolutionBackwardWeights", "convolution_backward_weights", "XIO"),
    Kind("ConvTranspose", "conv_transpose", "XOI", True),
    Kind("ConvTransposeBackwardData", "conv_transpose_backward_data", "XOI", True),
    Kind("ConvTransposeBackwardWeights", "conv_transpose_backward_weights", "XOI", True),
)

#: older kind -> today's; they differ in the default weights_format, which was XIO
_OLDER_KINDS = {
    "ConvolutionBackpropData": "ConvolutionBackwardData",
    "ConvolutionBackpropFilters": "ConvolutionBackwardWeights",
    "ConvolutionBackpropWeights": "ConvolutionBackwardWeights",
    "ConvTransposeBackpropData": "ConvTransposeBackwardData",
    "ConvTransposeBackpropFilters": "ConvTransposeBackwardWeights",
    "ConvTransposeBackpropWeights": "ConvTransposeBackwardWeights",
}

_TODAYS = {row.name: row for row in _TABLE}
BY_NAME = _TODAYS | {
    older: replace(_TODAYS[today], name=older, weights_format="XIO")
    for older, today in _OLDER_KINDS.items()
}

#: All kinds that `apply` knows, today's first.
KINDS = tuple(BY_NAME)


def find_kind(kind: object) -> Kind:
    """Find a kind by its name."""
    if not isinstance(kind, str):
        raise TypeError(f"onednn.apply: `kind` must be a string; got {kind!r}")
    if kind not in BY_NAME:
        raise ValueError(
            f"onednn.apply: `kind` must be one of {', '.join(KINDS)}; "
            f"got {kind!r}{suggestion(kind, KINDS)}"
        )
    return BY_NAME[kind]


def rename(
    row: Kind, what: str, given: Mapping[str, Any], known: tuple[str, ...], older: dict[str, str]
) -> dict[str, Any]:
    """Rename `given` by today's names; names must be known, and no two names mean the same."""
    known_older = [name for name, today in older.items() if today in known]
    spelled: dict[str, str] = {}
    for name in given:
        today = name if name in known else older.get(name, "")
        if today not in known:
            also = f" (older: {', '.join(known_older)})" if known_older else ""
            rule = f"the {what}s are {', '.join(known)}{also}"
            hint = suggestion(name, (*known, *known_older))
            raise ValueError(Refusal(row.name, "", rule, f"{name!r}{hint}"))
        if today in spelled:
            rule = f"the {what}s `{spelled[today]}` and `{name}` are two names of the same"
            raise ValueError(Refusal(row.name, "", rule, "both"))
        spelled[today] = name
    return {today: given[name] for today, name in spelled.items()}
