"""Are the six operations right on this backend? Each against its defining sum, in NumPy.

One sum defines all of them (see `_reference.py`), each filling one of its three tensors from
the other two. In their default formats the six take and give the same three arrays, so
one case serves them all. The reference shares no code with the operations.
"""

import math
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import jax
import ml_dtypes
import numpy as np

import jaxconv
from jaxconv import _reference

Array = np.ndarray[Any, Any]
Tensors = dict[str, Array]

#: operation -> the tensor it finds, and its inputs in order
OPERATIONS = {
    "convolution": ("coarse", ("fine", "kernel")),
    "convolution_backward_data": ("fine", ("coarse", "kernel")),
    "convolution_backward_weights": ("kernel", ("fine", "coarse")),
    "conv_transpose": ("fine", ("coarse", "kernel")),
    "conv_transpose_backward_data": ("coarse", ("fine", "kernel")),
    "conv_transpose_backward_weights": ("kernel", ("coarse", "fine")),
}
SHAPED = (
    "convolution_backward_data",
    "convolution_backward_weights",
    "conv_transpose_backward_weights",
)

DTYPES = {"f32": np.float32, "bf16": ml_dtypes.bfloat16, "f16": np.float16}


@dataclass(frozen=True)
class Case:
    """Attributes and sizes: a fine tensor, a kernel and a coarse tensor that fit each other."""

    name: str
    coarse: tuple[int, ...]
    kernel: tuple[int, ...]
    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads_begin: tuple[int, ...]
    pads_end: tuple[int, ...]
    #: the end of the fine tensor that no window reaches: output padding, if transposed
    rest: tuple[int, ...]
    #: groups, and in each the channels of the fine and of the coarse tensor
    channels: tuple[int, int, int]
    batch: int = 2

    @property
    def fine(self) -> tuple[int, ...]:
        """The fine extents that lead to the coarse ones."""
        s, c, d, k = map(np.array, (self.strides, self.coarse, self.dilations, self.kernel))
        fine = s * (c - 1) + d * (k - 1) + 1 + self.rest
        return tuple((fine - self.pads_begin - self.pads_end).tolist())

    @property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """The shapes in the default formats: NXC; and XIO, or XOI with the roles swapped."""
        groups, i, o = self.channels
        return {
            "fine": (self.batch, *self.fine, groups * i),
            "kernel": (*self.kernel, i, groups * o),
            "coarse": (self.batch, *self.coarse, groups * o),
        }

    def terms(self, result: str) -> int:
        """The most terms that a sum may have."""
        _, i, o = self.channels
        taps, places = math.prod(self.kernel), math.prod(self.coarse)
        return {"coarse": taps * i, "fine": taps * o, "kernel": self.batch * places}[result]


CASES = (
    Case("strided", (3, 4), (3, 2), (2, 3), (1, 1), (1, 0), (0, 1), (1, 2), (1, 3, 4)),
    Case("dilated, groups", (4, 3), (2, 3), (1, 2), (3, 2), (2, 1), (1, 3), (0, 1), (2, 3, 2)),
    Case("depthwise", (5, 4), (3, 2), (1, 1), (1, 1), (1, 1), (1, 0), (0, 0), (6, 1, 1)),
    Case("wide", (4, 5), (3, 3), (1, 1), (1, 1), (1, 0), (1, 2), (0, 0), (1, 24, 32)),
    Case("1-D, groups", (7,), (4,), (3,), (1,), (1,), (2,), (2,), (3, 2, 1)),
    Case(
        "3-D",
        (2, 3, 2), (2, 1, 3), (1, 2, 2), (2, 1, 1), (1, 0, 1), (0, 0, 2), (0, 1, 1), (1, 2, 3),
    ),
)  # fmt: skip


