"""PyTorch's convolutions by their names, for those who come from there; PyTorch is not needed.

The functions have the signatures of `torch.nn.functional`, and the modules' `padding_mode`. Data
is channels first, (N, C, X...) or (C, X...), and weights are PyTorch's own: (out, in/groups, X...)
of a convolution, (in, out/groups, X...) of a transposed one. So a state dict is used as it is:

>>> import jax.numpy as jnp, numpy as np
>>> from jaxconv import torch as F
>>> image = jnp.arange(16.0).reshape(1, 4, 4)
>>> state = F.load({"up.weight": np.ones((1, 2, 2, 2), np.float32)})
>>> padding = F.find_output_padding(image, state["up.weight"], (9, 9), stride=2)
>>> F.conv_transpose2d(image, state["up.weight"], stride=2, output_padding=padding).shape
(2, 9, 9)
>>> F.conv2d(image, jnp.ones((1, 1, 3, 3)), padding="same", padding_mode="circular")[0, 0].tolist()
[60.0, 57.0, 66.0, 63.0]

Each function checks PyTorch's rules, computes by one of the six operations of :mod:`jaxconv`, and
has derivatives of any order. An error is a ValueError or a TypeError. Four things differ from
PyTorch: integers and complex numbers are refused, so are negative pads in every `padding_mode`, a
result without elements is an error (except for a batch of 0, whose other arguments are checked as
for any batch), and 16-bit numbers are summed in
float32 and rounded once.
"""

from jaxconv.torch._functional import (
    conv1d,
    conv2d,
    conv3d,
    conv_transpose1d,
    conv_transpose2d,
    conv_transpose3d,
    find_output_padding,
)
from jaxconv.torch._load import load

__all__ = [
    "conv1d",
    "conv2d",
    "conv3d",
    "conv_transpose1d",
    "conv_transpose2d",
    "conv_transpose3d",
    "find_output_padding",
    "load",
]
