"""What an activation computes, and a node of a graph, in NumPy float64."""

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
    "leaky_relu": lambda x: np.where(x > 0, x, 3 * x / 8),  # does not commute with rounding
    "elu": lambda x: np.where(x > 0, x, np.expm1(np.minimum(x, 0))),
    "tanh": np.tanh, "sigmoid": sigmoid, "silu": lambda x: x * sigmoid(x), "gelu_tanh": gelu_tanh,
    "gelu_erf": lambda x: x / 2 * (1 + erf(x / math.sqrt(2))),
}  # fmt: skip
ALPHA = {"leaky_relu": 0.375}
EXACT = (None, "relu", "relu6", "leaky_relu")
SMOOTH = tuple(name for name in FORMULAS if name not in EXACT)
#: Sums at which a smooth function bends, and which it saturates at.
POINTS = np.concatenate([np.linspace(-6, 6, 97), [-80, -20, 20, 80]]).astype(np.float32)


def per_channel(v, data_format):
    """One number for each channel of two spatial axes."""
    return v.reshape(-1, 1, 1) if data_format == "NCX" and v.ndim == 1 else v


def norm(x, gamma, beta, mean, variance, epsilon, data_format):
    gamma, beta, mean, variance = (
        per_channel(v, data_format) for v in (gamma, beta, mean, variance)
    )
    return gamma * (x - mean) / np.sqrt(variance + epsilon) + beta


#: kind of a node -> its formula in float64, of arrays and of attributes by name
KINDS = {
    "Abs": np.abs, "Divide": np.divide, "Exp": np.exp, "Log": np.log, "Maximum": np.maximum,
    "Minimum": np.minimum, "Multiply": np.multiply, "Round": np.rint, "Sigmoid": sigmoid,
    "Sqrt": np.sqrt, "Square": np.square, "Subtract": np.subtract, "Tanh": np.tanh,
    "Add": lambda x, y, auto_broadcast=None: x + y,
    "BatchNormInference": norm,
    "BiasAdd": lambda x, b, data_format="NXC": x + per_channel(b, data_format),
    "Clamp": lambda x, min, max: np.minimum(np.maximum(x, min), max),
    "Elu": lambda x, alpha: np.where(x < 0, alpha * np.expm1(np.minimum(x, 0)), x),
    "GELU": lambda x, mode="gelu_erf": FORMULAS[mode](x),
    "HardSigmoid": lambda x, alpha, beta: np.clip(alpha * x + beta, 0, 1),
    "HardSwish": lambda x: x * np.clip(x + 3, 0, 6) / 6,
    "LeakyReLU": lambda x, alpha: np.where(x >= 0, x, alpha * x),
    "Mish": lambda x: x * np.tanh(np.log1p(np.exp(x))),
    "PReLU": lambda x, slope, data_format="NXC", per_channel_broadcast=True: np.where(
        x >= 0, x, x * (per_channel(slope, data_format) if per_channel_broadcast else slope)
    ),
    "Pow": lambda x, beta: x**beta,
    "ReLU": lambda x: np.maximum(x, 0),
    "Reciprocal": lambda x: 1 / x,
    "Reorder": lambda x: x, "TypeCast": lambda x: x,
    "SoftPlus": lambda x, beta=1: np.log1p(np.exp(beta * x)) / beta,
    "SquaredDifference": lambda x, y: (x - y) ** 2,
}  # fmt: skip