def reference(case: Case, result: str, given: Tensors) -> Array:
    """Fill one tensor of the defining sum from the other two, in float64."""
    tensors = {name: np.zeros(shape) for name, shape in case.shapes.items()} | given
    apart = {name: _groups_first(case, name, x) for name, x in tensors.items()}
    found = _reference.fill(result, apart, case.strides, case.dilations, case.pads_begin)
    return np.moveaxis(found, 0, -2).reshape(case.shapes[result])


def _groups_first(case: Case, name: str, x: Array) -> Array:
    """`x` with the groups on the first axis: data (g, n, ..., channel), kernel (g, ..., i, o)."""
    return np.moveaxis(x.reshape(*x.shape[:-1], case.channels[0], -1), -2, 0)


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
    for case in CASES:
        try:
            _check_case(finding, case)
        except Exception as error:  # shown as a line, not as a traceback
            finding.complaints.append(f"{case.name}: {one_line(error)}")
    return finding


def one_line(error: Exception) -> str:
    """An error without its traceback and the tail of its message."""
    return f"{type(error).__name__}: {(str(error).strip() or 'no message').splitlines()[0]}"


def _check_case(finding: Finding, case: Case) -> None:
    result, operands = OPERATIONS[finding.operation]
    rng = np.random.default_rng(case.terms(result))
    whole, broken = integers(rng, case, operands), floats(rng, case, operands)
    problems = [(whole, dtype) for dtype in DTYPES.values()] + [(broken, np.float32)]
    *found, found_random = _run(finding.operation, case, problems)

    exact = reference(case, result, whole)
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
                f"{case.name}, {label} integers: {wrong} of {values.size} elements are wrong"
            )

    exact = reference(case, result, broken)
    error = float(np.max(np.abs(found_random - exact)) / np.max(np.abs(exact)))
    error = math.inf if math.isnan(error) else error
    # Errors add up like a random walk, with the root of the number of terms.
    bound = float(4 * np.finfo(np.float32).eps * math.sqrt(case.terms(result)))
    if error / bound >= finding.error / finding.bound:
        finding.error, finding.bound = error, bound
    if error > bound:
        finding.complaints.append(f"{case.name}, random f32: off by {error:.1e}, above the bound")


def integers(rng: np.random.Generator, case: Case, operands: tuple[str, ...]) -> Tensors:
    """Integers whose products and sums are exact in f32, so that any result is right or wrong.

    They are wide, so that a partial sum rounded to 16 bits would show; but each is below
    2**8, so that multiplying in TF32 or bf16 is exact, and their sums fit into f16.
    """
    most_terms = max(case.terms(name) for name in case.shapes)
    limit = min(math.isqrt(60_000 // most_terms), 200)
    return {
        name: np.asarray(rng.integers(-limit, limit, case.shapes[name], endpoint=True), np.float64)
        for name in operands
    }


def floats(rng: np.random.Generator, case: Case, operands: tuple[str, ...]) -> Tensors:
    """Normally distributed float32."""
    return {name: rng.standard_normal(case.shapes[name], np.float32) for name in operands}


def _run(operation: str, case: Case, problems: list[tuple[Tensors, Any]]) -> list[Array]:
    """The operation's own results, from one program: compiling is what takes the time."""
    result, operands = OPERATIONS[operation]
    shape = [case.shapes[result]] if operation in SHAPED else []
    transposed = {"output_padding": case.rest} if operation.startswith("conv_transpose") else {}
    compute = partial(
        getattr(jaxconv, operation),
        strides=case.strides,
        pads_begin=case.pads_begin,
        pads_end=case.pads_end,
        dilations=case.dilations,
        groups=case.channels[0],
        precision="highest",  # the bound holds for f32, which not every default is
        **transposed,
    )
    arguments = [
        [jax.numpy.asarray(given[name].astype(dtype)) for name in operands]
        for given, dtype in problems
    ]
    found = jax.jit(lambda problems: [compute(*tensors, *shape) for tensors in problems])(arguments)
    return [np.asarray(values) for values in found]
