"""How the test arrays are made and laid out: channels last is the order that files hold."""

import zlib
from collections.abc import Callable

import numpy as np

from benchmarks.layer import DTYPES, Ints, Layer


def operands(layer: Layer, op: str, dtype: str) -> tuple[np.ndarray, np.ndarray]:
    """Random normal inputs of `op`, exactly representable in `dtype`, held in f32 (f64)."""
    seed = zlib.crc32(f"{layer.name} {op}".encode())
    rng = np.random.default_rng(seed)
    lead = (layer.members,) if layer.members > 1 else ()
    shapes = ((*lead, *shape) for shape in layer.operand_shapes(op))
    return tuple(representable(rng.standard_normal(shape), dtype) for shape in shapes)


def conversions(layer: Layer, op: str, layout: str) -> tuple[list[Callable], Callable]:
    """How each operand of `op` gets to `layout`, and the result back; of all members at once."""

    def of_each(function: Callable, kernel: bool) -> Callable:
        if layer.members == 1:
            return lambda x: function(x, layout, kernel)
        return lambda x: np.stack([function(one, layout, kernel) for one in x])

    *kernels, result_is_kernel = is_kernel(op)
    return [of_each(to_layout, k) for k in kernels], of_each(from_layout, result_is_kernel)


def representable(x: np.ndarray, dtype: str) -> np.ndarray:
    """`x` rounded to `dtype`, in a type that .npy files know."""
    import ml_dtypes  # noqa: F401  makes NumPy know bfloat16

    return x.astype(DTYPES[dtype]).astype("float64" if dtype == "f64" else "float32")


def to_layout(x: np.ndarray, layout: str, kernel: bool) -> np.ndarray:
    """From channels last to `layout`; a kernel becomes (coarse, fine per group, X)."""
    if layout == "NXC":
        return x
    return np.ascontiguousarray(x.transpose(_channels_first(x.ndim, kernel)))


def _channels_first(rank: int, kernel: bool) -> Ints:
    """Where the axes of a channels-first tensor stand channels last."""
    last = rank - 1
    return (last, last - 1, *range(last - 1)) if kernel else (0, last, *range(1, last))


def shapes_in(layer: Layer, op: str, layout: str) -> list[Ints]:
    """The shapes of the two operands of `op` in `layout`."""
    shapes = zip(layer.operand_shapes(op), is_kernel(op), strict=False)
    if layout == "NXC":
        return [shape for shape, _ in shapes]
    return [tuple(s[at] for at in _channels_first(len(s), kernel)) for s, kernel in shapes]


def from_layout(x: np.ndarray, layout: str, kernel: bool) -> np.ndarray:
    """Back from `layout` to channels last."""
    if layout == "NXC":
        return x
    order = (*range(2, x.ndim), 1, 0) if kernel else (0, *range(2, x.ndim), 1)
    return np.ascontiguousarray(x.transpose(order))


def data_shape(batch: int, size: Ints, channels: int, layout: str) -> Ints:
    """The shape of a src or dst in `layout`."""
    return (batch, *size, channels) if layout == "NXC" else (batch, channels, *size)


def kernel_shape(layer: Layer, layout: str) -> Ints:
    """The shape of the weights in `layout`."""
    *size, fine, coarse = layer.shapes["kernel"]
    return (*size, fine, coarse) if layout == "NXC" else (coarse, fine, *size)


def is_kernel(op: str) -> tuple[bool, bool, bool]:
    """Of the two operands and the result of `op`, which is a kernel."""
    return (False, False, True) if op == "weights" else (False, True, False)
