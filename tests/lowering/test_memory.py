"""XLA's temporary memory: a few times the tensors at most, whatever the sizes."""

import jax
import numpy as np
import pytest

import jaxconv
from benchmarks.arrays import data_shape, kernel_shape
from benchmarks.engines.jaxconv import contraction
from benchmarks.random_layers import layers

#: Layouts, type and form of one layer after another.
WAYS = (
    ("NXC", "float32", None),
    ("NXC", "float32", "portable"),
    ("NCX", "float32", None),
    ("NXC", "bfloat16", None),
    ("NXC", "bfloat16", "portable"),
)
LAYERS, PART = 60, 20


def shapes(layer, op, layout):
    data = {
        "src": data_shape(layer.batch, layer.src_size, layer.src_channels, layout),
        "dst": data_shape(layer.batch, layer.dst_size, layer.dst_channels, layout),
    }
    kernel = kernel_shape(layer, layout)
    return {
        "forward": (data["src"], kernel, data["dst"]),
        "data": (data["dst"], kernel, data["src"]),
        "weights": (data["src"], data["dst"], kernel),
    }[op]


def excess(layer, op, layout, dtype, form):
    """Temporary bytes beyond three times those of operands and result."""
    *operands, result = shapes(layer, op, layout)
    types = [jax.ShapeDtypeStruct(shape, dtype) for shape in operands]
    with jaxconv.forced(form):
        compiled = jax.jit(contraction(layer, op, layout)).lower(*types).compile()
    bytes_of = sum(np.prod(shape) for shape in (*operands, result)) * np.dtype(dtype).itemsize
    return compiled.memory_analysis().temp_size_in_bytes - 3 * bytes_of


@pytest.mark.slow
@pytest.mark.parametrize("part", range(LAYERS // PART))
def test_temporary_memory_of_random_layers(part):
    """As networks have them."""
    too_much = {}
    for number, layer in enumerate(layers(LAYERS, seed=77)[part * PART :][:PART]):
        for op in ("forward", "data", "weights"):
            way = WAYS[number % len(WAYS)]
            if (found := excess(layer, op, *way)) > 32 << 20:
                too_much[layer.name, op, *way] = found >> 20
    assert not too_much
