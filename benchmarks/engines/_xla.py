"""How a JAX function becomes a timed call: jit, lower, compile."""

import contextlib
import time
from collections.abc import Callable
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.arrays import enter, leave
from benchmarks.engines import Timed, _jax_networks
from benchmarks.layer import DTYPES, Layer


def versions(packages: list[ModuleType]) -> dict[str, str]:
    """What ran: JAX, the engine's own packages, the device."""
    device = jax.devices()[0]
    own = {package.__name__: getattr(package, "__version__", "?") for package in packages}
    return own | {
        "jax": jax.__version__,
        "platform": device.platform,
        "device": device.device_kind,
        "devices": str(jax.device_count()),
    }


def prepare(
    module: ModuleType, scope, apart: bool, job: dict, operands: list[np.ndarray]
) -> dict[str, Timed]:
    """Compile what a job asks for; `scope` makes a context to do so in.

    Of an ensemble, members are called one by one if they are to be `apart`, else by `vmap`.
    """
    jax.config.update("jax_enable_x64", job["dtype"] == "f64")
    dtype = jnp.dtype(DTYPES[job["dtype"]])
    if job["kind"] == "layer":
        function, arrays, fetch = _layer(module, apart, job, operands, dtype)
    else:
        function, arrays, fetch = _network(module, job, operands, dtype)
    jax.block_until_ready(arrays)
    with scope(function, arrays) if scope else contextlib.nullcontext():
        return {"": compiled(function, arrays, fetch)}


#: What is computed of a network, by kind of job.
NETWORKS = {"step": _jax_networks.step, "inference": _jax_networks.forward}

#: A function, its operands, and how its results are fetched.
Job = tuple[Callable, list[jax.Array], Callable]


def _layer(module: ModuleType, apart: bool, job: dict, operands: list[np.ndarray], dtype) -> Job:
    layer, op, layout = Layer.from_json(job["layer"]), job["op"], job["layout"]
    arrays = [jax.device_put(x.astype(dtype)) for x in enter(layer, op, layout, operands)]
    function = one = module.contraction(layer, op, layout)
    if layer.members > 1 and apart:

        def function(*all_of: jax.Array) -> jax.Array:
            return jnp.stack([one(*own) for own in zip(*all_of, strict=True)])
    elif layer.members > 1:
        function = jax.vmap(one)
    return function, arrays, lambda y: [leave(layer, op, layout, _as_float(y))]


def _network(module: ModuleType, job: dict, operands: list[np.ndarray], dtype) -> Job:
    arrays = [jax.device_put(x.astype(dtype)) for x in operands]
    function = NETWORKS[job["kind"]](job["network"], module)
    return function, arrays, lambda outputs: [_as_float(x) for x in outputs]


def compiled(function, arrays: list[jax.Array], fetch) -> Timed:
    """The function of `arrays`, compiled."""
    start = time.perf_counter()
    executable = jax.jit(function).lower(*arrays).compile()
    facts = {"compile_s": time.perf_counter() - start}
    memory = executable.memory_analysis()
    if memory is not None:
        facts["temp_bytes"] = memory.temp_size_in_bytes
    return Timed(lambda: executable(*arrays), jax.block_until_ready, fetch, facts)


def _as_float(y: jax.Array) -> np.ndarray:
    y = np.asarray(y)
    return y if y.dtype == np.float64 else y.astype(np.float32)


def letters(rank: int) -> str:
    """One letter per spatial axis, for dimension numbers."""
    return "DHW"[-rank:] if rank <= 3 else "ABCDEFGH"[:rank]
