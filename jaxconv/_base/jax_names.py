"""Every JAX name in use that is not quite public, and its possible replacement.

JAX offers no public way to define a bilinear operation that keeps every transformation:
`custom_vjp` loses forward mode, `custom_derivatives.linear_call` loses vmap and second
order. The modules below are importable by documented paths, but come without a promise; the
tests run on the oldest and the newest supported JAX.
"""

import traceback
from collections.abc import Callable, Iterator, Sequence
from math import prod
from typing import Any, NamedTuple

import jax

# `jet.jet_rules`: the rule of a primitive for Taylor series. An experimental module, which
# names no way for others to add rules. Without it only `jet` itself would be lost.
from jax.experimental import jet

# Attributes of XLA's instructions, for `isolate.py`. An experimental module. A branch that is
# always taken, its condition behind a barrier, would replace attributes, and compile longer.
from jax.experimental.xla_metadata import set_xla_metadata

# A primitive: the one way to own all rules of an operation. Would be replaced by a public
# `custom_transpose` that has a batching rule, should JAX get one back.
from jax.extend.core import Primitive

# `ad.defbilinear`: jvp and transpose of a product of two operands.
# `batching.fancy_primitive_batchers`: vmap rules that see mesh axes.
# `mlir.register_lowering`, `mlir.lower_fun`: an operation written in lax, for each platform.
from jax.interpreters import ad, batching, mlir

__all__ = [
    "Equation",
    "Primitive",
    "abstract_result",
    "ad",
    "batching",
    "change_type",
    "default_matmul_precision",
    "devices_to_split_over",
    "equations",
    "equations_around",
    "evaluate",
    "is_exported",
    "jet",
    "lower_each",
    "lowering_of",
    "mapped_mesh_axis",
    "maps_over_devices",
    "mlir",
    "programs_are_cached",
    "set_for_all_threads",
    "set_xla_metadata",
    "type_of_sought",
    "types_lowered",
    "varying_axes",
]

#: Its options are unknown to type checkers in JAX 0.10, and known in 0.12.
_config: Any = jax.config


def default_matmul_precision() -> Any:
    """Read the value of `jax.default_matmul_precision`; None if it is not set.

    The name is documented as an option to set; that reading gives the innermost context is not.
    """
    return _config.jax_default_matmul_precision


def programs_are_cached() -> bool:
    """Whether JAX writes the programs that it compiles to a folder.

    Both names are documented as options to set; that they can be read is not.
    """
    return bool(_config.jax_enable_compilation_cache and _config.jax_compilation_cache_dir)


def devices_to_split_over(ctx: mlir.LoweringRuleContext) -> int:
    """Count the devices over which XLA itself will split the program being lowered.

    Within `jax.shard_map`, the program is split already. Only lowering rules can see this.
    """
    context = ctx.module_context.axis_context
    if hasattr(context, "num_devices"):
        return int(context.num_devices)
    shape = context.mesh.shape
    return prod(shape[name] for name in shape if name not in context.manual_axes)


def lowering_of(primitive: Primitive, platform: str | None) -> Any:
    """Find JAX's lowering rule of a primitive for a platform; None is for all platforms.

    JAX offers a way to set such a rule, and no way to read a rule. A public `get_lowering` would
    replace this. Without it, a rule would emit `stablehlo.convolution`
    through `jax.extend.mlir` itself, integers, complex numbers and symbolic pads included.
    """
    special = mlir._platform_specific_lowerings[platform] if platform else {}
    entry: Any = special.get(primitive) or mlir._lowerings[primitive]
    return entry.rule


def lower_each(ctx: mlir.LoweringRuleContext) -> None:
    """Call this lowering rule again for equal uses of its primitive in the same program.

    JAX calls it once for all of them. `register_lowering` has an argument that says otherwise, but
    for good, and programs for several platforms then fail to lower. Without this, reports would
    count equal convolutions once.
    """
    module: Any = ctx.module_context
    cache = getattr(module, "lowering_cache", None)
    if cache is None:
        return
    if not isinstance(cache, _Forgetful):
        cache = module.lowering_cache = _Forgetful(cache)
    cache.primitives.add(ctx.primitive)


class _Forgetful(dict[Any, Any]):
    """A cache of lowerings that keeps none of some primitives."""

    def __init__(self, known: dict[Any, Any]) -> None:
        super().__init__(known)
        self.primitives: set[Any] = set()

    def __setitem__(self, key: Any, value: Any) -> None:
        if key.primitive not in self.primitives:
            super().__setitem__(key, value)


