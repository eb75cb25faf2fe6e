"""Classes of layers, as the tables of GPU and TPU tell them apart, tiny; and their operations.

A class is asked by the transposed operations: one for each slot that is filled.
"""

from dataclasses import dataclass, replace

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.support.forms import CHANNELS_FIRST, ROLES, Form

BF16, F16, F32, F64 = jnp.bfloat16, np.float16, np.float32, np.float64

OPERATIONS = {
    "coarse": "conv_transpose_backward_data",
    "fine": "conv_transpose",
    "kernel": "conv_transpose_backward_weights",
}
each_slot = pytest.mark.parametrize("slot", OPERATIONS)


@dataclass(frozen=True)
class Class(Form):
    """A form in a type."""

    dtype: object = F32

    def filling(self, slot):
        """The operation that fills a slot, as a function of arrays in its order."""
        return self.op(OPERATIONS[slot])

    def types(self, slot, sharding=None):
        """The types of its two arrays."""
        return [
            jax.ShapeDtypeStruct(self.shapes[s], self.dtype, sharding=sharding)
            for s in ROLES[OPERATIONS[slot]][:2]
        ]


PLAIN = Class((9, 7), (3, 4), (1, 1), (1, 1), (1, 2), (1, 2), (4, 6), batch=5)
STRIDED = replace(PLAIN, fine=(18, 21), strides=(2, 3))
DILATED = replace(PLAIN, fine=(9, 9), dilations=(2, 3), pads_begin=(2, 4), pads_end=(2, 4))
ONE_D = Class((10,), (4,), (1,), (1,), (1,), (1,), (4, 6), batch=5)
THREE_D = Class((18, 8, 6), (2, 3, 4), (2, 1, 1), (1, 1, 1), (0, 1, 2), (0, 1, 2), (4, 6), batch=5)
FOUR_D = Class(
    (10, 15, 6, 5), (2, 3, 2, 4), (1, 2, 1, 1), (1,) * 4, (0, 1, 1, 2), (0, 1, 1, 2), (4, 6),
    batch=5,
)  # fmt: skip
GROUPS = {"channels": (4, 6), "groups": 2}
DEPTHWISE = {"channels": (3, 6), "groups": 3}


CLASSES = {
    "dense": PLAIN, "strided": STRIDED,
    "one tap, strided": replace(
        STRIDED, fine=(17, 22), kernel=(1, 1), pads_begin=(0, 0), pads_end=(0, 0)),
    "dilated": DILATED,
    "dilated, one tap on that axis": replace(
        PLAIN, kernel=(3, 1), dilations=(1, 2), pads_begin=(1, 0), pads_end=(1, 0)),
    "dilated and strided": replace(DILATED, fine=(17, 9), strides=(2, 1)),
    "dilated and strided, coprime": replace(
        DILATED, fine=(9, 16), dilations=(1, 3), strides=(1, 2), pads_begin=(1, 4),
        pads_end=(1, 4)),
    "grouped": replace(PLAIN, **GROUPS), "grouped, strided": replace(STRIDED, **GROUPS),
    "depthwise": replace(PLAIN, **DEPTHWISE), "depthwise, strided": replace(STRIDED, **DEPTHWISE),
    "grouped, strided evenly": replace(STRIDED, fine=(18, 24), kernel=(2, 3), **GROUPS),
    "uneven": replace(PLAIN, pads_end=(2, 1)),
    "uneven, strided": replace(STRIDED, fine=(18, 22), pads_begin=(0, 1)),
    "uneven, dilated": replace(DILATED, pads_begin=(3, 4)),
    "causal": replace(ONE_D, fine=(30,), dilations=(8,), pads_begin=(24,), pads_end=(0,)),
    "pads beyond the kernel": replace(PLAIN, pads_begin=(4, 2), pads_end=(3, 5)),
    "pads beyond the kernel, dilated": replace(
        DILATED, fine=(14, 8), pads_begin=(5, 4), pads_end=(7, 4)),
    "negative": replace(PLAIN, fine=(12, 7), pads_end=(-2, 2)),
    "negative, strided": replace(STRIDED, fine=(22, 25), pads_end=(-3, -2)),
    "1-D bf16, strided and dilated": replace(
        ONE_D, fine=(21,), strides=(2,), dilations=(2,), dtype=BF16),
    "3-D, depthwise": replace(THREE_D, **DEPTHWISE), "4-D": FOUR_D,
    "bf16": replace(STRIDED, dtype=BF16), "f16": replace(STRIDED, dtype=F16),
    "f64": replace(STRIDED, dtype=F64),
    "channels-first, grouped": replace(STRIDED, formats=CHANNELS_FIRST, **GROUPS),
}  # fmt: skip
