"""`resolve`: the sizes and pads of an operation, without computing it; what a call is given."""

import inspect
from collections.abc import Callable
from functools import wraps
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxconv._base.messages import Refusal, either, shown
from jaxconv._base.typing import Shape
from jaxconv._contract.contractions import SLOTS
from jaxconv._ops import conv_transpose, convolution
from jaxconv._rules import attributes as parse
from jaxconv._rules.op import OPS
from jaxconv._rules.resolve import Resolved, resolve_sizes

FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: vars(convolution).get(name) or vars(conv_transpose)[name] for name in OPS
}


def resolve(op: str | Callable[..., Any], /, *args: Any, **attributes: Any) -> Resolved:
    """The pads and sizes that an operation would use, without computing anything.

    Args:
      op: one of the six operations, or its name.
      args, attributes: what the operation takes. Its arrays may be given as shapes. A bias and
        the other arguments that no size depends on are ignored.

    Raises:
      TypeError, ValueError: what the operation itself would raise about shapes and attributes.

    Example:
      >>> import jaxconv
      >>> sizes = jaxconv.resolve(
      ...     jaxconv.convolution, (8, 32, 32, 3), (4, 4, 3, 16), strides=2, auto_pad="same_lower"
      ... )
      >>> sizes.dst_shape, sizes.pads_begin, sizes.pads_end
      ((8, 16, 16, 16), (1, 1), (1, 1))
    """
    name, given = arguments("resolve", op, *args, **attributes)
    record = OPS[name]
    tensors = {tensor: given.pop(tensor) for tensor in record.inputs}
    first, second = (shape(name, tensor, value) for tensor, value in tensors.items())
    result_shape = given.pop(record.shape_argument) if record.shape_argument else None
    try:
        return resolve_sizes(record, first, second, result_shape, **given)
    except ValueError as error:
        if not any(map(_meant_as_shape, tensors.values())):
            raise
        message: Refusal = error.args[0]
        remedy = "An array stands for itself: pass a shape as a tuple"
        formats = ". ".join(filter(None, (message.parts["formats"], remedy)))
        raise ValueError(message.with_parts(formats=formats)) from None


def arguments(caller: str, op: Any, /, *args: Any, **attributes: Any) -> tuple[str, dict[str, Any]]:
    """The name of an operation, and all its arguments by name, defaults included.

    `caller` is the function that takes the operation, for errors.
    """
    name = next((n for n, function in FUNCTIONS.items() if function is op), op)
    if not isinstance(name, str) or name not in OPS:
        raise ValueError(
            f"{caller}: `op` must be {either(OPS)}, as a function or its name; got {shown(op)}"
        )
    try:
        bound = inspect.signature(FUNCTIONS[name]).bind(*args, **attributes)
    except TypeError as error:
        raise TypeError(f"{name}: {error}") from None
    bound.apply_defaults()
    return name, dict(bound.arguments)


def shape(op: str, name: str, value: object) -> Shape:
    """The shape of a tensor, from an array or the shape itself."""
    try:
        found = getattr(value, "shape", value)
    except Exception as error:
        raise TypeError(f"{op}: `{name}` has no shape to read: {shown(value)}") from error
    if not isinstance(found, tuple | list):
        raise TypeError(f"{op}: `{name}` must be an array or its shape; got {shown(value)}")
    return parse.shape(op, name, found, len(found), "or an array")


def trace(function: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Trace a function of the arrays among the arguments alone, under its own name."""
    leaves, structure = jax.tree.flatten((args, kwargs))
    arrays = {place: leaf for place, leaf in enumerate(leaves) if _is_array(leaf)}

    @wraps(function)
    def call(*traced: Any) -> Any:
        given = dict(enumerate(leaves)) | dict(zip(arrays, traced, strict=True))
        args, kwargs = jax.tree.unflatten(structure, given.values())
        return function(*args, **kwargs)

    return jax.jit(call).trace(*arrays.values())


def _is_array(x: Any) -> bool:
    """Whether `x` is an array; NumPy ints, or a vector of them, are a shape or an attribute."""
    if isinstance(x, np.ndarray | np.generic) and np.issubdtype(x.dtype, np.integer):
        return x.ndim > 1
    return not isinstance(x, type) and hasattr(x, "shape") and hasattr(x, "dtype")


def _meant_as_shape(value: Any) -> bool:
    """Whether it is a vector of ints, as long as the shape of a tensor."""
    if not hasattr(value, "dtype") or not jnp.issubdtype(value.dtype, jnp.integer):
        return False
    return len(value.shape) == 1 and value.shape[0] > 2


def contractions_saveable(primitive: Any, *_: Any, **__: Any) -> bool:
    """A policy for `jax.checkpoint`: save every contraction, recompute the rest.

    `primitive` is the operation to save or not. The policy stands beside
    `jax.checkpoint_policies.dots_saveable`, which knows only JAX's own products: of matrices, and
    the convolutions of `jax.lax`, which stay lax's under `jaxconv.install`.
    `jax.checkpoint_policies.save_from_both_policies` joins the two.

    Example:
      >>> from functools import partial
      >>> import jax, jax.numpy as jnp, jaxconv
      >>> @partial(jax.checkpoint, policy=jaxconv.contractions_saveable)
      ... def layer(src, weights):
      ...     return jnp.tanh(jaxconv.convolution(src, weights)).sum()
      >>> src, weights = jnp.ones((2, 5, 5, 3)), jnp.ones((3, 3, 3, 4))
      >>> jax.grad(layer, argnums=1)(src, weights).shape
      (3, 3, 3, 4)
    """
    return primitive in SLOTS
