"""Is each convolution of a graph right? Against its defining sum, in NumPy float64."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from jaxconv._base.geometry import Slot
from jaxconv._checks import reference
from jaxconv._rules.op import OPS
from jaxconv._rules.resolve import Resolved
from jaxconv._tools.inspect import resolve
from jaxconv.onednn._graphs.graph import Graph, Node
from jaxconv.onednn._graphs.inputs import Arrays
from jaxconv.onednn._graphs.run import TENSORS, convolution_calls, evaluate

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Finding:
    """The error of a convolution against the reference."""

    node: Node
    resolved: Resolved
    #: largest error of an element, in multiples of the bound of that element
    error: float

    @property
    def ok(self) -> bool:
        """Whether all elements are within their bounds."""
        return self.error <= 1


def check(graph: Graph, inputs: Arrays) -> list[Finding]:
    """Run a graph node by node in full precision, and compare each convolution on its inputs there.

    The reference takes sizes and pads from `jaxconv.resolve`; running the graph checks the shapes.
    """
    full = lax.Precision.HIGHEST
    # Not jitted: in one program, a convolution may read other numbers than those that come out.
    arrays = evaluate(graph, inputs, precision=full)
    return [
        compare(node, function, arguments, np.asarray(arrays[node.outputs[0].id]))
        for node, function, arguments in convolution_calls(graph, arrays, full)
    ]


def compare(
    node: Node, function: Callable[..., Any], arguments: dict[str, Any], found: Array
) -> Finding:
    """Compare a convolution's result to the reference, element by element.

    The bound of an element is ``4 eps sqrt(terms)`` times the sum of the absolute values of its
    terms, with eps of float32, and one rounding more where the type has 16 bits.
    """
    resolved = resolve(function, **arguments)
    tensors = {n: np.asarray(arguments[n], np.float64) for n in TENSORS if n in arguments}
    exact = _compute_reference(resolved, tensors)
    sizes = _compute_reference(resolved, {name: np.abs(x) for name, x in tensors.items()})
    eps = float(np.finfo(np.float32).eps)
    bound = 4 * eps * math.sqrt(_count_terms(resolved)) * sizes
    if found.dtype.itemsize == 2:
        info = jnp.finfo(found.dtype)
        bound += float(info.eps) / 2 * np.abs(exact) + float(info.smallest_subnormal)
    error = np.abs(found.astype(np.float64) - exact)
    with np.errstate(invalid="ignore", divide="ignore"):
        ratio = np.where(error == 0, 0, error / bound)
    worst = float(np.max(ratio, initial=0))
    return Finding(node, resolved, math.inf if math.isnan(worst) else worst)


def _compute_reference(resolved: Resolved, tensors: dict[str, Array]) -> Array:
    """Compute the reference in the layout of the operation."""
    op = OPS[resolved.op]
    data, kernel = resolved.geometry.data, resolved.geometry.kernel
    orders = {
        "data": (data.batch, *data.spatial, data.channel),
        "kernel": (*kernel.spatial, kernel.fine, kernel.coarse),
    }

    def move_groups_first(slot: Slot, x: Array) -> Array:
        """Move the groups first, and the channels last."""
        x = x.transpose(orders["kernel" if slot == "kernel" else "data"])
        if slot == "kernel" and resolved.groups_on_fine:
            grouped = x.reshape(*x.shape[:-2], resolved.groups, -1, x.shape[-1])
            return np.moveaxis(grouped, -3, 0)
        return np.moveaxis(x.reshape(*x.shape[:-1], resolved.groups, -1), -2, 0)

    def move_groups_back(slot: Slot, x: Array) -> Array:
        on_fine = slot == "kernel" and resolved.groups_on_fine
        x = np.moveaxis(x, 0, -3 if on_fine else -2)
        order = orders["kernel" if slot == "kernel" else "data"]
        merged = (*x.shape[:-3], -1, x.shape[-1]) if on_fine else (*x.shape[:-2], -1)
        return x.reshape(merged).transpose(np.argsort(order))

    result = op.slot(op.result)
    slots = {op.slot(name): tensors[name] for name in op.inputs}
    given = {slot: move_groups_first(slot, x) for slot, x in slots.items()}
    given[result] = move_groups_first(result, np.zeros(resolved.shape(op.result)))
    axes = resolved.geometry.axes
    strides, dilations, pads = zip(*((a.stride, a.dilation, a.pad_low) for a in axes), strict=True)
    found = move_groups_back(result, reference.fill(result, given, strides, dilations, pads))
    if "bias" in tensors:
        found += np.expand_dims(
            tensors["bias"], tuple(axis for axis in range(found.ndim) if axis != data.channel)
        )
    return found


def _count_terms(resolved: Resolved) -> int:
    """Count the terms that a sum may have at most."""
    axes, groups = resolved.geometry.axes, resolved.groups
    channel = resolved.geometry.data.channel
    src, dst = resolved.src_shape, resolved.dst_shape
    taps = math.prod(axis.kernel for axis in axes)
    result = OPS[resolved.op].result
    if result == "diff_weights":
        return int(src[resolved.geometry.data.batch]) * math.prod(axis.coarse for axis in axes)
    summed = src if result == "dst" else dst
    return taps * int(summed[channel]) // groups + 1
