"""oneDNN's forward convolution, which jaxlib's x86-64 Linux wheels carry, by XLA's custom call.

XLA:CPU sends no convolution to oneDNN by itself, but it runs a program that contains the call. The
name of the call and the format of its configuration are private to XLA. `onednn_here.py` lists the
releases of jaxlib whose call was tested; with other releases, the portable forms take over. A
public way to have XLA:CPU use oneDNN for convolutions would replace both files.

oneDNN chooses an implementation by the sizes. Its vector code is exact and fast. Its fallback, a
matrix product within parallel loops, may wait for itself forever in XLA's thread pool. So the call
serves only sizes for which tests, which count the implementations that run, found no fallback on
any set of processor features from AVX2 on. Types that the processor lacks are widened first, since
such a type would end the process.
"""

import json
import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxconv._base import meshes
from jaxconv._base.finish import SELECTING
from jaxconv._base.geometry import UNIT, Geometry, KernelLayout
from jaxconv._base.typing import DType
from jaxconv._lowering.forms import window
from jaxconv._lowering.onednn_here import has_amx, multiplies
from jaxconv._lowering.problem import Call, Form, Problem

#: The call in XLA's oldest calling convention for it, with its configuration in JSON.
TARGET, API_VERSION = "__onednn$convolution", 1


# Sizes that are safe.

#: Elements of a tensor whose bytes XLA or oneDNN would count in 31 bits.
TOO_MANY_ELEMENTS = 1 << 29


def may_call(problem: Problem) -> bool:
    """Whether a program may call oneDNN, and tests covered the sizes of a contraction."""
    if not (problem.onednn and problem.counted) or problem.bits == 64 or problem.rank > 3:
        return False
    shapes = (problem.shape(slot) for slot in ("fine", "kernel", "coarse"))
    if any(math.prod(shape) >= TOO_MANY_ELEMENTS for shape in shapes):
        return False
    if problem.result == "coarse" and (problem.taps > MAX_TESTED_TAPS or _is_one_sum(problem)):
        return False
    # Of a dilated one, oneDNN takes the fallback; of others, the code of 2-D.
    return not (problem.depthwise and problem.rank > 2 and problem.dilated)


def _is_one_sum(problem: Problem) -> bool:
    """Whether each image is a single window with one result, which a dot computes, and faster.

    In float32, oneDNN 3.11.1 to 3.13.1 multiply many taps by weights in a wrong order of the axes.
    """
    one = problem.positions == problem.coarse_channels == 1
    return one and problem.dense and problem.tiles


#: Taps that tests covered, and taps with which bfloat16 is not widened; also those along the last
#: axis of a depthwise kernel.
MAX_TESTED_TAPS, MAX_TAPS_BFLOAT16, MAX_ROW_TAPS_BFLOAT16 = 1024, 256, 14


def _fails_in_bfloat16(kernel: Array, geometry: Geometry) -> bool:
    """Whether oneDNN 3.7 to 3.12 fail in bfloat16, so that the operands must be widened.

    - With 2,048 taps, the process ends.
    - From one padded channel to several, the sums are wrong.
    - If the last axis is padded before, and as much is left unread after, oneDNN copies the padded
      rows into a buffer without the padding, and writes beyond the buffer.
    - Of depthwise kernels with 15 taps or more along the last axis, of stride 1, oneDNN's generator
      of code (brdgmm, for AVX-512) finds no free register in some sizes, and tries forever.
    - If the last axis is strided, groups take the fallback for some dilations and wide pads.
    """
    fine, coarse = (kernel.shape[at] for at in geometry.kernel[1::-1])
    taps, last = math.prod(a.kernel for a in geometry.axes), geometry.axes[-1]
    depthwise = geometry.groups == coarse > 1
    wide = max(last.pad_low, last.pad_high) > last.extent // 2
    return (
        taps > MAX_TAPS_BFLOAT16
        or (fine == 1 and not depthwise)
        or last.pad_low + last.pad_high == 0 < last.pad_low
        or (depthwise and last.stride == 1 and last.kernel > MAX_ROW_TAPS_BFLOAT16)
        or (geometry.groups > 1 and last.stride > 1 and (last.dilation > 1 or wide))
    )


#: Elements of bfloat16 in a row of an AMX tile.
TILE_ROW_ELEMENTS = 32


