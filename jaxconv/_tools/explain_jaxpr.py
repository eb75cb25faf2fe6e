"""`explain_jaxpr`: the convolutions of a whole program, and the plan of each."""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import jax
from jax import lax

from jaxconv._base.contexts import INSTALLED
from jaxconv._base.geometry import Geometry, Slot
from jaxconv._base.jax_names import Equation, walk_equations
from jaxconv._base.target import Target
from jaxconv._contract.contractions import plan_in
from jaxconv._lax.from_lax import compute
from jaxconv._lax.install import Extent, to_install


@dataclass(frozen=True)
class Convolution:
    """A convolution of a program, or several equal convolutions; see `jaxconv.explain_jaxpr`."""

    #: "lax", which this library computes where it is installed, or "jaxconv"
    written_by: str
    #: the types of the operands, as lax or the contraction has them
    operands: tuple[str, str]
    #: the slot that the contraction fills, and the geometry; None if the convolution stays with lax
    result: Slot | None
    geometry: Geometry | None
    #: the plan on CPU, or why the convolution stays with lax
    plan: str
    #: how often the convolution stands in the program; the body of a loop stands there once
    count: int = 1

    def __str__(self) -> str:
        times = f" (x {self.count})" if self.count > 1 else ""
        to = f"to {self.result}" if self.result else "stays with lax"
        return f"{self.written_by}, {to}{times}: {', '.join(self.operands)}\n  {self.plan}"


@dataclass(frozen=True)
class Convolutions:
    """All convolutions of a program, in the order of the program."""

    listed: tuple[Convolution, ...]

    def __str__(self) -> str:
        return "\n".join(map(str, self.listed)) or "no convolutions"


def explain_jaxpr(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Convolutions:
    """List every convolution that a function needs, with the plan for it on CPU.

    The function is traced, and neither compiled nor run. The list has the convolutions inside jit,
    scan, cond, remat, shard_map and derivatives too: those of this library, and those of lax as
    they are computed where :func:`jaxconv.install` holds.

    Args:
      function: a model or a training step, say, jitted or not.
      args, kwargs: what it takes; arrays may be given as `jax.ShapeDtypeStruct`.

    Example:
      >>> import jax, jax.numpy as jnp, jaxconv
      >>> def loss(x, w):
      ...     return jax.lax.conv(x, w, (2, 2), "VALID").sum()
      >>> x, w = jnp.ones((8, 16, 32, 32)), jnp.ones((32, 16, 3, 3))
      >>> found = jaxconv.explain_jaxpr(jax.grad(loss, argnums=(0, 1)), x, w)
      >>> [convolution.result for convolution in found.listed]
      ['coarse', 'kernel', 'fine']
    """
    program = jax.make_jaxpr(function)(*args, **kwargs)
    found = Counter(filter(None, map(_convolution, walk_equations(program))))
    return Convolutions(tuple(replace(one, count=count) for one, count in found.items()))


def _convolution(equation: Equation) -> Convolution | None:
    """Describe the convolution in an equation, or None."""
    primitive, types, results, params = equation
    if primitive is lax.conv_general_dilated_p:
        first, second = (t.str_short() for t in types)
        extent = INSTALLED.value or Extent("cpu")
        found = to_install(equation, extent._replace(platform="cpu"))
        if isinstance(found, str):
            return Convolution("lax", (first, second), None, None, found)
        run = partial(compute, found, params, results[0].dtype)
        within = walk_equations(jax.make_jaxpr(run)(*types))
        (contraction,) = filter(None, map(_convolution, within))
        return replace(contraction, written_by="lax", operands=(first, second))
    if plan := plan_in(equation, Target("cpu")):
        first, second = (t.str_short() for t in types[:2])
        steps = Counter(plan.steps())
        told = "\n  ".join(
            f"{form}{f' (x {count})' if count > 1 else ''}: {why}"
            for (form, why), count in steps.items()
        )
        return Convolution(
            "jaxconv", (first, second), plan.problem.result, params["geometry"], told
        )
    return None
