"""Compute a node: its attributes in the words of the six operations."""

from collections.abc import Mapping, Sequence
from typing import Any

import jax.numpy as jnp
from jax import Array

from jaxconv._base.messages import named, short, shown
from jaxconv._base.typing import ArrayLike, PrecisionLike
from jaxconv._ops.conv_transpose import conv_transpose
from jaxconv._ops.convolution import convolution
from jaxconv._rules.arguments import common_dtype
from jaxconv._rules.layouts import check_first_axis
from jaxconv._rules.resolve import is_too_large
from jaxconv.onnx._integers import compute_integers
from jaxconv.onnx._operators import NEWEST_OPSET, find_operator, read_attributes, read_inputs


def apply(
    op_type: str,
    attributes: Mapping[str, Any] | Sequence[Any],
    inputs: Sequence[Any],
    *,
    opset: int = NEWEST_OPSET,
    precision: PrecisionLike = None,
) -> Any:
    """Compute a node of ONNX.

    ===================  ==========================================================
    operator             inputs
    ===================  ==========================================================
    Conv, ConvTranspose  X, W, optional B
    ConvInteger          x, w, optional x_zero_point, w_zero_point
    QLinearConv          x, x_scale, x_zero_point, w, w_scale, w_zero_point,
                         y_scale, y_zero_point, optional B
    CausalConvWithState  input, weight, optional bias, past_state
    ===================  ==========================================================

    Args:
      op_type: one of `OP_TYPES`.
      attributes: by name, as Python's ints, lists and strings, or the `attribute` of a
        `NodeProto`. Names, meanings and defaults are ONNX's. Where `output_shape` is given, or
        `auto_pad` is SAME_*, a transposed convolution takes its pads from the size. Where ONNX's
        equation makes their total negative, it is zero, and what is missing is added at the end.
      inputs: arrays in order. An optional input may be left out or be None. The scale and the
        zero point of w are a number or one for each output channel.
      opset: the version of the operator set, from that which brought the operator to
        `NEWEST_OPSET`. Attributes mean the same in all of these. Types are those of the newest,
        and float64 for CausalConvWithState.
      precision: of floats, as the six operations take it; `jax.default_matmul_precision` by
        default.

    Returns:
      The output: of ConvInteger int32, of QLinearConv the type of y_zero_point. Of
      CausalConvWithState a pair, output and present_state.

    Raises:
      TypeError, ValueError: an argument is malformed. The message names the operator.

    Example:
      >>> import jax.numpy as jnp
      >>> from jaxconv import onnx
      >>> x, w = jnp.ones((1, 6, 8, 8)), jnp.ones((6, 4, 3, 3))
      >>> onnx.apply("ConvTranspose", {"strides": [2, 2], "pads": [1, 1, 0, 0]}, [x, w]).shape
      (1, 4, 16, 16)
    """
    operator = find_operator(op_type, opset)
    arrays = read_inputs(operator, inputs)
    given = read_attributes(operator, attributes)
    with named(op_type, operator.names):
        if op_type == "CausalConvWithState":
            return _convolve_causally(op_type, **arrays, **given, precision=precision)
        x, w = (arrays[name] for name in operator.tensors)
        window = _read_window(op_type, x, w, given)
        if op_type == "Conv":
            return convolution(x, w, arrays["B"], **window, precision=precision)
        if op_type == "ConvTranspose":
            return conv_transpose(x, w, arrays["B"], **window, precision=precision)
        return compute_integers(op_type, window, **arrays)


def apply_node(
    node: Any, inputs: Sequence[Any], *, opset: int = NEWEST_OPSET, precision: PrecisionLike = None
) -> Any:
    """Compute a `NodeProto`: :func:`apply` of its operator and its attributes.

    Args:
      node: the node, or any object with its `op_type`, `domain` and `attribute`.
      inputs: arrays in the order of ``node.input``, None for an empty name.
      opset, precision: see :func:`apply`.

    Returns:
      As :func:`apply`.

    Raises:
      TypeError, ValueError: as :func:`apply`.

    Example:
      >>> import numpy as np
      >>> from types import SimpleNamespace  # in a program: a node of onnx.load(...).graph.node
      >>> from jaxconv import onnx
      >>> strides = SimpleNamespace(name="strides", type=7, ints=[2], ref_attr_name="")
      >>> node = SimpleNamespace(op_type="Conv", domain="", attribute=[strides])
      >>> onnx.apply_node(node, [np.ones((1, 3, 9)), np.ones((4, 3, 3))]).shape
      (1, 4, 4)
    """
    if not all(hasattr(node, name) for name in ("op_type", "domain", "attribute")):
        raise TypeError(f"onnx.apply_node: `node` must be a NodeProto; got {shown(node)}")
    if node.domain not in ("", "ai.onnx"):
        raise ValueError(
            f"{node.op_type}: `domain` must be ONNX's own, '' or 'ai.onnx'; got {node.domain!r}"
        )
    return apply(node.op_type, node.attribute, inputs, opset=opset, precision=precision)


