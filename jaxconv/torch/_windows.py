"""`unfold` and `fold` of `torch.nn.functional`: the windows of an image as columns, and back."""

import math
from functools import partial
from typing import NamedTuple

import jax
import jax.numpy as jnp
from jax import Array, lax

from jaxconv._base.dtypes import ACCUMULATION
from jaxconv._base.typing import Ints, Shape
from jaxconv._rules import attributes as parse
from jaxconv._rules.arguments import TensorLike
from jaxconv.torch._rules import read_tensors

#: The least value of each argument that says how the window moves.
LEAST = {"kernel_size": 1, "dilation": 1, "padding": 0, "stride": 1}


class Window(NamedTuple):
    """A window on two axes: two ints each, in the order of `LEAST`."""

    kernel: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[int, ...]
    stride: tuple[int, ...]

    @property
    def taps(self) -> int:
        """How many pixels the window reads."""
        return math.prod(self.kernel)

    def places(self, extents: Shape) -> tuple[int, ...]:
        """Count the places of the window, on each axis."""
        return tuple(
            (n + 2 * p - d * (k - 1) - 1) // s + 1
            for n, k, d, p, s in zip(extents, *self, strict=True)
        )


def unfold(
    input: TensorLike, kernel_size: Ints, dilation: Ints = 1, padding: Ints = 0, stride: Ints = 1
) -> Array:
    """As `torch.nn.functional.unfold`: the windows of images as columns, (N, C * taps, windows).

    Args:
      input: images (N, C, H, W) or (C, H, W).
      kernel_size, dilation, padding, stride: of the window; an int, or two ints.

    Raises:
      TypeError, ValueError: an argument is malformed, or no window fits into the image.

    Example:
      >>> import jax.numpy as jnp, jaxconv
      >>> jaxconv.torch.unfold(jnp.ones((2, 5, 3, 4)), (2, 3)).shape
      (2, 30, 4)
    """
    name = "unfold"
    images = read_tensors(name, input=input)["input"]
    window = _read_window(name, kernel_size, dilation, padding, stride)
    _check_input(name, images.shape, 4, "(N, C, H, W)")
    places = window.places(images.shape[-2:])
    if min(places) < 1:
        raise ValueError(
            f"{name}: given input with spatial size {images.shape[-2:]}, {_describe(window)}, "
            f"calculated shape of the array of sliding blocks as {places}, but its components must "
            f"be at least one: pad more, or dilate less"
        )
    out: Array = _unfold(images, window)
    return out


def fold(
    input: TensorLike,
    output_size: Ints,
    kernel_size: Ints,
    dilation: Ints = 1,
    padding: Ints = 0,
    stride: Ints = 1,
) -> Array:
    """As `torch.nn.functional.fold`: columns become windows of images, and overlaps are summed.

    It is the transpose of :func:`unfold`, not its inverse.

    Args:
      input: columns (N, C * taps, windows) or (C * taps, windows).
      output_size: height and width of the images; an int, or two ints.
      kernel_size, dilation, padding, stride: of the window; an int, or two ints.

    Raises:
      TypeError, ValueError: an argument is malformed, or the sizes do not fit each other.

    Example:
      >>> import jax.numpy as jnp, jaxconv
      >>> jaxconv.torch.fold(jnp.ones((1, 3 * 2 * 2, 12)), (4, 5), (2, 2)).shape
      (1, 3, 4, 5)
    """
    name = "fold"
    columns = read_tensors(name, input=input)["input"]
    window = _read_window(name, kernel_size, dilation, padding, stride)
    size = parse.axis_ints(name, "output_size", output_size, 2, -parse.MAX_INT)
    _check_input(name, columns.shape, 3, "(N, C * taps, windows)")
    if columns.shape[-2] % window.taps:
        raise ValueError(
            f"{name}: expected size of input's dimension {columns.ndim - 2} to be divisible by the "
            f"product of kernel_size, its taps; got {columns.shape[-2]} and kernel_size="
            f"{window.kernel}"
        )
    places = window.places(size)
    if min(places) < 1 or math.prod(places) != columns.shape[-1]:
        raise ValueError(
            f"{name}: given output_size={size}, {_describe(window)}, expected size of input's "
            f"dimension {columns.ndim - 1} to match the calculated number of sliding blocks "
            f"{' * '.join(map(str, places))} = {math.prod(places)}; got {columns.shape[-1]}"
        )
    out: Array = _fold(columns, size, window)
    return out


def _read_window(
    name: str, kernel_size: object, dilation: object, padding: object, stride: object
) -> Window:
    given = dict(zip(LEAST, (kernel_size, dilation, padding, stride), strict=True))
    window = {n: parse.axis_ints(name, n, value, 2, -parse.MAX_INT) for n, value in given.items()}
    for argument, least in LEAST.items():
        if min(window[argument]) < least:
            rule = "greater than zero" if least else "non-negative"
            raise ValueError(f"{name}: {argument} should be {rule}; got {window[argument]}")
    return Window(*window.values())


def _check_input(name: str, size: Shape, axes: int, meaning: str) -> None:
    extents = size[-axes + 1 :]
    fits = len(size) in (axes - 1, axes) and all(isinstance(n, int) and n > 0 for n in extents)
    if not fits:
        raise ValueError(
            f"{name}: expected {axes - 1}D or {axes}D (batch mode) input, {meaning}, with possibly "
            f"0 batch size and other non-zero dimensions; got size {size}"
        )


def _describe(window: Window) -> str:
    return ", ".join(f"{n}={ints}" for n, ints in zip(LEAST, window, strict=True))


@partial(jax.jit, static_argnums=1)
def _unfold(images: Array, window: Window) -> Array:
    """Slice the pixels of each tap, one axis after the other."""
    out = images
    for axis, (k, d, p, s) in zip((-2, -1), zip(*window, strict=True), strict=True):
        around = {axis % out.ndim: (p, p)}
        padded = jnp.pad(out, [around.get(a, (0, 0)) for a in range(out.ndim)])
        starts, length = range(0, k * d, d), padded.shape[axis] - d * (k - 1)
        taps = [lax.slice_in_dim(padded, t, t + length, s, axis) for t in starts]
        out = jnp.stack(taps, -3)  # before height and width
    return out.reshape(*images.shape[:-3], images.shape[-3] * window.taps, -1)


@partial(jax.jit, static_argnums=(1, 2))
def _fold(columns: Array, size: Shape, window: Window) -> Array:
    """Transpose `_unfold`, summing in a wide type and rounding once."""
    sums = ACCUMULATION[columns.dtype]
    shape = (*columns.shape[:-2], columns.shape[-2] // window.taps, *size)
    unfold = partial(_unfold, window=window)
    transpose = jax.linear_transpose(unfold, jax.ShapeDtypeStruct(shape, sums))
    images: Array = transpose(columns.astype(sums))[0]
    return images.astype(columns.dtype)
