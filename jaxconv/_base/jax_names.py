"""All use of JAX that is not quite public, and what could replace each name.

JAX offers no public way to define a bilinear operation that keeps every transformation:
`custom_vjp` loses forward mode, `custom_derivatives.linear_call` loses vmap and second
order. The modules imported below are importable by documented paths, but come without a promise;
the tests run on the oldest and the newest supported JAX.
"""

import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from math import prod
from typing import Any, NamedTuple

import jax
import numpy as np

# `jet.jet_rules`: the rule of a primitive for Taylor series. An experimental module, which
# names no way for others to add rules. Without it only `jet` itself would be lost.
from jax.experimental import jet as jet

# Attributes of XLA's instructions, for `call_isolated`. An experimental module. Instead of
# attributes, a `lax.cond` whose condition is always true, and hidden from XLA; it compiles longer.
from jax.experimental.xla_metadata import set_xla_metadata as set_xla_metadata

# A primitive: the one way to own all rules of an operation. Would be replaced by a public
# `custom_transpose` that has a batching rule, should JAX get one back.
from jax.extend.core import Primitive as Primitive

# The operations of a program that is being lowered, for `lower_or_leave_nothing`.
from jax.extend.mlir import ir

# `ad.defbilinear`: jvp and transpose of a product of two operands.
# `batching.fancy_primitive_batchers`: vmap rules that see mesh axes.
# `mlir.register_lowering`, `mlir.lower_fun`: an operation written in lax, for each platform.
from jax.interpreters import ad as ad
from jax.interpreters import batching as batching
from jax.interpreters import mlir as mlir

#: Any, since type checkers know the options of `jax.config` in JAX 0.12, and not in 0.10.
_config: Any = jax.config


def default_matmul_precision() -> Any:
    """Read the value of `jax.default_matmul_precision`; None if it is not set.

    JAX documents how to set this option, and not that reading gives the innermost context's value.
    """
    return _config.jax_default_matmul_precision


def persistent_cache_is_on() -> bool:
    """Whether JAX's persistent compilation cache is on: enabled, and with a folder.

    JAX documents how to set these two options, and not that they can be read.
    """
    return bool(_config.jax_enable_compilation_cache and _config.jax_compilation_cache_dir)


def lower_or_leave_nothing(function: Callable[..., Any], ctx: Any, *operands: Any) -> Any:
    """Lower a function of one result in place of a primitive; an error leaves nothing half done.

    JAX writes each cacheable primitive as a function of the program, and ends none that meets an
    error. XLA would refuse the program. A `mlir.lower_fun` that succeeds or does nothing would
    replace this function. A program in float64 may be lowered where float64 is no longer enabled.
    """
    functions = ctx.module_context.module.body.operations
    before = len(functions)
    wide = any(aval.dtype == np.float64 for aval in (*ctx.avals_in, *ctx.avals_out))
    try:
        with jax.enable_x64(True) if wide else nullcontext():
            return mlir.lower_fun(function, multiple_results=False)(ctx, *operands)
    except Exception:
        for half in [f for f in [*functions][before:] if not _is_whole(f)]:
            half.erase()
        raise


def _is_whole(operation: Any) -> bool:
    """Whether an operation is one that XLA takes."""
    try:
        return bool(operation.operation.verify())
    except ir.MLIRError:
        return False


def count_spmd_devices(ctx: mlir.LoweringRuleContext) -> int:
    """Count the devices over which XLA itself will split the program being lowered.

    Axes of a mesh that `jax.shard_map` maps do not count: the program is split over them already.
    Only lowering rules can see this.
    """
    context = ctx.module_context.axis_context
    if hasattr(context, "num_devices"):
        return int(context.num_devices)
    shape = context.mesh.shape
    return prod(shape[name] for name in shape if name not in context.manual_axes)


def find_lowering_rule(primitive: Primitive, platform: str | None) -> Any:
    """Find JAX's lowering rule of a primitive for a platform, or else its rule for all platforms.

    JAX offers a way to set such a rule, and no way to read a rule. A public `get_lowering` would
    replace this function. Without either, a rule of ours would emit `stablehlo.convolution` through
    `jax.extend.mlir`, integers, complex numbers and symbolic pads included.
    """
    special = mlir._platform_specific_lowerings[platform] if platform else {}
    entry: Any = special.get(primitive) or mlir._lowerings[primitive]
    return entry.rule


def skip_lowering_cache(ctx: mlir.LoweringRuleContext) -> None:
    """Let JAX call the lowering rule for each equal use of the primitive that is being lowered.

    JAX caches the result of a rule in the program, and calls the rule once for all equal uses.
    `register_lowering` has an argument against that, but for good, and programs for several
    platforms then fail to lower. Without this function, and where JAX has no such cache, reports
    count equal convolutions once.
    """
    module: Any = ctx.module_context
    cache = getattr(module, "lowering_cache", None)
    if cache is None:
        return
    if not isinstance(cache, _SelectiveCache):
        cache = module.lowering_cache = _SelectiveCache(cache)
    cache.uncached.add(ctx.primitive)


