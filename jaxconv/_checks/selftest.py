"""Named and random cases of the six operations and their gradients, against the defining sum.

Every operation fills one of three tensors from the other two, and so does each gradient:
with a cotangent for the result, all three are checked at once. Integers must come out exact,
rounded once to the type; random float32 must be within a bound. The named cases come first: sizes
at which a library below was wrong on processors that we did not have.
"""

import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import ml_dtypes
import numpy as np

from jaxconv._checks import reference, selfcheck
from jaxconv._checks.layer import Layer
from jaxconv._checks.selfcheck import DTYPES, OPERATIONS, SHAPED, Array, Tensors
from jaxconv._checks.terminal import Progress
from jaxconv._rules.layouts import DATA_FORMATS, WEIGHTS_FORMATS

#: Coarse pixels along an axis, by rank.
MAX_EXTENTS = (0, 40, 12, 6)

#: Sizes at which oneDNN's bfloat16 code for AMX is wrong; `onednn_call` says why, and avoids it.
STRIDED = {
    "stride (3, 1), kernel (1, 3)": Layer(
        (67, 4), (1, 3), (3, 1), (1, 1), (0, 1), (0, 1), (32, 48),
    ),
    "stride 2, kernel (1, 3)": Layer(
        (67, 31), (1, 3), (2, 2), (1, 1), (0, 1), (0, 1), (32, 48),
    ),
    "stride 3, kernel 2x2": Layer((67, 31), (2, 2), (3, 3), (1, 1), (0, 0), (0, 0), (32, 48)),
    "stride 3, kernel 2x2, dilation 3": Layer(
        (67, 31), (2, 2), (3, 3), (3, 3), (0, 0), (0, 0), (32, 48),
    ),
    "stride 3, 3-D, width 1": Layer(
        (12, 14, 4), (3, 3, 3), (3, 3, 3), (1, 1, 1), (0, 0, 0), (0, 0, 0), (32, 48),
    ),
}  # fmt: skip

#: Sizes at which that code lets a NaN leak into sums over other windows. Windows tile the data.
LEAKING = {
    "NaN, one tap, 40 channels": Layer(
        (9, 8), (1, 1), (1, 1), (1, 1), (0, 0), (0, 0), (120, 144), groups=3,
    ),
    "NaN, one window of an image": Layer(
        (6, 5), (6, 5), (1, 1), (1, 1), (0, 0), (0, 0), (20, 48), batch=40,
    ),
}  # fmt: skip


def test(count: int, seed: int) -> int:
    """Check named cases and `count` random cases; print a summary, return how many are wrong."""
    rng = random.Random(seed)
    right: Counter[tuple[str, str]] = Counter()
    total: Counter[tuple[str, str]] = Counter()
    wrong = check_named()
    cases = len(STRIDED) + len(LEAKING)
    print(f"first, sizes at which oneDNN failed elsewhere: {cases - len(wrong)}/{cases} right\n")
    progress = Progress(count)
    for number in range(count):
        operation = [*OPERATIONS][number % len(OPERATIONS)]
        given = (operation, draw(rng), rng.choice([*DTYPES]))
        formats = rng.choice(DATA_FORMATS), rng.choice(WEIGHTS_FORMATS)
        found = compare(*given, *formats)
        key = operation, given[2]
        total[key] += 1
        right[key] += not found
        if found:
            wrong += [f"{found}; reproduce it by:\n{_reproduction('compare', *given, *formats)}"]
        progress.step(f"{len(wrong)} wrong")
        if number % 50 == 49:
            jax.clear_caches()  # each case is a program of some MB
    _print_summary(right, total, wrong)
    return len(wrong)


def check_named() -> list[str]:
    """Check the named cases in bfloat16, and list what is wrong."""
    wrong = []
    for cases, function, given in (
        (STRIDED, compare, ("bf16", "NXC", "XIO")),
        (LEAKING, check_leak, ("bf16",)),
    ):
        for name, layer in cases.items():
            if found := function("convolution", layer, *given):
                line = _reproduction(function.__name__, "convolution", layer, *given)
                wrong.append(f"{name}: {found}; reproduce it by:\n{line}")
    return wrong


def _reproduction(function: str, *given: Any) -> str:
    arguments = ", ".join(map(repr, given))
    return f"from jaxconv._checks.selftest import *; print({function}({arguments}))"


