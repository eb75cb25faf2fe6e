"""A case: an operation on a layer. Its operands, what it computes, and whether that is right.

One sum defines all six operations (see `layer.py`): an operation fills one of three tensors
from the other two, and so does each of its gradients. The reference shares no code with the
operations.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import jax
import ml_dtypes
import numpy as np

import jaxconv
from jaxconv._base.geometry import Slot
from jaxconv._base.messages import one_line
from jaxconv._checks.layer import Layer, contract
from jaxconv._rules.op import OPS

Array = np.ndarray[Any, Any]
#: By slot, or "bias" and "residual".
Tensors = dict[str, Array]

OPERATIONS = tuple(OPS)

DTYPES: dict[str, Any] = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16}

#: What a forward operation may apply, as formulas in float64.
ACTIVATIONS: dict[str | None, Callable[[Array], Array]] = {
    None: lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "tanh": np.tanh,
    "sigmoid": lambda x: (1 + np.tanh(x / 2)) / 2,
    "silu": lambda x: x * (1 + np.tanh(x / 2)) / 2,
    "gelu_tanh": lambda x: x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2,
}
#: Those that round nothing.
EXACT = (None, "relu")


@dataclass(frozen=True)
class Case:
    """An operation on a layer, in one of DTYPES; by default in the formats of the layer."""

    operation: str
    layer: Layer
    dtype: str = "f32"
    formats: tuple[str, str] | None = None
    #: what follows the sum: an activation, and "bias", "residual" or "bias and residual"
    activation: str | None = None
    adds: str = ""
    #: whether every other window of the data is NaN; windows tile
    nan_windows: bool = False

    def __str__(self) -> str:
        finish = f", {self.activation}, {self.adds}" if self.activation or self.adds else ""
        return f"{self.operation}, {self.dtype}{finish}"

    @property
    def plain(self) -> bool:
        """Whether nothing follows the sum, and all is a number."""
        return not (self.activation or self.adds or self.nan_windows)

    @property
    def slots(self) -> tuple[Slot, Slot, Slot]:
        """The slots of the result, and of the inputs in order."""
        op = OPS[self.operation]
        return op.slot(op.result), op.slot(op.inputs[0]), op.slot(op.inputs[1])

    @property
    def order(self) -> dict[str, tuple[int, ...]]:
        """The order of the layer's axes in the formats, for each tensor."""
        transposed = OPS[self.operation].transposed
        formats = self.formats or ("NXC", "XOI" if transposed else "XIO")
        order = {**self.layer.orders(*formats, transposed)}
        return order | {"bias": (0,), "residual": order[self.slots[0]]}


