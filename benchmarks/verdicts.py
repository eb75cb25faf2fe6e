"""Is a result right? The sum of `jaxconv/_checks/layer.py`, on a sample, and the tolerance."""

import dataclasses
import math

import numpy as np

from benchmarks.layer import Layer, checks

SAMPLE_FLOPS = 3e8  # what the sample may cost; below it everything is checked

# Some element of any tensor is as large as its rms, so zeros err by 1 or more; and of unrelated
# elements, such as those of another channel, few are as near to each other as this.
MOST = 0.5

EPS = {"f32": 2.0**-23, "bf16": 2.0**-7, "f16": 2.0**-10, "f64": 2.0**-52}
# As what a platform multiplies f32 by default, where that is less than f32.
MULTIPLIED_AS = dict.fromkeys(("gpu", "cuda", "rocm"), "f16") | {"tpu": "bf16"}


def contract(layer: Layer, op: str, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The result of `op` in float64, from its two operands in `Layer.op_shapes` order."""
    first_slot, second_slot, result = layer.slots(op)
    layer = dataclasses.replace(layer, batch=len(first))
    return checks.contract(layer, result, {first_slot: first, second_slot: second})


def sample(layer: Layer, op: str, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The beginning of the result of `op`, as much of it as SAMPLE_FLOPS pays for.

    Whole batch elements for the op and its data gradient, whole groups (or coarse channels,
    without groups) for the weights gradient.
    """
    share = SAMPLE_FLOPS / max(layer.flops, 1)
    if op != "weights":
        return contract(layer, op, first[: _count(layer.batch, share)], second)
    (fine, coarse), groups = layer.channels, layer.groups
    if groups > 1:
        part = _count(groups, share)
        fine, coarse, groups = fine // groups * part, coarse // groups * part, part
    else:
        coarse = _count(coarse, share)
    src, dst = (fine, coarse) if layer.family == "conv" else (coarse, fine)
    layer = dataclasses.replace(layer, groups=groups, channels=(fine, coarse))
    return contract(layer, op, first[..., :src], second[..., :dst])


def verdict(
    expected: np.ndarray, got: np.ndarray, terms: int, dtype: str, platform: str, of: str = "exact"
) -> dict:
    """What to note about a result: right, rounded more often than needed, or wrong.

    `of` names the engine that computed what is expected, which then has half of the difference.
    """
    share = 1.0 if of == "exact" else 0.5
    error = share * _error(expected, got)
    if not math.isfinite(error):
        return {"ok": False, "error": None, "reason": "not finite"}
    excess = share * _error(expected, got, EPS[dtype])
    note = {"ok": excess <= loose_tolerance(terms, dtype, platform), "error": error}
    if not note["ok"]:
        note["reason"] = f"differs by {error:.3g} of the rms from {of}"
    elif excess > tolerance(terms, dtype, platform):
        note["inexact"] = True
    return note


def of_norm(got: np.ndarray, expected: np.ndarray, tolerance: float, what: str) -> dict:
    """What to note about a network's result: whether it differs from that of `what`."""
    error = float(np.linalg.norm(got - expected) / np.linalg.norm(expected))
    if error <= tolerance:
        return {"ok": True, "error": error}
    reason = f"differs from {what} by {error:.2g} of the norm"
    return {"ok": False, "error": error if math.isfinite(error) else None, "reason": reason}


def _error(expected: np.ndarray, got: np.ndarray, rounding: float = 0.0) -> float:
    """The largest difference, relative to the root mean square of what was expected.

    Of each, `rounding` times the element is forgiven. One rounding costs an element at most
    EPS / 2 of itself: more than that of the rms if it is a large one, far less if it is small.
    """
    scale = math.sqrt(np.mean(np.square(expected, dtype=np.float64)))
    difference = np.abs(got.astype(np.float64) - expected)
    worst = float(np.max(difference - rounding * np.abs(expected)))
    return worst / scale if scale else worst  # NaN stays NaN and fails every comparison


def tolerance(terms: int, dtype: str, platform: str) -> float:
    """What is left of the error, one rounding of each element forgiven, if sums are in f32 (f64).

    A running sum of n terms errs like sqrt(n) roundings; the factor 4 takes the largest of
    many elements to be that many standard deviations out.
    """
    accumulate = EPS["f64" if dtype == "f64" else "f32"]
    rounded = dtype == "f32" and platform in MULTIPLIED_AS
    multiply = EPS[MULTIPLIED_AS[platform]] if rounded else 0.0
    return 4 * (multiply + accumulate * math.sqrt(terms))


def loose_tolerance(terms: int, dtype: str, platform: str) -> float:
    """What is left if partial sums too are rounded to the result's type.

    Rounding all n partial sums errs by about sqrt(n) / 7 of EPS; the factor 2 is again for the
    largest of many. No further than MOST: 50,000 terms of bfloat16 would allow all zeros.
    """
    partial = min(2 * EPS[dtype] * math.sqrt(terms), MOST)
    return max(tolerance(terms, dtype, platform), partial)


def _count(whole: int, share: float) -> int:
    return max(1, min(whole, int(whole * share)))
