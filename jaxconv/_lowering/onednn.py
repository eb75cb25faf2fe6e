"""oneDNN's forward convolution, which jaxlib's x86-64 Linux wheels carry, by XLA's custom call.

XLA:CPU sends no convolution there by itself, but a program that contains the call runs it. The name
of the call and the format of its configuration are private to XLA: they are known here for some
releases of jaxlib, and with every other one the portable forms take over. A public way to have
XLA:CPU use oneDNN for convolutions would replace this file.

oneDNN chooses an implementation by the sizes. Its vector code is exact and fast; its fallback, a
matrix product within parallel loops, may wait for itself forever in XLA's thread pool. So only
those sizes are taken for which it was found not to choose the fallback, on each processor feature
set from AVX2 on. A type that the processor cannot do would end the process: it is not asked for.
The tests count the implementations that run.
"""

import json
import math
import os
import platform
from dataclasses import replace
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxconv import _sharding
from jaxconv._dtypes import DType
from jaxconv._geometry import UNIT, Axis, Geometry
from jaxconv._lowering import window
from jaxconv._lowering.plan import Form
from jaxconv._lowering.problem import Numerics, Problem
from jaxconv._reshape import replace_axes, split_groups

#: The call, with XLA's oldest calling convention for it, in which the configuration is JSON.
TARGET, API_VERSION = "__onednn$convolution", 1

#: Releases of jaxlib whose call was tried with random sizes; 0.11.1 does not print what it runs.
KNOWN = ("0.10.2", "0.11.0", "0.11.2", "0.12.0", "0.12.0.1")

#: What the processor must have for float32, and for bfloat16.
FLOAT32, BFLOAT16 = {"avx2", "fma"}, {"avx512f", "avx512bw", "avx512vl", "avx512dq"}

#: What ONEDNN_MAX_CPU_ISA may be set to that holds oneDNN below these.
BELOW_AVX2, BELOW_AVX512 = {"SSE41", "AVX"}, {"SSE41", "AVX", "AVX2", "AVX2_VNNI", "AVX2_VNNI_2"}


# Whether the call may be used here.


@cache
def unavailable() -> str | None:
    """Why oneDNN is not used in this process, or None if it is."""
    if os.environ.get("JAXCONV_ONEDNN", "1") == "0":
        return "JAXCONV_ONEDNN=0 is set"
    if platform.system() != "Linux" or platform.machine() != "x86_64":
        return "jaxlib carries it for x86-64 Linux only"
    if version("jaxlib") not in KNOWN:
        return f"its call is known for jaxlib {', '.join(KNOWN)}, and this is {version('jaxlib')}"
    if not _features() >= FLOAT32 or _held_to() in BELOW_AVX2:
        return "the processor, or ONEDNN_MAX_CPU_ISA, has no AVX2"
    return None


@cache
def takes(dtype: DType) -> bool:
    """Whether it computes with such numbers as they are; other 16-bit numbers are widened."""
    if dtype == jnp.bfloat16:
        return _features() >= BFLOAT16 and _held_to() not in BELOW_AVX512
    return bool(dtype == jnp.float32)


@cache
def processor() -> str:
    """What a program that calls oneDNN was compiled for: it must not be run with less."""
    return "avx512" if takes(jnp.dtype(jnp.bfloat16)) else "avx2"


@cache
def _features() -> frozenset[str]:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return frozenset()
    return frozenset(next((x for x in lines if x.startswith("flags")), "").split())


def _held_to() -> str:
    return os.environ.get("ONEDNN_MAX_CPU_ISA", "").upper()


# Sizes that are safe.

#: No size may have more digits in oneDNN's own arithmetic.
MOST_ELEMENTS = 1 << 31


def _cannot(problem: Problem) -> bool:
    if not problem.onednn or not problem.counted or problem.bits == 64 or problem.rank > 3:
        return True
    shapes = (problem.shape(slot) for slot in ("fine", "kernel", "coarse"))
    if problem.empty or any(4 * math.prod(shape) >= MOST_ELEMENTS for shape in shapes):
        return True
    if problem.result == "kernel":
        return _blocks(problem) is None
    # 3-D depthwise would take the fallback.
    return problem.depthwise and problem.rank > 2


# To coarse.


