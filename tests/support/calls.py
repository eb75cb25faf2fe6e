"""A valid call of each operation, to be broken: with some arguments changed, what the error says.

Tensors are written as their shapes. All six read their arguments by one parser, as
`test_all_six_share_the_parser` shows; so each of its rules is asked of one operation, `OP`.
"""

import numpy as np
import pytest

import jaxconv

FINE, COARSE, KERNEL = (2, 7, 6, 4), (2, 3, 4, 6), (3, 2, 2, 6)
ATTRIBUTES = {"strides": (2, 1), "dilations": (1, 2), "groups": 2}
VALID = {
    "convolution": {"src": FINE, "weights": KERNEL},
    "convolution_backward_data": {"diff_dst": COARSE, "weights": KERNEL, "dst_shape": FINE},
    "convolution_backward_weights": {"src": FINE, "diff_dst": COARSE, "weights_shape": KERNEL},
    "conv_transpose": {"src": COARSE, "weights": KERNEL},
    "conv_transpose_backward_data": {"diff_dst": FINE, "weights": KERNEL},
    "conv_transpose_backward_weights": {"src": COARSE, "diff_dst": FINE, "weights_shape": KERNEL},
}
OP = "conv_transpose"  # which has every attribute
TENSORS = ("src", "diff_dst", "weights", "bias", "residual")


def array(shape, dtype=np.float32):
    return np.arange(1, 1 + np.prod(shape)).reshape(shape).astype(dtype)


def call(op, **changes):
    """The valid call of `op` with some arguments changed; tensors may be given by shape."""
    arguments = VALID[op] | ATTRIBUTES | changes
    for name in TENSORS:
        if type(arguments.get(name)) is tuple:
            arguments[name] = array(arguments[name])
    return getattr(jaxconv, op)(**arguments)


def message(exception, op, **changes):
    """What `op` says of these changes, after its own name."""
    with pytest.raises(exception) as caught:
        call(op, **changes)
    assert type(caught.value) is exception
    prefix, text = str(caught.value).split(": ", 1)
    assert prefix == op
    return text


class Hostile:
    """Whatever it is asked raises an error of its own."""

    def _raise(self, *_):
        raise RuntimeError("hostile")

    __index__ = __int__ = __float__ = __repr__ = __str__ = __len__ = __iter__ = __array__ = _raise
    __eq__ = __bool__ = __jax_array__ = __getitem__ = _raise
    __hash__ = None
    shape = property(_raise)
