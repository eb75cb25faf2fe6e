"""Write a graph: one convolution, quantised or not, and the kinds that follow."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from jaxconv._base.messages import either, shown
from jaxconv._rules.layouts import find_axes
from jaxconv._rules.op import OPS
from jaxconv._tools.inspect import resolve
from jaxconv.onednn._convolutions import prepare_call
from jaxconv.onednn._graphs.kinds import FLOAT_KINDS, FLOAT_TYPES, SPECS
from jaxconv.onednn._names import find_kind
from jaxconv.onednn._values import entries, is_int, suggestion

Fields = dict[str, Any]
Shape = tuple[int, ...]

#: Kinds that may follow: kinds that keep the shape, and compute in the type of their input.
FOLLOWERS = tuple(kind for kind in FLOAT_KINDS if kind != "TypeCast")


def write_graph(
    kind: str,
    first: Sequence[int],
    second: Sequence[int],
    attributes: Mapping[str, Any],
    *,
    dtype: str = "f32",
    then: Sequence[str | tuple[str, Mapping[str, Any]]] = (),
    int8: str | None = None,
    fpmath_mode: str = "strict",
) -> dict[str, Any]:
    """Write the graph of a convolution and the kinds that follow, as `json.dumps` takes it.

    Args:
      kind: one of `KINDS`.
      first, second: the shapes of the two arrays.
      attributes: as for `apply`; shapes, too, are given here.
      dtype: the type in which the convolution is computed: "f32", "bf16" or "f16".
      then: the kinds that follow, each on the output before: "BiasAdd", "Add", "ReLU", ...; with a
        dict of attributes where a kind needs attributes. Further inputs of a kind are inputs of
        the graph: one number for each channel for BiasAdd, a tensor of the same shape for Add and
        other kinds of two tensors.
      int8: "per_tensor" or "per_channel". src (u8) and weights (s8) are dequantised first, weights
        by one scale or by a scale for each output channel; the result is quantised to u8. With a
        16-bit `dtype`, a TypeCast follows each Dequantize, and precedes Quantize: mixed precision.
        For Convolution and ConvTranspose only.
      fpmath_mode: the mode of the graph.

    Raises:
      TypeError, ValueError: as `apply` does.
    """
    row = find_kind(kind)
    writer = _Writer()
    if dtype not in FLOAT_TYPES:
        raise ValueError(f"write_graph: `dtype` must be {either(FLOAT_TYPES)}; got {shown(dtype)}")
    if int8 not in (None, "per_tensor", "per_channel"):
        raise ValueError(
            f"write_graph: `int8` must be None, 'per_tensor' or 'per_channel'; got {shown(int8)}"
        )
    if int8 and row.name not in ("Convolution", "ConvTranspose"):
        raise ValueError(
            f"write_graph: `int8` must be None, unless the kind is Convolution or ConvTranspose; "
            f"got {int8!r} for {kind}"
        )
    function, arguments = prepare_call(kind, [tuple(first), tuple(second)], attributes)
    resolved = resolve(function, **arguments)
    out = tuple(map(int, resolved.shape(OPS[resolved.op].result)))
    data_format = str(arguments.get("data_format", "NXC")).upper()

    inputs = []
    for name, shape in zip(row.inputs[:2], (tuple(first), tuple(second)), strict=True):
        if int8:
            tensor = writer.add_tensor("u8" if name == "src" else "s8", shape)
            scaled = _choose_scales(int8, name, arguments, shape)
            tensor = writer.add_node("Dequantize", [tensor], scaled, ("f32", shape))
            if dtype != "f32":
                tensor = writer.add_node("TypeCast", [tensor], {}, (dtype, shape))
        else:
            tensor = writer.add_tensor(dtype, shape)
        inputs.append(tensor)
    last = writer.add_node(kind, inputs, attributes, (dtype, out))
    for step in then:
        follower, given = (step, {}) if isinstance(step, str) else step
        last = writer.add_node(*_describe_follower(writer, follower, last, given, data_format))
    if int8:
        if dtype != "f32":
            last = writer.add_node("TypeCast", [last], {}, ("f32", out))
        scaled = {"qtype": "per_tensor", "axis": 1, "scales": [0.5], "zps": [128]}
        last = writer.add_node("Quantize", [last], scaled, ("u8", out))
    return {
        "version": "3.0.0",
        "engine_kind": "cpu",
        "fpmath_mode": fpmath_mode,
        "input_ports": writer.inputs,
        "output_ports": [last["id"]],
        "graph": writer.nodes,
    }


def _describe_follower(
    writer: "_Writer", kind: str, src: Fields, given: Mapping[str, Any], data_format: str
) -> tuple[str, list[Fields], Mapping[str, Any], tuple[str, Shape]]:
    """Describe a node that follows: kind, inputs, attributes and output."""
    if kind not in FOLLOWERS:
        hint = suggestion(kind, FOLLOWERS)
        raise ValueError(f"write_graph: `then` must be of {either(FOLLOWERS)}; got {kind!r}{hint}")
    spec, shape = SPECS[kind], tuple(src["shape"])
    if "data_format" in spec.attributes:
        given = {"data_format": data_format, **given}
    channels = (shape[1 if data_format == "NCX" else -1],)
    own = shape if "auto_broadcast" in spec.attributes else channels
    inputs = [src, *(writer.add_tensor(src["dtype"], own) for _ in spec.inputs[1:])]
    return kind, inputs, given, (src["dtype"], shape)


def _choose_scales(int8: str, name: str, arguments: Fields, shape: Shape) -> Fields:
    """Choose the attributes of the Dequantize of src or of weights."""
    if name == "src":
        return {"qtype": "per_tensor", "axis": 1, "scales": [0.0625], "zps": [128]}
    if int8 == "per_tensor":
        return {"qtype": "per_tensor", "axis": 1, "scales": [0.03125], "zps": [0]}
    axis = find_axes(str(arguments["weights_format"]).upper(), len(shape) - 2)["O"]
    scales = [2.0 ** -(4 + place % 3) for place in range(shape[axis])]
    return {"qtype": "per_channel", "axis": axis, "scales": scales, "zps": [0] * len(scales)}


@dataclass
class _Writer:
    """The nodes so far; tensors are numbered in the order of their addition."""

    nodes: list[Fields] = field(default_factory=list)
    inputs: list[int] = field(default_factory=list)
    tensors: int = 0

    def add_tensor(self, dtype: str, shape: Shape, given: bool = True) -> Fields:
        """Add a tensor; an input of the graph if `given`, and not computed by a node."""
        number, self.tensors = self.tensors, self.tensors + 1
        if given:
            self.inputs.append(number)
        steps = [math.prod(shape[axis + 1 :]) for axis in range(len(shape))]
        return {
            "id": number,
            "dtype": dtype,
            "shape": list(shape),
            "stride": steps,
            "layout_type": "strided",
            "property_type": "undef",
        }

    def add_node(
        self,
        kind: str,
        inputs: list[Fields],
        attributes: Mapping[str, Any],
        output: tuple[str, Shape],
    ) -> Fields:
        """Add a node; return its output."""
        out = self.add_tensor(*output, given=False)
        rank = len(inputs[0]["shape"]) - 2
        attrs = {
            name: value if isinstance(value, Mapping) else _wrap_value(kind, name, value, rank)
            for name, value in attributes.items()
            if value is not None
        }
        number = len(self.nodes)
        fields = {"id": number, "name": f"{kind.upper()}_{number}", "kind": kind, "attrs": attrs}
        self.nodes.append({**fields, "inputs": inputs, "outputs": [out]})
        return out


_PER_AXIS = ("strides", "pads_begin", "pads_end", "dilations", "output_padding")


def _wrap_value(kind: str, name: str, value: Any, rank: int) -> Fields:
    """Wrap a value with its type, as in a dump."""
    if name in _PER_AXIS and is_int(value):
        value = [value] * rank
    listed = entries(value)
    if kind in SPECS and name in SPECS[kind].attributes:
        expected = SPECS[kind].attributes[name].type
    elif listed is not None:
        expected = "s64[]"
    else:
        expected = "s64" if is_int(value) else "string"
    if listed is not None:
        return {
            "type": expected,
            "value": [float(v) if "f32" in expected else int(v) for v in listed],
        }
    return {"type": expected, "value": float(value) if expected == "f32" else value}
