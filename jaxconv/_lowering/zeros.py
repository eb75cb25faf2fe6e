"""Nothing is summed: no images, or no tap that reads anything but padding."""

from typing import Any

import jax.numpy as jnp

from jaxconv import _sharding
from jaxconv._geometry import Geometry, Slot
from jaxconv._lowering.plan import Emit, Form
from jaxconv._lowering.problem import Numerics


def _zeros(result: Slot) -> Emit:
    def emit(first: Any, second: Any, *, geometry: Geometry, numerics: Numerics) -> Any:
        shape = geometry.shape(result, first.shape, second.shape)
        return _sharding.vary_alike(jnp.zeros(shape, numerics.dtype), first, second)[0]

    return emit


FORM = Form(
    "zeros",
    {slot: _zeros(slot) for slot in ("coarse", "fine", "kernel")},
    cannot=lambda p: not p.empty,
    any_layout=True,
    isolated=(),
)
