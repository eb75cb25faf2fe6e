"""The kinds of oneDNN Graph's operations, by one example that is worked out by hand.

A window of 2 taps moves in steps of 2 over 4 places of 2 channels, after one zero in front; the
last place is not reached:

    fine    (1, 2) (3, 4) (5, 6) (7, 8)      taps    (1, 10) (100, 1000)      coarse    3  5

    fine . taps       0 + 1*100 + 2*1000 = 2100      3*1 + 4*10 + 5*100 + 6*1000 = 6543
    coarse . taps     3*(100, 1000)    5*(1, 10)    5*(100, 1000)    nothing
    fine . coarse     0 + 5*(3, 4) = (15, 20)        3*(1, 2) + 5*(5, 6) = (28, 36)
"""

import re

import numpy as np
import pytest

from jaxconv import onednn


def array(values, *shape):
    return np.array(values, np.float32).reshape(shape)


FINE = array([1, 2, 3, 4, 5, 6, 7, 8], 1, 4, 2)
TAPS = array([1, 10, 100, 1000], 2, 2, 1)  # X, then the fine channels, then the coarse one
COARSE = array([3, 5], 1, 2, 1)

FINE_TAPS = array([2100, 6543], 1, 2, 1)
COARSE_TAPS = array([300, 3000, 5, 50, 500, 5000, 0, 0], 1, 4, 2)
FINE_COARSE = array([15, 20, 28, 36], 2, 2, 1)

WINDOW = {"strides": [2], "pads_begin": [1], "pads_end": [0], "dilations": [1]}
PADDED = WINDOW | {"output_padding": [1]}


def by_xio(taps):
    """The taps of a transposed convolution, XOI, as XIO."""
    return taps.swapaxes(1, 2)


#: kind: (inputs by today's names, attributes, output), with default formats
EXAMPLES = {
    "Convolution": ({"src": FINE, "weights": TAPS}, WINDOW, FINE_TAPS),
    "ConvolutionBackwardData": (
        {"diff_dst": COARSE, "weights": TAPS, "dst_shape": [1, 4, 2]}, WINDOW, COARSE_TAPS,
    ),
    "ConvolutionBackwardWeights": (
        {"src": FINE, "diff_dst": COARSE, "weights_shape": [2, 2, 1]}, WINDOW, FINE_COARSE,
    ),
    "ConvTranspose": ({"src": COARSE, "weights": TAPS}, PADDED, COARSE_TAPS),
    "ConvTransposeBackwardData": ({"diff_dst": FINE, "weights": TAPS}, PADDED, FINE_TAPS),
    "ConvTransposeBackwardWeights": (
        {"src": COARSE, "diff_dst": FINE, "weights_shape": [2, 2, 1]}, PADDED, FINE_COARSE,
    ),
    # Of the older kinds, those of a transposed convolution have weights XIO.
    "ConvTransposeBackpropData": ({"diff_dst": FINE, "weights": by_xio(TAPS)}, PADDED, FINE_TAPS),
    "ConvTransposeBackpropFilters": (
        {"src": COARSE, "diff_dst": FINE, "weights_shape": [2, 1, 2]}, PADDED, by_xio(FINE_COARSE),
    ),
}  # fmt: skip
EXAMPLES["ConvolutionBackpropData"] = EXAMPLES["ConvolutionBackwardData"]
EXAMPLES["ConvolutionBackpropFilters"] = EXAMPLES["ConvolutionBackwardWeights"]
EXAMPLES["ConvolutionBackpropWeights"] = EXAMPLES["ConvolutionBackwardWeights"]
EXAMPLES["ConvTransposeBackpropWeights"] = EXAMPLES["ConvTransposeBackpropFilters"]

#: today's name -> the older name of an attribute
OLDER_ATTRIBUTES = {
    "weights_format": "filter_format", "weights_shape": "filter_shape", "dst_shape": "output_shape",
}  # fmt: skip
every_kind = pytest.mark.parametrize("kind", EXAMPLES)


def refused(message, kind, inputs, attributes, error=ValueError):
    """The call raises exactly this error."""
    with pytest.raises(error, match=f"^{re.escape(message)}$"):
        onednn.apply(kind, inputs, attributes)