class _SelectiveCache(dict[Any, Any]):
    """A cache of lowerings that does not store the primitives in `uncached`."""

    def __init__(self, entries: dict[Any, Any]) -> None:
        super().__init__(entries)
        self.uncached: set[Any] = set()

    def __setitem__(self, key: Any, value: Any) -> None:
        if key.primitive not in self.uncached:
            super().__setitem__(key, value)


def walk_equation_sources() -> Iterator[tuple[str, list[tuple[str, int]]]]:
    """Yield the name scope and the source lines of each equation that this thread is lowering.

    The innermost equation comes first. A scope joins the functions, transformations and
    `jax.named_scope`s around an equation. A line is a file and a number, the innermost first. JAX
    gives a lowering rule neither, so both are read from the local variables of `jaxpr_subcomp`, a
    function of JAX on the stack. If JAX renames these, reports lack lines and scopes.
    """
    for frame, _ in traceback.walk_stack(None):
        if frame.f_code.co_name == "jaxpr_subcomp":
            known = frame.f_locals
            source: Any = getattr(known.get("eqn"), "source_info", None)
            if source is not None and "name_stack" in known:
                python = source.traceback.as_python_traceback() if source.traceback else None
                lines = [(f.f_code.co_filename, n) for f, n in traceback.walk_tb(python)]
                yield str(known["name_stack"] + source.name_stack), lines[::-1]


def infer_result_aval(primitive: Primitive, *operands: Any, **params: Any) -> Any:
    """Infer the aval of a primitive's result by the primitive's abstract evaluation rule.

    An aval is JAX's type of an array: shape, dtype, sharding and varying axes.
    """
    result, _ = primitive.abstract_eval(*operands, **params)
    return result


def set_globally(context: Any, value: Any) -> None:
    """Set a `jax.make_user_context` for all threads that are not within the context.

    JAX documents the object as a context manager alone. Without this, a change would need
    `jax.clear_caches` after it.
    """
    context.set_global(value)


def is_lowered_for_export(ctx: mlir.LoweringRuleContext) -> bool:
    """Whether `jax.export` lowers the program; exported programs may hold no custom calls."""
    return bool(ctx.module_context.lowering_parameters.for_export)


# JAX passes objects to the rules of a primitive; no documentation names the objects' attributes.


def replace_aval(aval: Any, **changes: Any) -> Any:
    """Copy an aval with another shape, dtype or sharding.

    A public constructor of avals with shardings and varying axes would replace this.
    """
    return aval.update(**changes)


def aval_of_undefined_primal(operand: Any) -> Any:
    """Read the aval of the operand whose cotangent a transpose rule must find."""
    return operand.aval


def vmap_axis_is_sharded(axis_data: Any) -> bool:
    """Whether a vmapped axis is known to be split: by `spmd_axis_name`, or by an explicit axis."""
    return bool(axis_data.spmd_name or axis_data.explicit_mesh_axis)


def explicit_mesh_axes_of_vmap(axis_data: Any) -> Any:
    """Read the explicit mesh axis, or axes, that the axis of a vmap is split over; None if none."""
    return axis_data.explicit_mesh_axis


def varying_axes(x: Any) -> frozenset[Any]:
    """Read the mesh axes that a value within shard_map varies over; `jax.lax.pcast` adds axes."""
    varying: frozenset[Any] = jax.typeof(x).manual_axis_type.varying
    return varying


def operand_and_result_avals(ctx: mlir.LoweringRuleContext) -> tuple[list[Any], list[Any]]:
    """Read the avals of the operands and of the results that a lowering rule is called for."""
    return list(ctx.avals_in), list(ctx.avals_out)


class Equation(NamedTuple):
    """One step of a jaxpr."""

    primitive: Primitive
    operands: list[Any]  # avals
    results: list[Any]
    params: dict[str, Any]


def walk_equations(program: Any) -> Iterator[Equation]:
    """Yield the steps of a closed jaxpr in order, but not those of jaxprs in its parameters."""
    for eqn in program.jaxpr.eqns:
        operands, results = ([v.aval for v in vs] for vs in (eqn.invars, eqn.outvars))
        yield Equation(eqn.primitive, operands, results, eqn.params)


def evaluate_equations(program: Any, operands: Sequence[Any], apply: Callable[..., Any]) -> Any:
    """Evaluate a jaxpr of one result, each step by `apply(primitive, operands, params)`."""
    jaxpr = program.jaxpr
    values = dict(zip(jaxpr.constvars, program.consts, strict=True))

    def read(variable: Any) -> Any:
        return variable.val if hasattr(variable, "val") else values[variable]

    values.update(zip(jaxpr.invars, operands, strict=True))
    for eqn in jaxpr.eqns:
        outputs = apply(eqn.primitive, [*map(read, eqn.invars)], eqn.params)
        outputs = outputs if eqn.primitive.multiple_results else [outputs]
        values.update(zip(eqn.outvars, outputs, strict=True))
    (result,) = jaxpr.outvars
    return read(result)