def equations_around() -> Iterator[tuple[str, list[tuple[str, int]]]]:
    """The equations that this thread is lowering, the innermost first.

    Of each, the functions, transformations and `jax.named_scope`s around it, as JAX joins them, and
    the files and lines that wrote it, the innermost first. JAX tells a rule neither, so they are
    read from its frames; if it names them otherwise, reports name no lines and no scopes.
    """
    for frame, _ in traceback.walk_stack(None):
        if frame.f_code.co_name == "jaxpr_subcomp":
            known = frame.f_locals
            source: Any = getattr(known.get("eqn"), "source_info", None)
            if source is not None and "name_stack" in known:
                python = source.traceback.as_python_traceback() if source.traceback else None
                lines = [(f.f_code.co_filename, n) for f, n in traceback.walk_tb(python)]
                yield str(known["name_stack"] + source.name_stack), lines[::-1]


def abstract_result(primitive: Primitive, *operands: Any, **params: Any) -> Any:
    """Find the type of a primitive's result by its own rule: shape, sharding, varying axes."""
    result, _ = primitive.abstract_eval(*operands, **params)
    return result


def set_for_all_threads(context: Any, value: Any) -> None:
    """Set a `jax.make_user_context` for all threads that are not within the context.

    JAX documents the object as a context manager alone. Without this, a change would need
    `jax.clear_caches` after it.
    """
    context.set_global(value)


def is_exported(ctx: mlir.LoweringRuleContext) -> bool:
    """Whether `jax.export` lowers the program, which allows no custom calls."""
    return bool(ctx.module_context.lowering_parameters.for_export)


# JAX hands objects to the rules of a primitive whose attributes no documentation names.


def change_type(aval: Any, **changes: Any) -> Any:
    """Change the shape, dtype or sharding of a type, in an abstract evaluation.

    A public constructor of types with shardings and varying axes would replace this.
    """
    return aval.update(**changes)


def type_of_sought(operand: Any) -> Any:
    """Read the type of the operand whose cotangent a transpose rule must find."""
    return operand.aval


def maps_over_devices(axis_data: Any) -> bool:
    """Whether the axis of a vmap is known to be split, by its name or by its type."""
    return bool(axis_data.spmd_name or axis_data.explicit_mesh_axis)


def mapped_mesh_axis(axis_data: Any) -> Any:
    """Read the explicit mesh axes that the axis of a vmap is split over."""
    return axis_data.explicit_mesh_axis


def varying_axes(x: Any) -> frozenset[Any]:
    """Read the mesh axes that a value within shard_map varies over; `jax.lax.pcast` adds axes."""
    varying: frozenset[Any] = jax.typeof(x).manual_axis_type.varying
    return varying


def types_lowered(ctx: mlir.LoweringRuleContext) -> tuple[list[Any], list[Any]]:
    """Read the types of the operands and of the results that a lowering rule is called for."""
    return list(ctx.avals_in), list(ctx.avals_out)


class Equation(NamedTuple):
    """One step of a jaxpr."""

    primitive: Primitive
    operands: list[Any]  # types
    results: list[Any]
    params: dict[str, Any]


def equations(program: Any) -> Iterator[Equation]:
    """Yield all steps of a jaxpr in order, each before the steps of jaxprs in its parameters."""
    for eqn in getattr(program, "jaxpr", program).eqns:
        operands, results = ([v.aval for v in vs] for vs in (eqn.invars, eqn.outvars))
        yield Equation(eqn.primitive, operands, results, eqn.params)
        for param in eqn.params.values():
            for value in param if isinstance(param, tuple | list) else (param,):
                if hasattr(getattr(value, "jaxpr", value), "eqns"):
                    yield from equations(value)


def evaluate(program: Any, operands: Sequence[Any], apply: Callable[..., Any]) -> Any:
    """Evaluate a jaxpr of one result and without inner jaxprs, each step by `apply`.

    `apply` takes the primitive, its operands and its parameters, as `Primitive.bind` takes these.
    """
    jaxpr = program.jaxpr
    values = dict(zip(jaxpr.constvars, program.consts, strict=True))
    values.update(zip(jaxpr.invars, operands, strict=True))
    for eqn in jaxpr.eqns:
        inputs = [v.val if hasattr(v, "val") else values[v] for v in eqn.invars]
        outputs = apply(eqn.primitive, inputs, eqn.params)
        outputs = outputs if eqn.primitive.multiple_results else [outputs]
        values.update(zip(eqn.outvars, outputs, strict=True))
    (result,) = jaxpr.outvars
    return values[result]