def to_coarse(
    fine: Any, kernel: Any, *, geometry: Geometry, numerics: Numerics, parts: Any = ()
) -> Any:
    """One call, in which the padding is, unless that would make oneDNN choose its fallback."""
    depthwise = kernel.shape[-2] == 1 and geometry.groups == kernel.shape[-1] > 1
    if depthwise and geometry.rank == 1:
        plane = replace(geometry, axes=(UNIT, *geometry.axes)).canonical()
        fine, kernel = lax.expand_dims(fine, (1,)), lax.expand_dims(kernel, (0,))
        out = to_coarse(fine, kernel, geometry=plane, numerics=numerics)
        return lax.squeeze(out, (1,))
    axes = geometry.axes
    deep = any(max(a.pad_low, a.pad_high) >= a.extent for a in axes)
    flat = any(a.kernel == 1 for a in axes)
    if deep or (depthwise and (flat or any(a.dilation > 1 for a in axes))):
        fine, geometry = window.padded(fine, geometry), window.of_padded(geometry)
    pads = [(a.pad_low, max(a.pad_high, 0)) for a in geometry.axes]
    return _call(fine, kernel, geometry.axes, pads, geometry.groups, numerics.dtype)


def _call(
    data: Any,
    kernel: Any,
    axes: tuple[Axis, ...],
    pads: list[tuple[int, int]],
    groups: int,
    dtype: DType,
) -> Any:
    """(N, X, (g, i)) by (X, i, (g, o)) to (N, X, (g, o))."""
    # oneDNN 3.7 to 3.12 sum padded bfloat16 wrongly of one channel to several.
    single = kernel.shape[-2] == 1 and kernel.shape[-1] > groups
    if not takes(data.dtype) or (single and data.dtype == jnp.bfloat16):
        data, kernel = (x.astype(jnp.float32) for x in (data, kernel))
    rank, spatial = data.ndim - 2, list(range(1, data.ndim - 1))
    tensor = {"batch_dim": 0, "feature_dim": rank + 1, "spatial_dims": spatial}
    weights = {
        "input_feature_dim": rank,
        "output_feature_dim": rank + 1,
        "spatial_dims": list(range(rank)),
    }
    window_of = {
        "size": [a.kernel for a in axes],
        "pad_left": [low for low, _ in pads],
        "pad_right": [high for _, high in pads],
        "strides": [a.stride for a in axes],
        "window_dilations": [a.dilation for a in axes],
    }
    config = {
        "dims": rank + 2,
        "input": {"dims": rank + 2, "data": tensor},
        "kernel": {"dims": rank + 2, "filter": weights},
        "output": {"dims": rank + 2, "data": tensor},
        "window": window_of,
        "feature_groups": groups,
    }
    # bfloat16 in, bfloat16 or float32 out, rounded once; and float32 in, float32 out.
    out_dtype = dtype if data.dtype == jnp.bfloat16 == dtype else jnp.dtype(jnp.float32)
    shape = (data.shape[0], *(a.coarse for a in axes), kernel.shape[-1])
    result = jax.ShapeDtypeStruct(shape, out_dtype)
    call = jax.ffi.ffi_call(
        TARGET,
        result,
        custom_call_api_version=API_VERSION,
        legacy_backend_config=json.dumps({"onednn_conv_config": config}),
    )
    # The call says nothing of mesh axes that its result varies over.
    return _sharding.vary_alike(call(data, kernel), data, kernel)[0]


# To kernel: a forward convolution too, whose spatial axes are rows and fine channels.
#
# dW[t, s, i, o] is a sum over images n, rows y and columns x of fine[n, y + t, x + s, i] times
# coarse[n, y, x, o]. With (n, x) as channels, the coarse tensor as a kernel of `y` rows slides over
# the rows of the fine tensor and leaves the taps t. The taps s are a batch of shifted copies, and
# fine channels a second spatial axis, along which nothing slides. All axes but the last are rows.

#: Bytes of the coarse tensor that are taken at a time: the call reads them once for each result
#: row, so that they should stay in a core's second cache.
BLOCK = 900_000

#: Fewer channels of a group, or coarse ones of one group, leave oneDNN slivers of work.
FEWEST_IN_GROUPS, FEWEST_COARSE = 12, 8

#: Pixels along a signal for each tap, at least, that are one run of it.
RUN = 4


def to_kernel(
    fine: Any, coarse: Any, *, geometry: Geometry, numerics: Numerics, parts: Any = ()
) -> Any:
    """The sum over blocks of images."""
    problem = Problem.of("kernel", fine, coarse, geometry, onednn=True)
    fine, axes = window.padded(fine, geometry), window.of_padded(geometry).axes
    if geometry.rank == 1:
        fine, coarse, axes = _in_runs(fine, coarse, axes[0], problem)
    images = _blocks(problem)
    assert images is not None
    groups = geometry.groups

    def block(fine: Any, coarse: Any) -> Any:
        return _block(fine, coarse, axes, groups)

    count = fine.shape[0] // images
    if count == 1:
        out = block(fine, coarse)
    else:

        def step(n: Any, out: Any) -> Any:
            some = (lax.dynamic_slice_in_dim(x, n * images, images, 0) for x in (fine, coarse))
            return out + block(*some)

        shape = jax.eval_shape(block, fine[:images], coarse[:images])
        out, *_ = _sharding.vary_alike(jnp.zeros(shape.shape, shape.dtype), fine, coarse)
        out = lax.fori_loop(0, count, step, out)
    out = jnp.moveaxis(out, 0, -3)  # taps of columns behind those of rows
    return out.reshape(*(a.kernel for a in geometry.axes), *out.shape[-2:])