def _read_window(
    op: str, x: ArrayLike, w: ArrayLike, attributes: Mapping[str, Any]
) -> dict[str, Any]:
    """Translate the attributes of a window into those of the six operations."""
    rank = max(x.ndim - 2, 1)
    ones, nothing = [1] * rank, [0] * rank
    defaults = {"strides": ones, "dilations": ones, "output_padding": nothing, "pads": nothing * 2}
    given = defaults | {name: value for name, value in attributes.items() if value is not None}
    pads, mode = list(given["pads"]), given["auto_pad"]
    kernel_shape = tuple(given.get("kernel_shape", w.shape[2:]))
    if kernel_shape != w.shape[2:]:
        raise ValueError(
            f"{op}: `kernel_shape` must be that of the weights, {w.shape[2:]}, or be left out; "
            f"got {short(kernel_shape)}"
        )
    if len(pads) != 2 * rank:
        raise ValueError(
            f"{op}: `pads` must be {2 * rank} ints, the beginnings of all spatial axes and then "
            f"the ends; got {short(pads)}"
        )
    if mode != "NOTSET" and any(pads):
        raise ValueError(
            f"{op}: `pads` and `auto_pad` cannot both be given: leave one of them out; "
            f"got {short(pads)} and {mode!r}"
        )
    window = {
        "strides": given["strides"],
        "dilations": given["dilations"],
        "pads_begin": pads[:rank],
        "pads_end": pads[rank:],
        "auto_pad": mode,
        "groups": given["group"],
        "data_format": "NCX",
        "weights_format": "OIX",
    }
    if op == "ConvTranspose":
        check_first_axis(x.shape, w.shape, given["group"])
        window |= {"weights_format": "IOX", "output_padding": given["output_padding"]}
        window |= _read_size(op, x, w, given)
    return window


def _read_size(op: str, x: ArrayLike, w: ArrayLike, given: Mapping[str, Any]) -> dict[str, Any]:
    """Read what only a transposed convolution has: `output_shape` decides the pads.

    ONNX's equation begins with the larger half of an odd total, unless auto_pad is SAME_UPPER.
    (In opset 1 the equation had the halves exchanged, against the words on auto_pad beside it;
    opset 11 corrected the equation. ONNX's evaluator has one rule for all opsets, and so have we.)
    """
    extents, strides, size = x.shape[2:], given["strides"], given.get("output_shape")
    same = given["auto_pad"].startswith("SAME") and len(strides) == len(extents)
    if size is None and same:  # the operation says what is wrong with other strides
        size = [stride * extent for stride, extent in zip(strides, extents, strict=True)]
    if size is None or not extents:
        return {}
    if len(size) != len(extents):
        raise ValueError(
            f"{op}: `output_shape` must be {len(extents)} ints, of the spatial axes alone; "
            f"got {short(tuple(size))}"
        )
    channels = w.shape[1] * given["group"] if w.ndim > 1 else 1
    upper = given["auto_pad"] == "SAME_UPPER"
    return {
        "dst_shape": (x.shape[0], channels, *size),
        "auto_pad": "same_upper" if upper else "same_lower",
    }


def _convolve_causally(
    op: str,
    input: ArrayLike,
    weight: ArrayLike,
    bias: ArrayLike | None,
    past_state: ArrayLike | None,
    activation: str,
    precision: PrecisionLike,
) -> tuple[Array, Array]:
    """Convolve each channel with what came before; the state is what the next step reads."""
    for name, value in {"input": input, "weight": weight}.items():
        if value.ndim != 3:
            raise ValueError(f"{op}: `{name}` must have 3 axes; got shape {value.shape}")
    batch, channels, length = input.shape
    if any(not isinstance(n, int) or n < 1 for n in (channels, length)):
        rule = "must have constant extents of at least 1, but for the batch"
        raise ValueError(f"{op}: `input` {rule}; got {input.shape}")
    if weight.shape[:2] != (channels, 1) or weight.shape[2] < 1:
        raise ValueError(
            f"{op}: `weight` must have shape (channels, 1, k) for the {channels} channels of "
            f"`input`; got {weight.shape}"
        )
    expected = (batch, channels, weight.shape[2] - 1)
    if is_too_large((batch, channels, length + expected[2])):
        rule = "and the state before it must have at most 2**48 elements"
        raise ValueError(f"{op}: `input` {rule}; got {input.shape} and {expected}")
    dtype = common_dtype(op, input=input, weight=weight)
    past = jnp.zeros(expected, dtype) if past_state is None else past_state
    common_dtype(op, input=input, past_state=past)
    if past.shape != expected:
        rule = f"must have shape {expected}, that is (batch, channels, k - 1)"
        raise ValueError(f"{op}: `past_state` {rule}; got {past.shape}")
    seen = jnp.concatenate([past, input], axis=2)
    output = convolution(
        seen, weight, bias, activation=None if activation == "none" else activation,
        groups=channels, data_format="NCX", weights_format="OIX", precision=precision,
    )  # fmt: skip
    return output, seen[:, :, length:]
