"""ONNX's convolutions by their names: one node at a time, of floats or of 8-bit integers.

`jaxconv.onednn` is another thing: oneDNN Graph. `apply` takes an operator's name, attributes and
inputs as ONNX's page of the operator lists these:

>>> import numpy as np
>>> from jaxconv import onnx
>>> x = np.float32([1, 2, 4, 8]).reshape(1, 1, 4)  # one image, one channel, 4 long
>>> w = np.float32([1, 10, 100]).reshape(1, 1, 3)
>>> attributes = {"auto_pad": "SAME_UPPER", "strides": [2]}
>>> onnx.apply("Conv", attributes, [x, w]).ravel().tolist()
[421.0, 84.0]
>>> x, w = x.astype(np.uint8), w.astype(np.int8)
>>> onnx.apply("ConvInteger", attributes, [x, w, np.uint8(1)]).ravel().tolist()
[310, 73]

`apply_node` takes a `NodeProto` as it is. Neither needs the package `onnx`.

Float operators are `jaxconv.convolution` and `jaxconv.conv_transpose`, with their derivatives.
Integers are summed in int32, exactly, and have no derivatives. Quantised results are
``saturate(round(sum * (x_scale*w_scale/y_scale)) + y_zero_point)`` in float32, where round takes
ties to the even integer. All work under `jax.jit` and `jax.vmap`. Axes are in ONNX's order, and
pads are zeros, which an integer operator adds after it took off the zero point.
"""

from jaxconv.onnx._apply import apply, apply_node
from jaxconv.onnx._operators import NEWEST_OPSET, OP_TYPES

__all__ = ["NEWEST_OPSET", "OP_TYPES", "apply", "apply_node"]
