"""Which forms compute an operation, why, and at what cost."""

import threading
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, overload

import jax
import jax.numpy as jnp
from jax.export import is_symbolic_dim
from jax.sharding import Sharding

from jaxconv import _lowering
from jaxconv._base import environment
from jaxconv._base.dtypes import ACCUMULATION, canonical
from jaxconv._base.environment import Listener, Lowered
from jaxconv._base.messages import either, shown
from jaxconv._base.typing import DType, Typed
from jaxconv._lax.install import enabled, installed
from jaxconv._rules import arguments
from jaxconv._rules.op import OPS
from jaxconv._rules.resolve import Resolved
from jaxconv._tools import inspect
from jaxconv._tools.flops import count_bytes, count_flops
from jaxconv._tools.profile import Report, profile_thread


@dataclass(frozen=True, repr=False)
class Explanation:
    """How an operation is computed here; see `jaxconv.explain`."""

    platform: str
    #: each form in use with the reason, the outermost first
    steps: tuple[tuple[str, str], ...]
    #: how often each form occurs
    counts: tuple[int, ...]
    #: multiplications and additions that the geometry defines, without products with padding
    flops: int
    #: bytes of both inputs and the result
    bytes: int
    #: bytes that the compiled program allocates besides; None if the compiler does not say. What
    #: oneDNN allocates, about the bytes of the weights, is no part of it
    temp_bytes: int | None
    #: why oneDNN is not used on this CPU at all; None if oneDNN is used, or on other platforms
    no_onednn: str | None
    resolved: Resolved
    #: the nodes of a graph that are computed together, as in "CONV_0 + RELU_1"; else empty
    nodes: str = ""

    def __repr__(self) -> str:
        lines = [f"{self.resolved.op} to {self.resolved.shape(OPS[self.resolved.op].result)}"]
        if self.nodes:
            lines[0] += f": {self.nodes} in one"
        for (form, why), count in zip(self.steps, self.counts, strict=True):
            lines.append(f"  {form}{f' (x {count})' if count > 1 else ''}: {why}")
        if self.no_onednn:
            lines.append(f"  without oneDNN: {self.no_onednn}")
        temp = "unknown" if self.temp_bytes is None else f"{self.temp_bytes / 2**20:.1f} MiB"
        lines.append(
            f"  {self.flops / 1e6:,.1f} MFLOP, {self.bytes / 2**20:.1f} MiB in and out, "
            f"temporary memory {temp}"
        )
        return "\n".join(lines)


