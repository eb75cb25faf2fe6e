"""Arrays of a state dict."""

from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import Array

from jaxconv._base.messages import shown


def load(state_dict: Mapping[str, Any]) -> dict[str, Array]:
    """Copy a PyTorch state dict to JAX arrays, by the same names and in the same layout.

    Nothing is transposed, since the functions of :mod:`jaxconv.torch` take weights as PyTorch has
    them. The names stay those of PyTorch, "layer1.0.conv1.weight", in one flat dict: a name in the
    PyTorch model's code or file finds its array, and the dict goes back by `load_state_dict`. It is
    a pytree for `jax.jit` and `optax`; for `jax.grad`, leave out integers such as
    "bn1.num_batches_tracked".

    Args:
      state_dict: names and tensors, such as `model.state_dict()` or what `torch.load` or
        `safetensors.numpy.load_file` reads. Tensors are PyTorch's, on any device and of any type
        that JAX has, bfloat16 among them, or arrays of NumPy or JAX.

    Returns:
      A dict of copies: training the PyTorch model further does not change it. Types are kept,
      except that 64 bits become 32 unless JAX's x64 is enabled.

    Raises:
      TypeError: `state_dict` is no mapping, or an entry is not an array.

    Example:
      >>> import numpy as np, jaxconv
      >>> state = jaxconv.torch.load({"up.weight": np.ones((16, 8, 3, 3), np.float32)})
      >>> state["up.weight"].shape
      (16, 8, 3, 3)
    """
    if not isinstance(state_dict, Mapping):
        hint = " Call its method `state_dict`" * hasattr(state_dict, "state_dict")
        raise TypeError(
            f"load: `state_dict` must be a mapping of names to arrays; got "
            f"{type(state_dict).__name__}.{hint}"
        )
    return {name: _copy(name, value) for name, value in state_dict.items()}


def _copy(name: str, value: Any) -> Array:
    cause = None
    try:
        if hasattr(value, "detach"):  # NumPy has no bfloat16 of PyTorch's, but JAX reads it
            value = np.asarray(jax.dlpack.from_dlpack(value.detach().cpu().contiguous()))
        if hasattr(value, "__array__"):
            return jnp.array(value)
    except Exception as error:
        cause = error
    rule = "must be a dense tensor of PyTorch or an array"
    raise TypeError(f"load: entry {name!r} {rule}; got {shown(value)}") from cause
