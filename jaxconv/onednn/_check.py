"""Is each convolution of a graph right? Against its defining sum, in NumPy float64."""

import math
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxconv._base.geometry import OPERANDS
from jaxconv._checks.layer import Layer, contract
from jaxconv._rules.op import OPS
from jaxconv._rules.resolve import Resolved
from jaxconv._tools.inspect import resolve
from jaxconv.onednn._graphs.graph import Graph, Node
from jaxconv.onednn._graphs.inputs import Arrays
from jaxconv.onednn._graphs.run import TENSORS, convolution_calls, evaluate

Array = np.ndarray[Any, Any]


def check(graph: Graph, inputs: Arrays) -> list[tuple[Node, float]]:
    """Run a graph node by node in full precision, and compare each convolution on its inputs there.

    The reference takes sizes and pads from `jaxconv.resolve`; running the graph checks the shapes.
    """
    full = lax.Precision.HIGHEST
    # Not jitted: in one program, a convolution may read other numbers than those that come out.
    arrays = evaluate(graph, inputs, precision=full)
    return [
        (node, find_error(function, arguments, np.asarray(arrays[node.outputs[0].id])))
        for node, function, arguments in convolution_calls(graph, arrays, full)
    ]


def find_error(function: Callable[..., Any], arguments: dict[str, Any], found: Array) -> float:
    """Find the largest error of an element of a convolution, in multiples of its bound.

    The bound of an element is ``4 eps sqrt(terms)`` times the sum of the absolute values of its
    terms, with eps of float32, and one rounding more where the type has 16 bits.
    """
    resolved = resolve(function, **arguments)
    tensors = {n: np.asarray(arguments[n], np.float64) for n in TENSORS if n in arguments}
    layer, slot = _layer_of(resolved), OPS[resolved.op].slot(OPS[resolved.op].result)
    exact = _compute_reference(resolved, layer, tensors)
    sizes = _compute_reference(resolved, layer, {name: np.abs(x) for name, x in tensors.items()})
    eps, terms = float(np.finfo(np.float32).eps), layer.terms(slot) + (slot != "kernel")  # a bias
    bound = 4 * eps * math.sqrt(terms) * sizes
    if found.dtype.itemsize == 2:
        info = jnp.finfo(found.dtype)
        bound += float(info.eps) / 2 * np.abs(exact) + float(info.smallest_subnormal)
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        rounded = exact.astype(found.dtype).astype(np.float64)
        out = found.astype(np.float64)
        error = np.abs(out - exact)
        # Infinity and NaN are right where the sum rounds to them, too.
        same = (out == rounded) | (np.isnan(out) & np.isnan(rounded))
        ratio = np.where((error == 0) | (same & ~np.isfinite(rounded)), 0, error / bound)
    worst = float(np.max(ratio, initial=0))
    return math.inf if math.isnan(worst) else worst


def _layer_of(resolved: Resolved) -> Layer:
    """The sizes of an operation."""
    data, axes = resolved.geometry.data, resolved.geometry.axes
    src, dst = resolved.src_shape, resolved.dst_shape
    channels = src[data.channel], dst[data.channel]
    return Layer(
        fine=tuple(a.fine for a in axes),
        kernel=tuple(a.kernel for a in axes),
        strides=tuple(a.stride for a in axes),
        dilations=tuple(a.dilation for a in axes),
        pads_begin=tuple(a.pad_low for a in axes),
        pads_end=tuple(a.pad_high for a in axes),
        channels=channels[::-1] if OPS[resolved.op].transposed else channels,
        groups=resolved.groups,
        batch=src[data.batch],
    )


def _compute_reference(resolved: Resolved, layer: Layer, tensors: dict[str, Array]) -> Array:
    """Compute the reference in the layout of the operation."""
    op, groups = OPS[resolved.op], resolved.groups
    data, kernel = resolved.geometry.data, resolved.geometry.kernel
    order = dict.fromkeys(OPERANDS, (data.batch, *data.spatial, data.channel))
    order["kernel"] = (*kernel.spatial, kernel.fine, kernel.coarse)
    given = {op.slot(n): tensors[n].transpose(order[op.slot(n)]) for n in op.inputs}
    result = op.slot(op.result)
    if resolved.groups_on_fine and result != "kernel":  # a layer has them on the coarse axis
        given["kernel"] = np.concatenate(np.split(given["kernel"], groups, -2), -1)
    out = contract(layer, result, given)
    if resolved.groups_on_fine and result == "kernel":
        out = np.concatenate(np.split(out, groups, -1), -2)
    out = out.transpose(np.argsort(order[result]))
    if "bias" in tensors:
        out += tensors["bias"].reshape([-1 if a == data.channel else 1 for a in range(out.ndim)])
    return out
