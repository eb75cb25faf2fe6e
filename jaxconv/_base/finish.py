"""What follows a sum: a bias, a residual and an activation, then the one rounding.

    dst = activation(sums + bias + residual)

The derivative of an activation follows from dst where dst says enough, as for ReLU, and otherwise
from the sum. In both cases it is one factor, in the type of dst; no other tensor is kept for it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxconv._base import meshes
from jaxconv._base.dtypes import ACCUMULATION
from jaxconv._base.typing import DType


@dataclass(frozen=True)
class Activation:
    """An activation by its name in `FUNCTIONS`; alpha is 0 where the function has none."""

    name: str
    alpha: float = 0.0

    @property
    def needs_sums(self) -> bool:
        """Whether the derivative needs the sums, since dst does not say enough."""
        return FUNCTIONS[self.name].factor is None


class Function(NamedTuple):
    """How an activation is computed from a sum and alpha, and how its derivative is found."""

    compute: Callable[[Array, float], Array]
    #: the derivative as a factor, from dst and alpha; None if dst does not say enough
    factor: Callable[[Array, float], Array] | None = None


def _elu(x: Array, alpha: float) -> Array:
    # Neither branch of a where may overflow, or the derivative is NaN.
    return jnp.where(x > 0, x, alpha * jnp.expm1(jnp.minimum(x, 0)))


#: A factor of bools selects, since zero times infinity is NaN.
FUNCTIONS = {
    "relu": Function(lambda x, _: jnp.maximum(x, 0), lambda dst, _: dst > 0),
    "relu6": Function(lambda x, _: jnp.clip(x, 0, 6), lambda dst, _: (dst > 0) & (dst < 6)),
    "leaky_relu": Function(
        lambda x, alpha: jnp.where(x > 0, x, alpha * x),
        lambda dst, alpha: jnp.where(dst > 0, jnp.ones_like(dst), alpha),
    ),
    "elu": Function(_elu, lambda dst, alpha: jnp.where(dst > 0, jnp.ones_like(dst), dst + alpha)),
    "tanh": Function(lambda x, _: jnp.tanh(x), lambda dst, _: (1 - dst) * (1 + dst)),
    "sigmoid": Function(lambda x, _: lax.logistic(x), lambda dst, _: dst * (1 - dst)),
    "gelu_erf": Function(lambda x, _: jax.nn.gelu(x, approximate=False)),
    "gelu_tanh": Function(lambda x, _: jax.nn.gelu(x, approximate=True)),
    "silu": Function(lambda x, _: x * lax.logistic(x)),
}

#: Functions that round nothing, so that they may as well follow a rounding.
SELECTING = ("relu", "relu6")

#: The functions with an alpha, and its value where none is given; None where it must be given,
#: since libraries differ: 0.01, 0.2 and 0.3 are in use for a leaky ReLU.
ALPHAS = {"leaky_relu": None, "elu": 1.0}


@dataclass(frozen=True)
class Finish:
    """What follows a sum, but for the arrays: whether there is a bias, and a residual."""

    bias: bool
    residual: bool
    activation: Activation | None

    def __str__(self) -> str:
        """In words, the parts in their order."""
        parts = ["bias"] * self.bias + ["residual"] * self.residual
        if self.activation:
            parts.append(self.activation.name)
        return ", ".join(parts)

    def apply(self, sums: Array, extras: Sequence[Array], channel: int, dtype: DType) -> Array:
        """Add a bias along the axis `channel`, and a residual; activate, and round to `dtype`."""
        extras = [lax.convert_element_type(x, sums.dtype) for x in extras]
        if self.bias:
            bias, *extras = extras
            bias = meshes.shard_alike(bias, sums, channel)
            bias = lax.expand_dims(bias, [axis for axis in range(sums.ndim) if axis != channel])
            sums = jnp.add(sums, bias)
        if self.residual:
            [residual] = extras
            sums = jnp.add(sums, meshes.shard_alike(residual, sums))
        if self.activation is None:
            return lax.convert_element_type(sums, dtype)
        return activate(sums, self.activation, dtype)


NOTHING = Finish(bias=False, residual=False, activation=None)


@partial(jax.custom_jvp, nondiff_argnums=(1, 2))
def activate(sums: Array, activation: Activation, dtype: DType) -> Array:
    """Activate sums, and round to `dtype`."""
    if activation.name not in SELECTING:
        sums = lax.convert_element_type(sums, ACCUMULATION[sums.dtype])
    compute = FUNCTIONS[activation.name].compute
    return lax.convert_element_type(compute(sums, activation.alpha), dtype)


@activate.defjvp
def _differentiate(
    activation: Activation, dtype: DType, primals: tuple[Array], tangents: tuple[Array]
) -> tuple[Array, Array]:
    [sums], [tangent] = primals, tangents
    out = activate(sums, activation, dtype)
    if activation.needs_sums:
        compute, alpha = FUNCTIONS[activation.name].compute, activation.alpha
        _, factor = jax.jvp(lambda x: compute(x, alpha), (sums,), (jnp.ones_like(sums),))
        return out, _scale(tangent, factor, dtype)
    return out, differentiate_by_result(activation, out, tangent)


def differentiate_by_result(activation: Activation, out: Array, tangent: Array) -> Array:
    """Find the tangent of an activation's result, rounded, from the tangent of the sums."""
    factor = FUNCTIONS[activation.name].factor
    assert factor is not None
    wide = lax.convert_element_type(out, tangent.dtype)
    return _scale(tangent, factor(wide, activation.alpha), out.dtype)


def _scale(tangent: Array, factor: Array, dtype: DType) -> Array:
    """Multiply in `dtype`: JAX keeps a factor in the type in which it is multiplied."""
    change = lax.convert_element_type(tangent, dtype)
    if factor.dtype == bool:
        return lax.select(factor, change, jnp.zeros_like(change))
    return lax.convert_element_type(factor, dtype) * change
