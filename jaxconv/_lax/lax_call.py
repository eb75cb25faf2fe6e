"""A call of a convolution of `jax.lax`: lax's own steps, with a contraction for its convolution.

lax's function is traced on the shapes alone. So this JAX's checks, padding rules, defaults and
errors hold. The traced program is then evaluated on the operands.
"""

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, field
from functools import cache, partial
from typing import Any

import jax
import numpy as np
from jax import Array, lax
from jax.sharding import NamedSharding

from jaxconv._base import meshes
from jaxconv._base.jax_names import Equation, Primitive, evaluate_equations, walk_equations
from jaxconv._base.reshape import pad
from jaxconv._lax.from_lax import BOTH_STRIDES, Numbers, as_contraction, compute
from jaxconv._rules import arguments as _arguments

#: The arguments that are tensors.
OPERANDS = ("lhs", "rhs")


def compute_as(function: Callable[..., Array], /, **given: Any) -> Array:
    """Compute a function of `jax.lax` of all its arguments, by name."""
    name = function.__name__
    tensors = {n: x for n, x in given.items() if n in OPERANDS}
    if not all(hasattr(x, "shape") for x in tensors.values()):
        return function(**given)  # raises an error of lax's
    operands = [_arguments.array(name, n, x) for n, x in tensors.items()]
    arguments = {
        # An iterator, a zip say, can be read only once.
        n: tuple(value) if isinstance(value, Iterator) else value
        for n, value in given.items()
        if n not in OPERANDS
    }
    try:
        static = _StaticArguments(function, arguments, _key(tuple(arguments.values())))
        hash(static)
    except TypeError:  # no key of a jit, such as a traced stride
        return function(*operands, **arguments)
    out: Array = _jit_function(function)(static, *operands)
    return out


@dataclass(frozen=True)
class _StaticArguments:
    """The static arguments of a jitted function of lax, which compiles once for each."""

    function: Callable[..., Array]
    arguments: dict[str, Any] = field(compare=False)  # as given: so lax's errors show them
    key: Hashable


def _key(value: Any) -> Hashable:
    """Make a key that is equal for equal values of equal types: 1, 1.0 and True differ."""
    if isinstance(value, tuple | list | np.ndarray):
        return type(value), tuple(map(_key, value))
    return type(value), value


@cache
def _jit_function(function: Callable[..., Array]) -> Callable[..., Array]:
    """Jit the computation under the name of lax's function, which jaxprs and profiles show."""

    def computation(static: _StaticArguments, *operands: Array) -> Array:
        return _compute(static, *operands)

    computation.__name__ = computation.__qualname__ = function.__name__
    return jax.jit(computation, static_argnums=0)


def _compute(static: _StaticArguments, *operands: Array) -> Array:
    """Compute a function of lax, with a contraction for its convolution where there is one."""
    name, arguments = static.function.__name__, dict(static.arguments)
    sharding = arguments.pop("out_sharding", None)
    # The types say nothing of meshes: lax has no sharding for a sum over a split axis.
    types = (
        jax.ShapeDtypeStruct(x.shape, x.dtype, weak_type=jax.typeof(x).weak_type) for x in operands
    )
    program = jax.make_jaxpr(partial(static.function, **arguments))(*types)
    found = [e for e in walk_equations(program) if e.primitive is lax.conv_general_dilated_p]
    contraction = _find_contraction(found[0]) if len(found) == 1 else None
    explicit = any(meshes.explicit(jax.typeof(x)) for x in operands)
    if contraction is None or (sharding is not None and not explicit):
        return static.function(*operands, **static.arguments)
    sharding = _arguments.parse_out_sharding(name, sharding, found[0].results[0].shape)
    _arguments.check_meshes(name, sharding, dict(zip(OPERANDS, operands, strict=False)))

    def apply(primitive: Primitive, operands: list[Any], params: dict[str, Any]) -> Any:
        if primitive is lax.conv_general_dilated_p:
            return contraction(*operands, sharding=sharding)
        return primitive.bind(*meshes.vary_alike(*operands), **params)

    out: Array = evaluate_equations(program, operands, apply)
    return out


def _find_contraction(convolution: Equation) -> Callable[..., Array] | None:
    """Make a function that computes lax's convolution by a contraction, if there is any."""
    _, (lhs, rhs), (result,), params = convolution
    if result.weak_type:  # the library's result is never weak
        return None
    dilate: Callable[[Array], Array] | None = None
    found = as_contraction((lhs, rhs), result, **params)
    if found == BOTH_STRIDES:
        dilate = partial(_dilate, params["dimension_numbers"], params["lhs_dilation"])
        params = params | {"lhs_dilation": (1,) * len(params["lhs_dilation"])}
        found = as_contraction((jax.eval_shape(dilate, lhs), rhs), result, **params)
    if isinstance(found, str):
        return None

    def run(lhs: Array, rhs: Array, *, sharding: NamedSharding | None) -> Array:
        lhs = lhs if dilate is None else dilate(lhs)
        return compute(found, params, result.dtype, lhs, rhs, sharding=sharding)

    return run


def _dilate(numbers: Numbers, dilation: tuple[int, ...], lhs: Array) -> Array:
    """Write out the dilation of `lhs` in zeros."""
    spatial = zip(numbers.lhs_spec[2:], dilation, strict=True)
    return pad(lhs, {axis: (0, 0, step - 1) for axis, step in spatial})
