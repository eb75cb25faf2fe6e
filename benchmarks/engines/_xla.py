"""How a JAX function becomes a timed call: jit, lower, compile."""

import contextlib
import hashlib
import time
from collections.abc import Callable
from types import ModuleType

import jax
import jax.numpy as jnp
import numpy as np

from benchmarks.arrays import from_layout, is_kernel, to_layout
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


def prepare(module: ModuleType, scope, job: dict, operands: list[np.ndarray]) -> dict[str, Timed]:
    """Compile what a job asks for; `scope` makes a context to do so in."""
    jax.config.update("jax_enable_x64", job["dtype"] == "f64")
    dtype = jnp.dtype(DTYPES[job["dtype"]])
    if job["kind"] == "layer":
        function, arrays, fetch = _layer(module, job, operands, dtype)
    else:
        function, arrays, fetch = _network(module, job, operands, dtype)
    jax.block_until_ready(arrays)
    with scope(function, arrays) if scope else contextlib.nullcontext():
        return {"": compiled(function, arrays, fetch)}


def program(module: ModuleType, scope, job: dict) -> str:
    """A digest of what XLA is given for a layer: it differs where the lowering chose otherwise."""
    shapes = Layer.from_json(job["layer"]).operand_shapes(job["op"])
    operands = [np.zeros(shape, np.float32) for shape in shapes]
    function, arrays, _ = _layer(module, job, operands, jnp.dtype(DTYPES[job["dtype"]]))
    with scope(function, arrays) if scope else contextlib.nullcontext():
        text = jax.jit(function).lower(*arrays).as_text()
    return hashlib.sha256(text.encode()).hexdigest()


#: What is computed of a network, by kind of job.
NETWORKS = {"step": _jax_networks.step, "inference": _jax_networks.forward}

#: A function, its operands, and how its results are fetched.
Job = tuple[Callable, list[jax.Array], Callable]


def _layer(module: ModuleType, job: dict, operands: list[np.ndarray], dtype) -> Job:
    layer, op = Layer.from_json(job["layer"]), job["op"]
    layout = job["layout"]
    *kernels, result_is_kernel = is_kernel(op)
    arrays = [
        jax.device_put(to_layout(x, layout, k).astype(dtype))
        for x, k in zip(operands, kernels, strict=True)
    ]
    function = module.contraction(layer, op, layout)

    def fetch(y: jax.Array) -> list[np.ndarray]:
        return [from_layout(_as_float(y), layout, result_is_kernel)]

    return function, arrays, fetch


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
        facts["xla_temp_bytes"] = memory.temp_size_in_bytes
    return Timed(lambda: executable(*arrays), jax.block_until_ready, fetch, facts)


def _as_float(y: jax.Array) -> np.ndarray:
    y = np.asarray(y)
    return y if y.dtype == np.float64 else y.astype(np.float32)


def letters(rank: int) -> str:
    """One letter per spatial axis, for dimension numbers."""
    return "DHW"[-rank:] if rank <= 3 else "ABCDEFGH"[:rank]
