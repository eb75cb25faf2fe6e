"""How the test arrays are made and laid out: channels last is the order that files hold."""

import zlib
from collections.abc import Sequence

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


def read(path: str) -> list[np.ndarray]:
    """The arrays of a file that `np.savez` wrote."""
    with np.load(path) as arrays:
        return list(arrays.values())


def enter(layer: Layer, op: str, layout: str, operands: Sequence[np.ndarray]) -> list[np.ndarray]:
    """The operands of `op`, of all members at once, in `layout`."""
    pairs = zip(operands, layer.slots(op)[:2], strict=True)
    return [to_layout(x, layout, slot == "kernel", layer.members) for x, slot in pairs]


def leave(layer: Layer, op: str, layout: str, result: np.ndarray) -> np.ndarray:
    """The result of `op`, of all members at once, channels last."""
    return from_layout(result, layout, op == "weights", layer.members)


def to_layout(x: np.ndarray, layout: str, kernel: bool, members: int = 1) -> np.ndarray:
    """From channels last to `layout`; several members have a leading axis."""
    return np.ascontiguousarray(x.transpose(_order(x.ndim, layout, kernel, members > 1)))


def from_layout(x: np.ndarray, layout: str, kernel: bool, members: int = 1) -> np.ndarray:
    """Back from `layout` to channels last."""
    order = np.argsort(_order(x.ndim, layout, kernel, members > 1))
    return np.ascontiguousarray(x.transpose(order))


def shapes_in(layer: Layer, op: str, layout: str) -> list[Ints]:
    """The shapes of both operands of `op` and of its result in `layout`."""
    order = {slot: _order(layer.rank + 2, layout, slot == "kernel") for slot in layer.shapes}
    return [tuple(layer.shapes[slot][at] for at in order[slot]) for slot in layer.slots(op)]


def _order(rank: int, layout: str, kernel: bool, lead: bool = False) -> Sequence[int]:
    """Where the axes of an array stand channels last; a kernel is (coarse, fine per group, X)."""
    if lead:
        return 0, *(1 + at for at in _order(rank - 1, layout, kernel))
    last = rank - 1
    if layout == "NXC":
        return range(rank)
    return (last, last - 1, *range(last - 1)) if kernel else (0, last, *range(1, last))
