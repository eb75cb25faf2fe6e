"""Which spelling an operation gets, why, and what it costs."""

import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxconv import _inspect, _lowering
from jaxconv._dtypes import canonical
from jaxconv._geometry import OPERANDS, Axis
from jaxconv._op import OPS
from jaxconv._resolve import Resolved


@dataclass(frozen=True)
class Explanation:
    """How an operation is computed here; see `jaxconv.explain`."""

    platform: str
    #: each spelling in use with the reason, the outermost first; empty where XLA is left to choose
    steps: tuple[tuple[str, str], ...]
    #: how often each occurs
    counts: tuple[int, ...]
    #: multiplications and additions that the geometry defines; those with padding are not
    flops: int
    #: of both inputs and the result
    bytes: int
    #: what the compiled program allocates besides, where the compiler tells
    temp_bytes: int | None
    resolved: Resolved

    def __str__(self) -> str:
        lines = [f"{self.resolved.op} to {self.resolved.shape(OPS[self.resolved.op].result)}"]
        for (spelling, why), count in zip(self.steps, self.counts, strict=True):
            lines.append(f"  {spelling}{f' (x {count})' if count > 1 else ''}: {why}")
        if not self.steps:
            lines.append(f"  one lax.conv_general_dilated, in the form that suits {self.platform}")
        temp = "unknown" if self.temp_bytes is None else f"{self.temp_bytes / 2**20:.1f} MiB"
        lines.append(
            f"  {self.flops / 1e6:,.1f} MFLOP, {self.bytes / 2**20:.1f} MiB in and out, "
            f"temporary memory {temp}"
        )
        return "\n".join(lines)


def explain(
    op: str | Callable[..., Any], /, *args: Any, dtype: Any = None, **attributes: Any
) -> Explanation:
    """How an operation would be computed on the default backend, by which spelling and why.

    It is compiled, to learn what memory it needs, but not run. A spelling forced by
    `jaxconv.forced` is explained as such.

    Args:
      op: one of the six operations, or its name.
      args, attributes: what the operation takes. Its arrays may be given as shapes.
      dtype: of the inputs; by default that of the first array among them, or else float32.

    Raises:
      TypeError, ValueError: what the operation itself would raise.

    Example:
      >>> import jaxconv
      >>> print(jaxconv.explain("convolution", (8, 56, 56, 64), (1, 1, 64, 256)))  # doctest: +SKIP
      convolution to (8, 56, 56, 256)
        matmul: one tap or tiling windows: one dot
        822.1 MFLOP, 30.7 MiB in and out, temporary memory 0.0 MiB
    """
    resolved = _inspect.resolve(op, *args, **attributes)
    record = OPS[resolved.op]
    if dtype is None:
        dtype = next((x.dtype for x in args if hasattr(x, "dtype")), jnp.float32)
    dtype = jnp.dtype(canonical(dtype))
    inputs = [jax.ShapeDtypeStruct(resolved.shape(name), dtype) for name in record.inputs]
    given = {record.shape_argument: resolved.shape(record.result)} if record.shape_argument else {}
    ignored = {"bias", *given}
    function = partial(
        _inspect.FUNCTIONS[resolved.op],
        **{k: v for k, v in attributes.items() if k not in ignored},
        **given,
    )
    compiled = jax.jit(function).lower(*inputs).compile()
    memory = compiled.memory_analysis()
    platform = jax.default_backend()
    rules = Counter(_rules(resolved, dtype) if platform == "cpu" else ())
    sizes = [math.prod(x.shape) for x in (*inputs, jax.eval_shape(function, *inputs))]
    return Explanation(
        platform=platform,
        steps=tuple(rules),
        counts=tuple(rules.values()),
        flops=_flops(resolved),
        bytes=sum(sizes) * dtype.itemsize,
        temp_bytes=None if memory is None else memory.temp_size_in_bytes,
        resolved=resolved,
    )


def _rules(resolved: Resolved, dtype: Any) -> list[tuple[str, str]]:
    """The spellings and reasons that the CPU lowering goes through."""
    told: list[_lowering.Rule] = []
    geometry, result = resolved.geometry, OPS[resolved.op].slot(OPS[resolved.op].result)
    names = {OPS[resolved.op].slot(n): n for n in OPS[resolved.op].inputs}
    shapes = [resolved.shape(names[slot]) for slot in OPERANDS[result]]
    jax.eval_shape(
        partial(
            _lowering.SPELL["cpu"],
            result,
            geometry=geometry,
            precision=(lax.Precision.DEFAULT,) * 2,
            dtype=dtype,
            early_rounding=False,
            partitioned=False,
            spelling=_lowering.forced_name(),
            told=told,
        ),
        *(jax.ShapeDtypeStruct(shape, dtype) for shape in shapes),
    )
    return [(rule.spelling, rule.why) for rule in told]


def _flops(resolved: Resolved) -> int:
    """Two for each triple of elements that the form multiplies."""
    layout, groups = resolved.geometry.data, resolved.groups
    src, dst = (shape[layout.channel] for shape in (resolved.src_shape, resolved.dst_shape))
    pairs = math.prod(_met(axis) for axis in resolved.geometry.axes)
    return int(2 * resolved.src_shape[layout.batch] * src * dst // groups * pairs)


def _met(axis: Axis) -> int:
    """How many pairs of a tap and a coarse position read inside the fine axis."""
    reads = (
        axis.stride * q + axis.dilation * t - axis.pad_low
        for q in range(axis.coarse)
        for t in range(axis.kernel)
    )
    return sum(0 <= p < axis.fine for p in reads)