def _fails_with_amx(kernel: Array, geometry: Geometry) -> bool:
    """Whether oneDNN 3.7 to 3.12 fail in bfloat16 on a processor with AMX.

    Others reported these failures. On a Xeon with AMX, 360 random contractions were exact, and one
    of them was wrong without this function, by the second item.

    - A stride above the number of taps, dilated or not: sums overwrite data that is yet to be read
      (uxlfoundation/oneDNN#5494). This item may go when all tested releases of jaxlib carry 3.13.
    - A strided axis, the last one, with a single result (pytorch/pytorch#169688, of 3-D, open).
    - Folded steps of several results (see `convolve`). It follows from oneDNN's source.
    - Products whose rows do not fill tiles: a tile goes on with the next row, of another pixel,
      image or group, times zero. A NaN there leaks (uxlfoundation/oneDNN#5717, fixed after
      3.13.1). Kernels of one tap are such products, and single results, which oneDNN computes as
      an inner product. Kernels of several taps leak for a few channel counts, too, to results of
      the neighbouring pixel. They are left as they are: `docs/versions.md` lists them.
    """
    axes, last, channels = geometry.axes, geometry.axes[-1], kernel.shape[geometry.kernel.fine]
    taps, steps = math.prod(a.kernel for a in axes), math.gcd(last.fine, last.kernel, last.stride)
    products = taps == 1 or all(a.coarse == 1 for a in axes)
    return (
        any(a.stride > a.kernel for a in axes)
        or (last.coarse == 1 < last.stride)
        or (geometry.groups == 1 and channels < TILE_ROW_ELEMENTS < channels * steps)
        or (products and channels * taps % TILE_ROW_ELEMENTS > 0)
    )


def _takes_operands(dtype: DType, kernel: Array, geometry: Geometry) -> bool:
    """Whether oneDNN multiplies a type in these sizes as it is."""
    fails = dtype == jnp.bfloat16 and (
        _fails_in_bfloat16(kernel, geometry) or (has_amx() and _fails_with_amx(kernel, geometry))
    )
    return multiplies(dtype) and not fails


# The call itself.


def convolve(
    data: Array,
    kernel: Array,
    geometry: Geometry,
    dtype: DType,
    fused: Sequence[str] = (),
    extras: Sequence[Array] = (),
) -> Array:
    """Contract (N, X, (g, i)) with a kernel in any layout to (N, X, (g, o)).

    `fused` are XLA's names of what follows the sum in the call, and `extras` the tensors that this
    takes.
    """
    if not _takes_operands(data.dtype, kernel, geometry):
        data, kernel = (x.astype(jnp.float32) for x in (data, kernel))
    rank, axes, layout = geometry.rank, geometry.axes, geometry.kernel
    tensor = {"batch_dim": 0, "feature_dim": rank + 1, "spatial_dims": list(range(1, rank + 1))}
    weights = {
        "input_feature_dim": layout.fine,
        "output_feature_dim": layout.coarse,
        "spatial_dims": list(layout.spatial),
        # Read only if --xla_cpu_experimental_onednn_custom_call is set and the kernel is constant:
        # XLA of JAX 0.12 then packs the kernel, and without a shape the process would end.
        "shape": list(kernel.shape),
    }
    window_of = {
        "size": [a.kernel for a in axes],
        "pad_left": [a.pad_low for a in axes],
        "pad_right": [max(a.pad_high, 0) for a in axes],  # an end that is cropped is not read
        # Where it can, oneDNN folds steps over the last axis into the channels. For one result, it
        # then pads these to rows of 32, but not the weights: in bfloat16, the sums are wrong.
        "strides": [a.stride if a.coarse > 1 else 1 for a in axes],
        "window_dilations": [a.dilation for a in axes],
    }
    config: dict[str, Any] = {
        "dims": rank + 2,
        "input": {"dims": rank + 2, "data": tensor},
        "kernel": {"dims": rank + 2, "filter": weights},
        "output": {"dims": rank + 2, "data": tensor},
        "window": window_of,
        "feature_groups": geometry.groups,
    }
    if fused:
        config["fusions"] = {"ops": list(fused)}
        extras = [x.astype(data.dtype) for x in extras]
    # bfloat16 in, bfloat16 or float32 out, rounded once; and float32 in, float32 out.
    out_dtype = dtype if data.dtype == jnp.bfloat16 == dtype else jnp.dtype(jnp.float32)
    shape = (data.shape[0], *(a.coarse for a in axes), kernel.shape[layout.coarse])
    result = jax.ShapeDtypeStruct(shape, out_dtype)
    call = jax.ffi.ffi_call(
        TARGET,
        result,
        custom_call_api_version=API_VERSION,
        legacy_backend_config=json.dumps({"onednn_conv_config": config}),
    )
    # The type of the call's result lacks the mesh axes over which the operands vary.
    return meshes.vary_alike(call(data, kernel, *extras), data, kernel)[0]


