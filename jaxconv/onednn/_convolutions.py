"""The six operations under the names of the oneDNN Graph API, today's and older names."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from jax import Array, lax

from jaxconv._base.messages import Refusal, either, named, shown
from jaxconv._base.typing import PrecisionLike
from jaxconv._rules.values import entries, is_int, unwrap
from jaxconv._tools.inspect import FUNCTIONS
from jaxconv.onednn._names import OLDER_ATTRIBUTES, OLDER_INPUTS, REQUIRED, Kind, find_kind, rename


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
            rule = "and `fpmath_mode` say the same: give one of them"
            got = f"{precision!r} and {fpmath_mode!r}"
            raise ValueError(Refusal(kind, "precision", rule, got))
        precision = fpmath_precision(kind, fpmath_mode)
    with named(kind):
        return function(**arguments, precision=precision)


def fpmath_precision(where: str, mode: object) -> lax.Precision:
    """Find the least precision that a graph's `fpmath_mode` asks for."""
    if not isinstance(mode, str) or mode not in _FPMATH:
        rule = f"must be {either(map(repr, _FPMATH))}"
        raise ValueError(Refusal(where, "fpmath_mode", rule, shown(mode)))
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
        raise TypeError(Refusal(kind, "attributes", "must be a dict by name", shown(attributes)))
    attributes = rename(row, "attribute", attributes, row.attributes, OLDER_ATTRIBUTES)
    attributes = unwrap(kind, attributes)
    if missing := [f"`{name}`" for name in REQUIRED if name not in attributes]:
        rule = f"the attributes {', '.join(f'`{name}`' for name in REQUIRED)} are required"
        raise ValueError(Refusal(kind, "", f"{rule}; missing: {', '.join(missing)}", ""))
    attributes.setdefault("weights_format", row.weights_format)
    padding, steps = entries(attributes.get("output_padding")), entries(attributes["strides"])
    if padding and steps and len(padding) > len(steps) and _are_zeros(padding):
        del attributes["output_padding"]
    if row.shape is not None:
        attribute = attributes.pop(row.shape, None)
        if attribute is None or _are_zeros(entries(attribute) or [1]):
            attribute = shape
        if arguments.setdefault(row.shape, attribute) is None:
            rule = "is required, as an input or as an attribute"
            raise ValueError(Refusal(kind, row.shape, rule, "neither"))
    return FUNCTIONS[row.op], arguments | attributes


def _are_zeros(values: list[Any]) -> bool:
    return all(is_int(value) and value == 0 for value in values)


def _name_inputs(row: Kind, inputs: object) -> dict[str, Any]:
    """Collect the inputs by today's names."""
    listed = ", ".join(f"`{name}`" for name in row.inputs)
    if isinstance(inputs, Mapping):
        by_name = rename(row, "input", inputs, row.inputs, OLDER_INPUTS)
    elif not isinstance(inputs, Sequence) or isinstance(inputs, str):
        rule = f"must be a sequence or a dict by name of {listed}"
        raise TypeError(Refusal(row.name, "inputs", rule, type(inputs).__name__))
    elif len(inputs) > len(row.inputs):
        rule = f"must be at most {len(row.inputs)}, {listed}"
        raise ValueError(Refusal(row.name, "inputs", rule, str(len(inputs))))
    else:
        by_name = dict(zip(row.inputs, inputs, strict=False))
    by_name = {name: value for name, value in by_name.items() if value is not None}
    for name in row.inputs[:2]:
        if name not in by_name:
            got = ", ".join(f"`{name}`" for name in by_name) or "none"
            raise ValueError(Refusal(row.name, "", f"the input `{name}` is required", got))
    return by_name
