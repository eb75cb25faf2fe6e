"""Calls as type checkers see them: what would raise is refused, and nothing else.

Never run, but read by pyright in strict mode (`.ci/run`) and by mypy (`test_package.py`). A line
that must be refused says by which of pyright's rules; if it is not, that is an error, too.
"""

import jax
import jax.numpy as jnp
import numpy as np

import jaxconv
from jaxconv import convolution, convolution_backward_weights


class Parameter:
    def __jax_array__(self) -> jax.Array:
        raise NotImplementedError


# Tensors are arrays of JAX or NumPy, or what holds one; attributes are ints or sequences of them.
def computed(
    src: jax.Array, dst: "np.ndarray[tuple[int, ...], np.dtype[np.float32]]", ints: jax.Array
) -> list[jax.Array]:
    three, held = np.array([3, 2, 4]), Parameter()
    return [
        convolution(src, held, strides=three[:1], dilations=np.int64(1), pads_end=[np.int8(1)]),
        convolution(src, held, None, strides=ints, pads_begin=(1,), groups=np.int64(1)),
        convolution(src, held, preferred_element_type=jnp.float32, auto_pad="same_upper"),
        convolution(src, held, preferred_element_type="float32", precision="highest"),
        convolution(src, held, precision=jax.lax.Precision.HIGHEST, data_format="NCX"),
        convolution_backward_weights(src, dst, three),
        convolution_backward_weights(src, dst, [np.int64(3), 2, 4]),
        convolution_backward_weights(src, dst, ints),
        jaxconv.convolution_backward_data(dst, held, (1, 5, 2), output_padding=0),
        jaxconv.conv_transpose(dst, held, src, output_padding=(0,), dst_shape=(1, 5, 2)),
        jaxconv.conv_transpose_backward_data(src, held, weights_format="OIX"),
        jaxconv.conv_transpose_backward_weights(dst, src, (3, 2, 4)),
    ]


def asked() -> tuple[int, list[str], tuple[int, ...], int]:
    found = jaxconv.explain("convolution", (1, 5, 2), (3, 2, 4))
    sizes = jaxconv.resolve(convolution, (1, 5, 2), (3, 2, 4))
    graph = jaxconv.onednn.load_graph("graph.json")
    return found.flops, [form for form, _ in found.steps], sizes.dst_shape, len(graph.nodes)


def set_up() -> None:
    jaxconv.install()
    with jaxconv.forced("portable"), jaxconv.installed():
        jaxconv.uninstall()


def refused(src: jax.Array) -> None:
    jaxconv.convolve(src, src)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType]
    found = jaxconv.explain("convolution", (1, 5, 2), (3, 2, 4))
    print(found.seconds)  # pyright: ignore[reportAttributeAccessIssue, reportUnknownMemberType, reportUnknownArgumentType]
    convolution(1.0, src)  # pyright: ignore[reportArgumentType]
    convolution(src, [1.0])  # pyright: ignore[reportArgumentType]
    convolution(src, src, 2.0)  # pyright: ignore[reportArgumentType]
    convolution(src, src, strides=1.5)  # pyright: ignore[reportArgumentType]
    convolution(src, src, strides="11")  # pyright: ignore[reportArgumentType]
    convolution(src, src, groups="1")  # pyright: ignore[reportArgumentType]