# What follows the sum.

#: Activations that the call computes as they are defined, by XLA's names. Of NaN, the call's ReLU
#: and ReLU6 make 0, and a training that diverges would go on in silence; its GELU by erf makes NaN
#: of infinity.
FUSED = {"tanh": "TANH", "sigmoid": "SIGMOID", "silu": "SWISH", "gelu_tanh": "GELU_TANH"}


def gains_by_finishing(problem: Problem) -> bool:
    """Whether the call is faster if it finishes the sums than XLA's one pass over the sums.

    In bfloat16, the sums are float32 otherwise, twice as many bytes. In float32, an activation
    takes that pass anyway.
    """
    finish = problem.finish
    if finish is None or problem.result != "coarse" or not multiplies(problem.dtype):
        return False
    return problem.bits == 16 or (finish.activation is None and not finish.residual)


def _convolve_and_finish(fine: Array, kernel: Array, call: Call) -> Array:
    """Call oneDNN with what it may compute of a finish, compute the rest, and round once."""
    geometry, dtype, extras = call.geometry, call.numerics.dtype, call.extras
    finish = call.problem.finish
    if finish is None:
        return convolve(fine, kernel, geometry, dtype)
    native = fine.dtype == jnp.bfloat16 == dtype and _takes_operands(fine.dtype, kernel, geometry)
    unlike = finish.residual and extras[-1].dtype != fine.dtype
    rest = replace(finish, bias=False, residual=unlike)
    fused = ["BIAS"] * finish.bias + ["BINARY_ADD"] * (finish.residual and not unlike)
    added = extras[: len(fused)]
    name = finish.activation and finish.activation.name
    if native and name in FUSED:
        return convolve(fine, kernel, geometry, dtype, [*fused, FUSED[name]], added)
    sums = dtype if name in (None, *SELECTING) and not unlike else jnp.dtype(jnp.float32)
    out = convolve(fine, kernel, geometry, sums, fused, added)
    return rest.apply(out, extras[len(fused) :], geometry.data.channel, dtype)


#: Padding along the last axis, also at most as much as there are results, with which oneDNN has
#: vector code for groups in bfloat16, however many channels they have.
MAX_GROUPED_PADDING = 6


def to_coarse(fine: Array, kernel: Array, call: Call) -> Array:
    """Call oneDNN once; pad before the call where oneDNN would choose its fallback."""
    geometry, layout, depthwise = call.geometry, call.geometry.kernel, call.problem.depthwise
    if depthwise and geometry.rank == 1:
        layout = KernelLayout(layout.coarse + 1, layout.fine + 1, (0, layout.spatial[0] + 1))
        plane = replace(geometry, axes=(UNIT, *geometry.axes)).canonical()
        plane = replace(plane, kernel=layout)
        fine, kernel = lax.expand_dims(fine, (1,)), lax.expand_dims(kernel, (0,))
        extras = tuple(lax.expand_dims(x, (1,)) if x.ndim > 1 else x for x in call.extras)
        out = to_coarse(fine, kernel, replace(call.of(plane), extras=extras))
        return lax.squeeze(out, (1,))
    axes, last = geometry.axes, geometry.axes[-1]
    deep = any(max(a.pad_low, a.pad_high) >= a.extent for a in axes)
    flat = any(a.kernel == 1 for a in axes)
    grouped = geometry.groups > 1 and not depthwise and fine.dtype == jnp.bfloat16
    wide = max(last.pad_low, last.pad_high) > min(MAX_GROUPED_PADDING, last.coarse)
    if deep or (grouped and wide) or (depthwise and (flat or any(a.dilation > 1 for a in axes))):
        fine, geometry = window.pad_fine(fine, geometry), geometry.padded()
    return _convolve_and_finish(fine, kernel, call.of(geometry))


FORM = Form(
    "onednn",
    {"coarse": to_coarse},
    cannot=lambda p: not may_call(p),
    layouts="any kernel",  # oneDNN reorders any kernel to a layout of its own
    isolated=False,
    finishes=gains_by_finishing,
    contender=True,
)
