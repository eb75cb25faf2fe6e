"""XLA's compilers for GPU and TPU, without a device; see `benchmarks/compilers.py`."""

import os

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from benchmarks import compilers, program_text

BF16 = jnp.bfloat16
TARGET = {"cuda": "h100", "tpu": "v5e"}


#: Whether no test of them may be skipped, as in CI.
REQUIRED = os.environ.get("JAXCONV_REQUIRE_COMPILERS") == "1"


def needs(platform):
    """Skip where a compiler is missing; a run that must not skip (CI) fails without it."""
    skipped = not REQUIRED and not compilers.is_here(platform)
    return pytest.mark.skipif(skipped, reason=f"XLA's compiler for {platform} is missing")


on_gpu, on_tpu = needs("cuda"), needs("tpu")
each_platform = pytest.mark.parametrize(
    "platform", [pytest.param("cuda", marks=on_gpu), pytest.param("tpu", marks=on_tpu)]
)


def compiled(platform, function, *types):
    """A program for devices that are not here."""
    return jax.jit(function).lower(*types).compile(compiler_options=compilers.OPTIONS[platform])


def facts(platform, function, *types):
    """The numbers of a program for one device, and its memory."""
    where = compilers.sharding(platform, TARGET[platform])
    here = [jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where) for x in types]
    program = compiled(platform, function, *here)
    found = program_text.facts(program.as_text())
    return found | {
        "text": program.as_text(),
        "temp_bytes": program.memory_analysis().temp_size_in_bytes,
    }


#: By how arrays are split over eight devices, the axis of each slot.
SPLITS = {
    "batch": {"fine": "N", "coarse": "N"},
    "rows": {"fine": "X", "coarse": "X"},
    "groups": {"fine": "C", "coarse": "C", "kernel": "O"},
    "channels of the coarse tensor": {"coarse": "C", "kernel": "O"},
    "channels of the fine tensor": {"fine": "C", "kernel": "I"},
}


def split_over_eight(platform, form, split, op, kind=AxisType.Auto, more=None):
    """A program of an operation of fine and kernel and its gradients, arrays split so."""
    found = compilers.devices(platform, TARGET[platform], compilers.EIGHT[platform])
    mesh = Mesh(np.array(found).reshape(8), ("d",), axis_types=(kind,))

    def placed(slot):
        letter = SPLITS[split].get(slot)
        spec = P() if letter is None else P(*[None] * form.axis(slot, letter), "d")
        return jax.ShapeDtypeStruct(form.shapes[slot], BF16, sharding=NamedSharding(mesh, spec))

    with jax.set_mesh(mesh):
        return compiled(platform, op, *map(placed, more or ("fine", "kernel", "coarse")))
