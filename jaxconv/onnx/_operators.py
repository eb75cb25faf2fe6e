"""The operators as a table: since which opset, inputs, types and attributes."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import numpy as np

from jaxconv._base.messages import either, shown
from jaxconv._rules import arguments
from jaxconv._rules.values import Attribute, check_attributes, is_int, suggestion

#: The newest opset whose operators the tests compare with.
NEWEST_OPSET = 28

_WINDOW = {
    "auto_pad": Attribute("string", "NOTSET", ("NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID")),
    "dilations": Attribute("s64[]", None),
    "group": Attribute("s64", 1),
    "kernel_shape": Attribute("s64[]", None),
    "pads": Attribute("s64[]", None),
    "strides": Attribute("s64[]", None),
}
_TRANSPOSED = {"output_padding": Attribute("s64[]", None), "output_shape": Attribute("s64[]", None)}
_CAUSAL = {"activation": Attribute("string", "none", ("none", "silu", "swish"))}

_EIGHT_BITS, _SCALE = ("int8", "uint8"), ("float32",)
#: Types of the inputs of operators of integers; floats all have one type.
_INTEGERS = {
    "x": _EIGHT_BITS, "w": _EIGHT_BITS, "y_zero_point": _EIGHT_BITS, "B": ("int32",),
    "x_scale": _SCALE, "w_scale": _SCALE, "y_scale": _SCALE,
}  # fmt: skip


@dataclass(frozen=True)
class Operator:
    """One operator, as ONNX's page describes it."""

    name: str
    since: int
    required: tuple[str, ...]
    optional: tuple[str, ...]
    attributes: Mapping[str, Attribute]
    #: of integers: the types of inputs, which differ
    types: Mapping[str, tuple[str, ...]]

    @property
    def inputs(self) -> tuple[str, ...]:
        """All inputs, in order."""
        return (*self.required, *self.optional)

    @property
    def tensors(self) -> tuple[str, str]:
        """The names of data and weights."""
        return ("x", "w") if self.types else (self.required[0], self.required[1])

    @property
    def names(self) -> dict[str, str]:
        """ONNX's names of our arguments, where they differ."""
        data, weights = self.tensors
        result = {"X": "Y", "x": "y", "input": "output"}[data]
        names = {"groups": "group", "dst_shape": "output_shape"}
        names |= {"src": data, "weights": weights, "dst": result}
        names |= dict.fromkeys(("pads_begin", "pads_end"), "pads")
        return names if "bias" in self.inputs else names | {"bias": "B"}


_QUANTISED = ("x", "x_scale", "x_zero_point", "w", "w_scale", "w_zero_point", "y_scale")

BY_NAME = {
    row.name: row
    for row in (
        Operator("Conv", 1, ("X", "W"), ("B",), _WINDOW, {}),
        Operator("ConvTranspose", 1, ("X", "W"), ("B",), _WINDOW | _TRANSPOSED, {}),
        Operator(
            "ConvInteger", 10, ("x", "w"), ("x_zero_point", "w_zero_point"), _WINDOW, _INTEGERS
        ),
        Operator("QLinearConv", 10, (*_QUANTISED, "y_zero_point"), ("B",), _WINDOW, _INTEGERS),
        Operator(
            "CausalConvWithState", 27, ("input", "weight"), ("bias", "past_state"), _CAUSAL, {}
        ),
    )
}  # fmt: skip

#: All operators that `apply` knows.
OP_TYPES = tuple(BY_NAME)


def find_operator(op_type: object, opset: object) -> Operator:
    """Find an operator by its name, which must be there in this opset."""
    if not isinstance(op_type, str):
        raise TypeError(f"onnx.apply: `op_type` must be a string; got {shown(op_type)}")
    if op_type not in BY_NAME:
        raise ValueError(
            f"onnx.apply: `op_type` must be {either(OP_TYPES)}; "
            f"got {op_type!r}{suggestion(op_type, OP_TYPES)}"
        )
    operator = BY_NAME[op_type]
    if not is_int(opset):
        raise TypeError(f"{op_type}: `opset` must be an int; got {shown(opset)}")
    if not operator.since <= int(opset) <= NEWEST_OPSET:  # type: ignore[call-overload]
        raise ValueError(
            f"{op_type}: `opset` must be from {operator.since}, which brought the operator, to "
            f"{NEWEST_OPSET}, the newest that was tested; got {opset}"
        )
    return operator


def read_inputs(operator: Operator, given: object) -> dict[str, Any]:
    """Name the inputs; those that are not given, and may be, are None."""
    op, listed = operator.name, ", ".join(f"`{name}`" for name in operator.inputs)
    if not isinstance(given, Sequence) or isinstance(given, str):
        raise TypeError(f"{op}: `inputs` must be a sequence of {listed}; got {shown(given)}")
    if len(given) > len(operator.inputs):
        raise ValueError(
            f"{op}: `inputs` must be at most {len(operator.inputs)}, {listed}; got {len(given)}"
        )
    arrays: dict[str, Any] = {}
    for name, value in zip_longest(operator.inputs, given):
        arrays[name] = None
        if value is None and name in operator.required:
            raise ValueError(f"{op}: the input `{name}` is required; got none")
        if value is None:
            continue
        value = np.asarray(value) if isinstance(value, np.generic) else value
        arrays[name] = array = arguments.array(op, name, value)
        types = operator.types.get(name)
        if name in ("x_zero_point", "w_zero_point"):
            types = (str(arrays[name[0]].dtype),)  # that of x, or of w
        if types and str(array.dtype) not in types:
            raise TypeError(f"{op}: `{name}` must have type {either(types)}; got {array.dtype}")
    return arrays


def read_attributes(operator: Operator, given: object) -> dict[str, Any]:
    """Read attributes by name, or a node's `attribute`, and add the defaults."""
    op = operator.name
    if isinstance(given, Mapping):
        named = dict(given)
    else:
        try:
            named = {each.name: _read_proto(op, each) for each in given}  # type: ignore[attr-defined]
        except (AttributeError, TypeError):
            raise TypeError(
                f"{op}: `attributes` must be a dict by name, or the `attribute` of a NodeProto; "
                f"got {shown(given)}"
            ) from None
    named = {k: v.decode(errors="replace") if isinstance(v, bytes) else v for k, v in named.items()}
    return check_attributes(op, named, operator.attributes)


#: AttributeProto.AttributeType -> the field of a value of this type
_FIELDS = {1: "f", 2: "i", 3: "s", 6: "floats", 7: "ints", 8: "strings"}


def _read_proto(op: str, proto: Any) -> Any:
    if proto.ref_attr_name or proto.type not in _FIELDS:
        reference = f"a reference to {proto.ref_attr_name!r}" if proto.ref_attr_name else ""
        raise ValueError(
            f"{op}: the attribute `{proto.name}` must be a number, a string or a list of these; "
            f"got {reference or f'the type {proto.type}'}"
        )
    value = getattr(proto, _FIELDS[proto.type])
    return value if isinstance(value, int | float | bytes) else list(value)