def _block(fine: Any, coarse: Any, axes: tuple[Axis, ...], groups: int) -> Any:
    """(N, Y, X, (g, i)), (N, y, x, (g, o)) to (s, t, i, (g, o))."""
    *rows, last = axes
    rank = len(rows)
    # (Y, i, r, g, N, X): transposed once, with the residues of columns by the stride apart, so that
    # what a tap s reads is a slice of neighbours.
    width = -(-last.fine // last.stride) * last.stride
    config = [(0, 0, 0)] * fine.ndim
    config[rank + 1] = (0, width - last.fine, 0)
    fine = lax.pad(fine, jnp.zeros((), fine.dtype), config)
    fine = replace_axes(fine, rank + 1, 1, (width // last.stride, last.stride))
    fine = split_groups(fine, groups)  # N, Y, X, r, g, i
    order = (*range(1, rank + 1), rank + 4, rank + 2, rank + 3, 0, rank + 1)
    fine = lax.optimization_barrier(lax.transpose(fine, order))
    copies = []
    for tap in range(last.kernel):
        start, residue = divmod(last.dilation * tap, last.stride)
        columns = lax.index_in_dim(fine, residue, rank + 1, keepdims=False)
        columns = lax.slice_in_dim(columns, start, start + last.coarse, axis=rank + 3)
        copies.append(replace_axes(columns, rank + 1, 3, (math.prod(columns.shape[-3:]),)))
    data = jnp.stack(copies)  # (Y, i, (g, N, x)) for each tap
    # (y, 1, (N, x), (g, o))
    kernel = lax.transpose(coarse, (*range(1, rank + 1), 0, rank + 1, rank + 2))
    kernel = replace_axes(kernel, rank, 2, (1, kernel.shape[rank] * kernel.shape[rank + 1]))
    channels = data.shape[rank + 1]
    slid = [
        Axis(data.shape[1 + n], a.coarse, a.kernel, a.dilation, a.stride, 0)
        for n, a in enumerate(rows)
    ]
    along = Axis(channels, 1, channels, 1, 1, 0)
    no_pads = [(0, 0)] * (rank + 1)
    return _call(data, kernel, (*slid, along), no_pads, groups, jnp.dtype(jnp.float32))


def _in_runs(
    fine: Any, coarse: Any, axis: Axis, problem: Problem
) -> tuple[Any, Any, tuple[Axis, ...]]:
    """A signal as several short ones, each with what its windows read, beside one another.

    They are images of rows of one pixel: the more images, the more channels the call sums over.
    """
    count = _runs(problem)
    length = axis.coarse // count
    run = replace(axis, coarse=length)
    run = replace(run, fine=run.span - 1 + run.extent)
    reads = [
        lax.slice_in_dim(fine, start, start + run.fine, axis=1)
        for start in range(0, count * length * axis.stride, length * axis.stride)
    ]
    fine = jnp.stack(reads, 1)
    fine = replace_axes(fine, 0, 2, (fine.shape[0] * count,))
    coarse = replace_axes(coarse, 1, 1, (count, length))
    coarse = replace_axes(coarse, 0, 2, (coarse.shape[0] * count,))
    return lax.expand_dims(fine, (2,)), lax.expand_dims(coarse, (2,)), (run, UNIT)


def _runs(problem: Problem) -> int:
    """Into how many runs a signal is cut: equal ones, several times as long as the kernel."""
    (axis,) = problem.geometry.axes
    shortest = RUN * -(-axis.extent // axis.stride)
    most = max(min(axis.coarse // shortest, 64), 1)
    return next(n for n in range(most, 0, -1) if axis.coarse % n == 0)


def _blocks(problem: Problem) -> int | None:
    """How many images a call takes; None where no blocks are good."""
    if min(problem.fine, problem.coarse) < FEWEST_IN_GROUPS and not problem.dense:
        return None
    if problem.coarse < FEWEST_COARSE or problem.bits == 16:  # dots in 16 bits are faster
        return None
    images = problem.batch or 1
    size = 4 * problem.positions * problem.geometry.groups * problem.coarse
    if problem.rank == 1:
        runs = _runs(problem)
        images, size = images * runs, size // runs
    most = max(BLOCK // max(size, 1), 1)
    return next(n for n in range(min(most, images), 0, -1) if images % n == 0)


FORM = Form(
    "onednn", {"coarse": to_coarse, "kernel": to_kernel}, cannot=_cannot, isolated=("kernel",)
)
