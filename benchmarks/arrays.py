"""How the test arrays are made and laid out: channels last is the order that files hold."""

import zlib
from collections.abc import Callable, Sequence

import numpy as np

from benchmarks.layer import DTYPES, Ints, Layer


def operands(layer: Layer, op: str, dtype: str) -> tuple[np.ndarray, ...]:
    """Random normal inputs of `op`, exactly representable in `dtype`, held in f32 (f64)."""
    seed = zlib.crc32(f"{layer.name} {op}".encode())
    rng = np.random.default_rng(seed)
    lead = (layer.members,) if layer.members > 1 else ()
    shapes = ((*lead, *shape) for shape in layer.op_shapes(op)[:2])
    return tuple(representable(rng.standard_normal(shape), dtype) for shape in shapes)


def representable(x: np.ndarray, dtype: str) -> np.ndarray:
    """`x` rounded to `dtype`, in a type that .npy files know."""
    import ml_dtypes  # noqa: F401  makes NumPy know bfloat16

    return x.astype(DTYPES[dtype]).astype("float64" if dtype == "f64" else "float32")


def conversions(layer: Layer, op: str, layout: str) -> tuple[list[Callable], Callable]:
    """How each operand of `op` gets to `layout`, and the result back; of all members at once."""

    def of_each(function: Callable, kernel: bool) -> Callable:
        if layer.members == 1:
            return lambda x: function(x, layout, kernel)
        return lambda x: np.stack([function(one, layout, kernel) for one in x])

    *kernels, result_is_kernel = IS_KERNEL[op]
    return [of_each(to_layout, k) for k in kernels], of_each(from_layout, result_is_kernel)


def to_layout(x: np.ndarray, layout: str, kernel: bool) -> np.ndarray:
    """From channels last to `layout`."""
    return np.ascontiguousarray(x.transpose(_order(x.ndim, layout, kernel)))


def from_layout(x: np.ndarray, layout: str, kernel: bool) -> np.ndarray:
    """Back from `layout` to channels last."""
    return np.ascontiguousarray(x.transpose(np.argsort(_order(x.ndim, layout, kernel))))


def shapes_in(layer: Layer, op: str, layout: str) -> list[Ints]:
    """The shapes of both operands of `op` and of its result in `layout`."""
    shapes = zip(layer.op_shapes(op), IS_KERNEL[op], strict=True)
    return [tuple(s[at] for at in _order(len(s), layout, kernel)) for s, kernel in shapes]


#: By op, which of the two operands and the result is a kernel.
IS_KERNEL = dict.fromkeys(("forward", "data"), (False, True, False))
IS_KERNEL |= {"weights": (False, False, True)}


def _order(rank: int, layout: str, kernel: bool) -> Sequence[int]:
    """Where the axes of an array stand channels last; a kernel is (coarse, fine per group, X)."""
    last = rank - 1
    if layout == "NXC":
        return range(rank)
    return (last, last - 1, *range(last - 1)) if kernel else (0, last, *range(1, last))
