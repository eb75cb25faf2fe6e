"""Are the six operations right on this backend? Each against its defining sum, in NumPy.

One sum defines all six (see `reference.py`): an operation fills one of three tensors from the
other two. In their default formats the operations take and give the same three arrays, so
one case serves all operations. The reference shares no code with the operations.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import ml_dtypes
import numpy as np

import jaxconv
from jaxconv._base.geometry import Slot
from jaxconv._checks import reference
from jaxconv._checks.layer import Layer
from jaxconv._rules.op import OPS

Array = np.ndarray[Any, Any]
Tensors = dict[Slot, Array]

#: operation -> the slot of its result, and the slots of its inputs in order
OPERATIONS: dict[str, tuple[Slot, tuple[Slot, Slot]]] = {
    op.name: (op.slot(op.result), (op.slot(op.inputs[0]), op.slot(op.inputs[1])))
    for op in OPS.values()
}
SHAPED = (
    "convolution_backward_data",
    "convolution_backward_weights",
    "conv_transpose_backward_weights",
)

DTYPES = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16}


CASES = {
    "strided": Layer((7, 12), (3, 2), (2, 3), (1, 1), (1, 0), (0, 1), (3, 4)),
    "dilated, groups": Layer((4, 6), (2, 3), (1, 2), (3, 2), (2, 1), (1, 3), (6, 4), groups=2),
    "depthwise": Layer((5, 4), (3, 2), (1, 1), (1, 1), (1, 1), (1, 0), (6, 6), groups=6),
    "wide": Layer((4, 5), (3, 3), (1, 1), (1, 1), (1, 0), (1, 2), (24, 32)),
    "1-D, groups": Layer((21,), (4,), (3,), (1,), (1,), (2,), (6, 3), groups=3),
    "3-D": Layer(
        (3, 6, 3), (2, 1, 3), (1, 2, 2), (2, 1, 1), (1, 0, 1), (0, 0, 2), (2, 3),
    ),
}  # fmt: skip


@dataclass
class Finding:
    """The outcome of all cases of one operation."""

    operation: str
    #: dtype -> number of cases with exactly the right integers
    exact: dict[str, int] = field(default_factory=lambda: dict.fromkeys(DTYPES, 0))
    #: error of the random case nearest to its bound, relative to the largest element
    error: float = 0.0
    bound: float = math.inf
    complaints: list[str] = field(default_factory=list)

    @property
    def compared(self) -> bool:
        """Whether a random case ran to its end."""
        return self.bound < math.inf

    @property
    def ok(self) -> bool:
        """Whether all cases passed."""
        return not self.complaints


def check(operation: str) -> Finding:
    """Compare an operation to the reference in all cases, on JAX's default device."""
    finding = Finding(operation)
    for name, layer in CASES.items():
        try:
            _check_case(finding, name, layer)
        except Exception as error:  # shown as a line, not as a traceback
            finding.complaints.append(f"{name}: {one_line(error)}")
    return finding


def one_line(error: Exception) -> str:
    """Write an error without its traceback and the tail of its message."""
    return f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0]}"


def _check_case(finding: Finding, name: str, layer: Layer) -> None:
    result, operands = OPERATIONS[finding.operation]
    rng = np.random.default_rng(layer.terms(result))
    whole, broken = integers(rng, layer, operands), floats(rng, layer, operands)
    problems = [(whole, dtype) for dtype in DTYPES.values()] + [(broken, np.float32)]
    *found, found_random = _run(finding.operation, layer, problems)

    exact = reference.contract(layer, result, whole)
    for (label, dtype), values in zip(DTYPES.items(), found, strict=True):
        expected = exact.astype(dtype)
        if (values.shape, values.dtype) != (expected.shape, expected.dtype):
            raise TypeError(
                f"{values.dtype} of shape {values.shape} came out, "
                f"{expected.dtype} of shape {expected.shape} should have"
            )
        wrong = int(np.sum(values != expected))
        finding.exact[label] += not wrong
        if wrong:
            finding.complaints.append(
                f"{name}, {label} integers: {wrong} of {values.size} elements are wrong"
            )

    exact = reference.contract(layer, result, broken)
    error = float(np.max(np.abs(found_random - exact)) / np.max(np.abs(exact)))
    error = math.inf if math.isnan(error) else error
    # Errors add up like a random walk, with the root of the number of terms.
    bound = float(4 * np.finfo(np.float32).eps * math.sqrt(layer.terms(result)))
    if error / bound >= finding.error / finding.bound:
        finding.error, finding.bound = error, bound
    if error > bound:
        finding.complaints.append(f"{name}, random f32: off by {error:.1e}, above the bound")


def integers(rng: np.random.Generator, layer: Layer, operands: Sequence[Slot]) -> Tensors:
    """Draw integers whose products and sums are exact in f32, so that a result is right or wrong.

    The integers are wide, so that a partial sum rounded to 16 bits would show; but each is below
    2**8, so that multiplying in TF32 or bf16 is exact, and the sums fit into f16.
    """
    most_terms = max(layer.terms(name) for name in layer.shapes)
    limit = min(math.isqrt(60_000 // most_terms), 200)
    return {
        name: np.asarray(rng.integers(-limit, limit, layer.shapes[name], endpoint=True), np.float64)
        for name in operands
    }


def floats(rng: np.random.Generator, layer: Layer, operands: Sequence[Slot]) -> Tensors:
    """Draw normally distributed float32."""
    return {name: rng.standard_normal(layer.shapes[name], np.float32) for name in operands}


def bind_layer(operation: str, layer: Layer, **more: Any) -> partial[jax.Array]:
    """Bind an operation to the sizes of a layer; operations in SHAPED want the result's shape."""
    if operation.startswith("conv_transpose"):
        more["output_padding"] = layer.output_padding
    # The bounds hold for f32, which is not every default precision.
    return partial(getattr(jaxconv, operation), precision="highest", **layer.attributes, **more)


def _run(operation: str, layer: Layer, problems: list[tuple[Tensors, Any]]) -> list[Array]:
    """Compute an operation's results in one program, since compiling takes the time."""
    result, operands = OPERATIONS[operation]
    shape = [layer.shapes[result]] if operation in SHAPED else []
    function = bind_layer(operation, layer)
    arguments = [
        [jax.numpy.asarray(given[name].astype(dtype)) for name in operands]
        for given, dtype in problems
    ]
    found = jax.jit(lambda ps: [function(*tensors, *shape) for tensors in ps])(arguments)
    return [np.asarray(values) for values in found]
