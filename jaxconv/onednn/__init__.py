"""The six operations under the names of the oneDNN Graph API, today's and the older ones.

`apply` takes an operation's kind, its inputs and its attributes as that API's pages list
them, for graphs that come from there:

>>> import numpy as np
>>> from jaxconv import onednn
>>> src = np.float32([1, 2, 4, 8]).reshape(1, 4, 1)  # one image, 4 long, one channel
>>> weights = np.float32([1, 10, 100]).reshape(3, 1, 1)
>>> window = {"strides": [1], "pads_begin": [1], "pads_end": [0], "dilations": [1]}
>>> dst = onednn.apply("Convolution", [src, weights], window)
>>> dst.ravel().tolist()
[210.0, 421.0, 842.0]
>>> older = {**window, "filter_format": "XIO", "output_shape": [1, 4, 1]}
>>> named = {"output_delta": dst, "filter": weights}
>>> onednn.apply("ConvolutionBackpropData", named, older).ravel().tolist()
[2521.0, 26052.0, 50520.0, 84200.0]
"""

from jaxconv.onednn._convolutions import KINDS, apply

__all__ = ["KINDS", "apply"]
