"""What an activation computes, in NumPy float64."""

import math

import numpy as np

erf = np.vectorize(math.erf)


def sigmoid(x):
    return (1 + np.tanh(x / 2)) / 2  # which does not overflow


def gelu_tanh(x):
    return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


#: name -> its formula, in float64
FORMULAS = {
    None: lambda x: x,
    "relu": lambda x: np.maximum(x, 0),
    "relu6": lambda x: np.clip(x, 0, 6),
    "leaky_relu": lambda x: np.where(x > 0, x, x / 4),
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "tanh": np.tanh,
    "sigmoid": sigmoid,
    "gelu_erf": lambda x: x / 2 * (1 + erf(x / math.sqrt(2))),
    "gelu_tanh": gelu_tanh,
    "silu": lambda x: x * sigmoid(x),
}
ALPHA = {"leaky_relu": 0.25}
EXACT = (None, "relu", "relu6", "leaky_relu")
SMOOTH = tuple(name for name in FORMULAS if name not in EXACT)
#: Sums at which a smooth function bends, and which it saturates at.
POINTS = np.concatenate([np.linspace(-6, 6, 97), [-80, -20, 20, 80]]).astype(np.float32)