@overload
def explain(op: str, /, *args: Any, dtype: Any = None, **attributes: Any) -> Explanation: ...
@overload
def explain(op: Callable[..., Any], /, *args: Any, **attributes: Any) -> Any: ...
def explain(
    op: str | Callable[..., Any], /, *args: Any, dtype: Any = None, **attributes: Any
) -> Any:
    """How an operation, or each convolution of a function, would be computed here, and why.

    An operation is compiled for the default backend, to learn what memory it needs, but not run.
    A form that `jaxconv.forced` forces is explained as such. A profile that is open hears of it.

    Any other function, a training step, say, is lowered, and neither compiled nor run: the result
    is the report of :func:`jaxconv.profile` around that. Where :func:`jaxconv.install` holds on
    no platform, the convolutions of lax are explained as if it held on CPU.

    Args:
      op: one of the six operations, or its name; or a function, jitted or not.
      args, attributes: what it takes. Arrays may be given as shapes to an operation, whose batch
        must be known, and as `jax.ShapeDtypeStruct` to a function; to a function, what is no array
        is given as it is, and so is a NumPy vector of ints.
      dtype: type of the inputs of an operation; by default that of the arrays among them, or else
        float32.

    Raises:
      TypeError, ValueError: what the operation itself would raise.

    Example:
      >>> import jax, jax.numpy as jnp, jaxconv
      >>> found = jaxconv.explain("convolution", (8, 56, 56, 64), (1, 1, 64, 256))
      >>> found.flops, found.bytes
      (822083584, 32178176)
      >>> def loss(x, w):
      ...     return jax.lax.conv(x, w, (2, 2), "VALID").sum()
      >>> x, w = jnp.ones((8, 16, 32, 32)), jnp.ones((32, 16, 3, 3))
      >>> report = jaxconv.explain(jax.grad(loss, argnums=(0, 1)), x, w)
      >>> sorted(row.to for row in report.rows)
      ['fine', 'kernel']
    """
    if callable(op) and op not in inspect.FUNCTIONS.values():
        given = {} if dtype is None else {"dtype": dtype}
        return _explain_function(op, *args, **attributes, **given)
    name, given = inspect.arguments("explain", op, *args, **attributes)
    resolved = inspect.resolve(name, *args, **attributes)
    record = OPS[name]
    shapes = {tensor: resolved.shape(tensor) for tensor in record.inputs}
    for added in ("bias", "residual"):
        if given.get(added) is not None:
            shapes[added] = inspect.shape(name, added, given[added])
    for tensor, shape in shapes.items():
        if any(is_symbolic_dim(n) for n in shape):
            raise ValueError(
                f"explain: `{tensor}` must have a batch of known size, to be compiled; "
                f"got shape {shape}"
            )
    alike = [tensor for tensor in shapes if tensor != "residual"]
    typed = {tensor: given[tensor] for tensor in alike if hasattr(given[tensor], "dtype")}
    dtype = _choose_dtype(name, dtype, typed)
    types = dict.fromkeys(alike, dtype)
    types["residual"] = getattr(given.get("residual"), "dtype", dtype)
    tensors = {
        n: jax.ShapeDtypeStruct(shape, types[n], sharding=_split(given[n]))
        for n, shape in shapes.items()
    }
    rest = {k: v for k, v in given.items() if k not in tensors}
    thread, contractions = threading.get_ident(), list[Lowered]()
    here = Listener(lambda: threading.get_ident() == thread, contractions.append)
    with environment.listening(here):
        program = jax.jit(partial(inspect.FUNCTIONS[name], **rest)).lower(**tensors)
    (lowered,) = contractions
    memory, steps = program.compile().memory_analysis(), lowered.how
    flops, size = count_flops(lowered), count_bytes(lowered)
    assert not isinstance(steps, str)  # lax keeps none of ours
    assert flops is not None  # no extent is symbolic
    assert size is not None
    platform, counts = jax.default_backend(), Counter(steps)
    return Explanation(
        platform=platform,
        steps=tuple(counts),
        counts=tuple(counts.values()),
        flops=flops,
        bytes=size,
        temp_bytes=None if memory is None else memory.temp_size_in_bytes,
        no_onednn=_lowering.why_unavailable() if platform == "cpu" else None,
        resolved=resolved,
    )


def _split(given: Any) -> Sharding | None:
    """The sharding of an array that is split over devices."""
    if not isinstance(given, jax.Array) or isinstance(given, jax.core.Tracer):
        return None
    return given.sharding if len(given.sharding.device_set) > 1 else None


def _explain_function(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Report:
    """Report the convolutions of a function, as if the library were installed."""
    installs, thread = enabled(), threading.get_ident()
    with nullcontext() if installs else installed(), profile_thread(thread) as report:
        inspect.trace(function, *args, **kwargs).lower()
    report.assumed = not installs
    return report


def _choose_dtype(op: str, asked: Any, typed: dict[str, Typed]) -> DType:
    """Choose the type that the user gave, or the type of the arrays, or float32."""
    if asked is None:
        return arguments.common_dtype(op, **typed) if typed else jnp.dtype(jnp.float32)
    with suppress(Exception):  # `asked` may name no type at all
        dtype: DType = canonical(asked)
        if dtype in ACCUMULATION:
            return dtype
    accepted = either(d.name for d in ACCUMULATION)
    raise TypeError(f"explain: `dtype` must be {accepted}; got {shown(asked)}")