def _print_summary(right: Counter[Any], total: Counter[Any], wrong: Sequence[str]) -> None:
    print(f"\n{'right of all':33}" + "".join(f"{label:>12}" for label in DTYPES))
    for operation in OPERATIONS:
        cells = (f"{right[operation, label]}/{total[operation, label]}" for label in DTYPES)
        print(f"{operation:33}" + "".join(f"{cell:>12}" for cell in cells))
    for text in wrong:
        print(f"\n{text}")


def draw(rng: random.Random) -> Layer:
    """Draw a case that is valid for all six operations."""
    rank = rng.choice((1, 2, 2, 3))
    groups = rng.choice((1, 1, 2, 3, 8, 16))
    inner, outer = (groups * rng.choice((1, 1, 2, 3, 4, 8, 13)) for _ in "io")
    sizes = zip(*(_axis(rng, MAX_EXTENTS[rank]) for _ in range(rank)), strict=True)
    fine, kernel, strides, dilations, begin, end = sizes
    batch = rng.choice((1, 2, 2, 3))
    return Layer(fine, kernel, strides, dilations, begin, end, (inner, outer), groups, batch)


def _axis(rng: random.Random, longest: int) -> tuple[int, ...]:
    """Draw fine extent, kernel, stride, dilation and pads that leave at least one coarse pixel."""
    while True:
        coarse, kernel = rng.randint(1, longest), rng.choice((1, 2, 3, 3, 4, 5, 7))
        stride, dilation = rng.choice((1, 1, 2, 2, 3, 5)), rng.choice((1, 1, 1, 2, 3))
        extent = dilation * (kernel - 1) + 1
        begin, end = (rng.choice((0, 0, 1, extent // 2, extent - 1, extent + 1)) for _ in "be")
        unread = rng.randrange(stride)
        fine = stride * (coarse - 1) + extent + unread - begin - end
        if 1 <= fine <= 2 * longest:
            return fine, kernel, stride, dilation, begin, end


def compare(operation: str, layer: Layer, dtype: str, data_format: str, weights_format: str) -> str:
    """Say what is wrong with an operation and its gradients in a case; empty if all is right."""
    rng = np.random.default_rng(0)
    slots = tuple(layer.shapes)
    problems = [(selfcheck.integers(rng, layer, slots), DTYPES[dtype])]
    if dtype == "f32":
        problems.append((selfcheck.floats(rng, layer, slots), np.float32))
    try:
        found = _run(operation, layer, problems, data_format, weights_format)
    except Exception as error:  # shown as a line, not as a traceback
        return f"{operation}, {dtype}: {selfcheck.one_line(error)}"
    for exact, (tensors, kind), results in zip((True, False), problems, found, strict=False):
        for slot, values in results.items():
            others = {s: x for s, x in tensors.items() if s != slot}
            expected = reference.contract(layer, slot, others)
            if said := _judge(values, expected, kind, None if exact else layer.terms(slot)):
                result, _ = OPERATIONS[operation]
                what = "the result" if slot == result else f"the gradient by the {slot} tensor"
                return f"{operation}, {dtype}: {what} {said}"
    return ""


#: What a forward operation may apply, as formulas in float64.
ACTIVATIONS: dict[str | None, Callable[[Array], Array]] = {
    None: lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "sigmoid": lambda x: (1 + np.tanh(x / 2)) / 2,
    "silu": lambda x: x * (1 + np.tanh(x / 2)) / 2,
    "gelu_tanh": lambda x: x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
}


def compare_finish(
    operation: str,
    layer: Layer,
    dtype: str,
    data_format: str,
    weights_format: str,
    activation: str | None,
    adds: str,
) -> str:
    """Say what is wrong with a forward operation that adds "bias" or "residual", or both."""
    rng, (result, operands) = np.random.default_rng(0), OPERATIONS[operation]
    tensors = selfcheck.integers(rng, layer, operands)
    exact = reference.contract(layer, result, tensors)
    order = layer.orders(data_format, weights_format, operation == "conv_transpose")
    given = [tensors[slot].transpose(order[slot]) for slot in operands]
    more: dict[str, Any] = {"data_format": data_format, "weights_format": weights_format}
    if "bias" in adds:
        bias = np.asarray(rng.integers(-99, 99, exact.shape[-1:]), np.float64)
        exact, more["bias"] = exact + bias, bias.astype(DTYPES[dtype])
    if "residual" in adds:
        residual = np.asarray(rng.integers(-99, 99, exact.shape), np.float64)
        exact = exact + residual
        more["residual"] = residual.transpose(order[result]).astype(DTYPES[dtype])
    if activation not in (None, "relu"):  # sums at which the functions bend
        smaller = 2.0 ** -np.ceil(np.log2(np.max(np.abs(exact)) / 8 + 1))
        exact, given[0] = exact * smaller, given[0] * smaller
        more |= {n: more[n] * DTYPES[dtype](smaller) for n in ("bias", "residual") if n in more}
    compute = selfcheck.bind_layer(operation, layer, activation=activation, **more)
    try:
        found = np.asarray(jax.jit(compute)(*(jnp.asarray(x.astype(DTYPES[dtype])) for x in given)))
    except Exception as error:  # shown as a line, not as a traceback
        return f"{operation}, {dtype}, {activation}, {adds}: {selfcheck.one_line(error)}"
    expected = ACTIVATIONS[activation](exact).transpose(order[result])
    if activation in (None, "relu"):
        said = _judge(found, expected, DTYPES[dtype], None)
    else:  # half a unit of rounding, and the approximation of the function
        bound = float(ml_dtypes.finfo(DTYPES[dtype]).eps) * np.abs(expected) + 2.0**-18
        off = float(np.max(np.abs(found.astype(np.float64) - expected) / bound))
        said = "" if off <= 1 else f"is off by {off:.1f} times the bound"
    return f"{operation}, {dtype}, {activation}, {adds}: the result {said}" if said else ""


def check_leak(operation: str, layer: Layer, dtype: str) -> str:
    """Say what is wrong if every other window is NaN, of windows that tile the data."""
    result, operands = OPERATIONS[operation]
    tensors = selfcheck.integers(np.random.default_rng(0), layer, operands)
    tensors["fine"].reshape(layer.batch * math.prod(layer.coarse), -1)[1::2] = np.nan
    compute = jax.jit(selfcheck.bind_layer(operation, layer))
    try:
        found = compute(*(jax.numpy.asarray(tensors[s].astype(DTYPES[dtype])) for s in operands))
    except Exception as error:  # shown as a line, not as a traceback
        return f"{operation}, {dtype}: {selfcheck.one_line(error)}"
    expected = reference.contract(layer, result, tensors)
    said = _judge(np.asarray(found), expected, DTYPES[dtype], None)
    return f"{operation}, {dtype}: the result {said}" if said else ""


def _judge(values: Array, expected: Array, kind: Any, terms: int | None) -> str:
    if (values.shape, values.dtype) != (expected.shape, np.dtype(kind)):
        return f"has type {values.dtype} and shape {values.shape}, not {expected.shape}"
    if terms is None:
        right = (values == expected.astype(kind)) | (np.isnan(values) & np.isnan(expected))
        wrong = values.size - int(np.sum(right))
        return f"has {wrong} of {values.size} integers wrong" if wrong else ""
    error = float(np.max(np.abs(values - expected)))
    bound = float(4 * np.finfo(np.float32).eps * math.sqrt(terms) * np.max(np.abs(expected)))
    return "" if error <= bound else f"is off by {error:.1e}, above {bound:.1e}"


def _run(
    operation: str, layer: Layer, problems: list[tuple[Tensors, Any]], data: str, weights: str
) -> list[Tensors]:
    """Compute, by slot, the result and both gradients of each problem, in the default formats."""
    result, operands = OPERATIONS[operation]
    order = layer.orders(data, weights, operation.startswith("conv_transpose"))
    shape = tuple(layer.shapes[result][at] for at in order[result])
    compute = selfcheck.bind_layer(operation, layer, data_format=data, weights_format=weights)

    @jax.jit
    def run(cotangent: Any, *given: Any) -> Any:
        function = (lambda *xs: compute(*xs, shape)) if operation in SHAPED else compute
        found, gradients = jax.vjp(function, *given)
        return (found, *gradients(cotangent))

    found = []
    for tensors, kind in problems:
        arrays = (
            jax.numpy.asarray(tensors[slot].transpose(order[slot]).astype(kind))
            for slot in (result, *operands)
        )
        results = zip((result, *operands), run(*arrays), strict=True)
        found.append({s: np.asarray(x).transpose(np.argsort(order[s])) for s, x in results})
    return found
