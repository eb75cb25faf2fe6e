"""Whether a lowering rule may depend on the steps around the step that it lowers.

JAX uses what a rule has made for all equal steps of a program. `skip_lowering_cache` keeps JAX from
that. A later JAX may have another cache, and values would then be wrong. So this file lowers a
program of two equal steps, of which a rule tells one by its surroundings, and reads the text.
"""

import logging
import threading
from contextlib import suppress
from functools import cache
from typing import Any

import jax
import numpy as np
from jax import Array, lax

from jaxconv._base.jax_names import (
    Primitive,
    find_maker,
    find_step_being_lowered,
    mlir,
    skip_lowering_cache,
)

LOG = logging.getLogger("jaxconv")

probe_p = Primitive("jaxconv_probe")
probe_p.def_abstract_eval(lambda x: x)


def _lower_probe(ctx: Any, x: Any) -> Any:
    """Lower a step to `neg` if another step makes the operand, and else to `sin`."""
    found = find_step_being_lowered(ctx, {})
    made = found and find_maker(*found, 0)
    if made:
        skip_lowering_cache(ctx)
    return mlir.lower_fun(lax.neg if made else lax.sin, multiple_results=False)(ctx, x)


mlir.register_lowering(probe_p, _lower_probe)


@cache
def cache_is_known() -> bool:
    """Whether `skip_lowering_cache` has JAX lower an equal step again; if not, this is logged."""
    first, last = _lower_apart(made_first=True), _lower_apart(made_first=False)
    known = "negate %0" in first and all(
        "sine %arg1" in text and "negate %arg1" not in text for text in (first, last)
    )
    if not known:
        LOG.warning(
            "install: convolutions of tensors with interior zeros are computed as they are "
            "written, since the cache of lowerings of JAX %s is not known",
            jax.__version__,
        )
    return known


def _lower_apart(*, made_first: bool) -> str:
    """Lower two equal steps, of a made operand and of an argument, to text.

    In a thread of its own, since a thread that asks whether the cache is known is lowering.
    """
    texts = [""]

    def jaxconv_probe(x: Array, y: Array) -> list[Array]:
        operands = [lax.exp(x), y]
        return [probe_p.bind(operand) for operand in operands[:: 1 if made_first else -1]]

    def lower() -> None:
        with suppress(Exception):
            x = jax.ShapeDtypeStruct((3,), np.float32)
            program = jax.jit(jaxconv_probe).trace(x, x)
            texts.append(program.lower(lowering_platforms=("cpu",)).as_text())

    thread = threading.Thread(target=lower)
    with suppress(RuntimeError):  # no threads while Python ends
        thread.start()
        thread.join()
    return texts[-1]