def draw(case: Case) -> tuple[Tensors, Tensors]:
    """Draw all that a case is given, and a cotangent: exact values, and float32 of any digits.

    The exact values are integers, scaled down by a power of two before an activation that bends.
    Their products and sums are exact in f32, so that a result is right or wrong. They are wide, so
    that a partial sum rounded to 16 bits would show; but each is below 2**8, so that multiplying in
    TF32 or bf16 is exact, and the sums fit into f16.
    """
    layer, (result, *operands) = case.layer, case.slots
    rng = np.random.default_rng(layer.terms(result))
    limit = min(math.isqrt(60_000 // max(map(layer.terms, layer.shapes))), 200)

    def integers(shape: Sequence[int], largest: int) -> Array:
        return np.asarray(rng.integers(-largest, largest, shape, endpoint=True), np.float64)

    shapes = layer.shapes
    added = {"bias": shapes[result][-1:], "residual": shapes[result]}
    exact: Tensors = {slot: integers(shapes[slot], limit) for slot in case.slots}
    exact |= {name: integers(added[name], 99) for name in added if name in case.adds}
    floats: Tensors = {s: rng.standard_normal(shapes[s], np.float32) for s in case.slots}
    if case.nan_windows:
        exact["fine"].reshape(layer.batch * math.prod(layer.coarse), -1)[1::2] = np.nan
    if case.activation not in EXACT:  # sums at which the functions bend
        largest = np.max(np.abs(_sum(case, result, exact)))
        smaller = 2.0 ** -np.ceil(np.log2(largest / 8 + 1))
        exact |= {name: exact[name] * smaller for name in exact.keys() - {operands[1], result}}
    return exact, floats


def bind(case: Case, gradients: bool) -> Callable[[Tensors], Tensors]:
    """Make a function of a case's tensors: the result by its slot and, if asked, both gradients."""
    op, layer, order = OPS[case.operation], case.layer, case.order
    result, *operands = case.slots
    dtype = np.dtype(DTYPES[case.dtype])
    shapes: dict[str, tuple[int, ...]] = {
        slot: tuple(layer.shapes[slot][at] for at in order[slot]) for slot in case.slots
    }
    attributes = layer.attributes
    if op.transposed:
        attributes["output_padding"] = layer.output_padding
    if op.shape_argument and op.name != "conv_transpose":
        attributes[op.shape_argument] = shapes[result]
    if case.formats:
        attributes |= zip(("data_format", "weights_format"), case.formats, strict=True)
    if case.activation:
        attributes["activation"] = case.activation
    # The bounds hold for f32, which is not every default precision.
    operation = partial(getattr(jaxconv, op.name), precision="highest", **attributes)

    @jax.jit
    def compute(tensors: dict[str, jax.Array]) -> dict[str, jax.Array]:
        added = {name: tensors[name] for name in ("bias", "residual") if name in tensors}
        given = [tensors[slot] for slot in operands]
        if not gradients:
            return {result: operation(*given, **added)}
        out, pull = jax.vjp(partial(operation, **added), *given)
        return {result: out, **dict(zip(operands, pull(tensors[result]), strict=True))}

    def run(tensors: Tensors) -> Tensors:
        computed = compute({n: x.transpose(order[n]).astype(dtype) for n, x in tensors.items()})
        for slot, x in computed.items():
            if (x.shape, x.dtype) != (shapes[slot], dtype):
                raise TypeError(
                    f"{x.dtype} of shape {x.shape} came out, "
                    f"{dtype} of shape {shapes[slot]} should have"
                )
        return {s: np.asarray(x).transpose(np.argsort(order[s])) for s, x in computed.items()}

    return run


def expect(case: Case, slot: Slot, tensors: Tensors) -> Array:
    """What must come out for a slot, in float64; of gradients, for plain cases alone."""
    return ACTIVATIONS[case.activation](_sum(case, slot, tensors))


def _sum(case: Case, slot: Slot, tensors: Tensors) -> Array:
    given = {s: tensors[s] for s in case.slots if s != slot}
    exact = contract(case.layer, slot, given)
    return sum((tensors[n] for n in ("bias", "residual") if n in tensors), start=exact)


class Judgement(NamedTuple):
    """A tensor that came out, beside what must."""

    #: what is wrong with it, in words; empty if it is right
    wrong: str
    #: of random floats, the largest error and its bound, relative to the largest element
    error: float = 0.0
    bound: float = math.inf


def examine(case: Case, gradients: bool = False) -> list[Judgement]:
    """Compute a case on integers and, in plain f32, on random floats; judge all that comes out."""
    exact, floats = draw(case)
    run, (result, *operands) = bind(case, gradients), case.slots
    judged = []
    for tensors in [exact, floats] if case.plain and case.dtype == "f32" else [exact]:
        computed = run(tensors)
        for slot in [result, *operands] if gradients else [result]:
            what = "the result" if slot == result else f"the gradient by the {slot} tensor"
            judge = _judge_integers if tensors is exact else _judge_floats
            one = judge(case, slot, computed[slot], expect(case, slot, tensors))
            judged.append(one._replace(wrong=one.wrong and f"{what} {one.wrong}"))
    return judged


def _judge_integers(case: Case, slot: Slot, values: Array, expected: Array) -> Judgement:
    """Sums must be exact, rounded once, and functions of them near."""
    if case.activation in EXACT:
        right = (values == expected.astype(values.dtype)) | (np.isnan(values) & np.isnan(expected))
        wrong = values.size - int(np.sum(right))
        return Judgement(f"has {wrong} of {values.size} integers wrong" if wrong else "")
    # half a unit of rounding, and the approximation of the function
    bounds = float(ml_dtypes.finfo(values.dtype).eps) * np.abs(expected) + 2.0**-18
    off = float(np.max(np.abs(values.astype(np.float64) - expected) / bounds))
    return Judgement("" if off <= 1 else f"is off by {off:.1f} times the bound")


def _judge_floats(case: Case, slot: Slot, values: Array, expected: Array) -> Judgement:
    """The largest error of random f32 must be within a bound, of the largest element."""
    largest = float(np.max(np.abs(expected))) or 1.0
    error = float(np.max(np.abs(values - expected))) / largest
    # Errors add up like a random walk, with the root of the number of terms.
    bound = float(4 * np.finfo(np.float32).eps * math.sqrt(case.layer.terms(slot)))
    error = math.inf if math.isnan(error) else error
    wrong = f"is off by {error:.1e}, above {bound:.1e}" if error > bound else ""
    return Judgement(wrong, error, bound)


def compare(case: Case) -> str:
    """Say what is wrong with a case or, if it is plain, its gradients; empty if all is right."""
    try:
        judged = examine(case, gradients=case.plain)
    except Exception as error:  # shown as a line, not as a traceback
        return f"{case}: {one_line(error)}"
    return next((f"{case}: {one.wrong}" for one in judged if one.wrong), "")
