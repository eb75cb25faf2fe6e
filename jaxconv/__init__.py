"""The oneDNN Graph convolution family for JAX: exact, differentiable, fast.

Convolution and transposed convolution, each with the two Backward operations that are its
gradients::

    convolution       convolution_backward_data       convolution_backward_weights
    conv_transpose    conv_transpose_backward_data    conv_transpose_backward_weights

All six take these attributes by keyword, but not all an `output_padding` or an `activation`. An
attribute "per axis" is an int for all spatial axes or a sequence with one int for each.

strides, dilations (per axis, at least 1)
    The step of the window, and the distance between its taps. A kernel of k taps reaches
    over ``EK = dilations*(k - 1) + 1``.
pads_begin, pads_end (per axis, at least 0; an empty list is zeros)
    Zeros around src for a convolution; pixels cropped from dst for a transposed convolution.
auto_pad
    ``"none"`` (also None, "NOTSET", "explicit") takes the pads as given; the others
    ignore pads. ``"valid"`` is no padding. ``"same_upper"`` and ``"same_lower"`` make dst of
    a convolution ``ceil(src / strides)``, and of a transposed convolution ``strides * src``
    (where EK >= strides). If the padding is odd, same_upper puts the extra zero at the end,
    same_lower at the beginning.
groups
    Channels meet only within one of `groups` equal parts; output channels are group-major.
data_format
    ``"NXC"`` (channels last) or ``"NCX"``, where X stands for all spatial axes.
weights_format
    The order of the weights' axes: ``"OIX"``, ``"XIO"``, ``"IOX"`` or ``"XOI"``. I meets
    src and O meets dst of the forward operation, in its Backward operations too. With
    groups, a convolution's I axis holds IC/groups channels. A transposed convolution's O axis
    holds OC/groups, or else its I axis holds IC/groups: both readings are in use and mean the
    same numbers, and the extents tell them apart. (So a wrong format of transposed weights may
    pass for the other reading, mostly where IC = OC.)
output_padding (per axis, at least 0)
    Extra extent at the end of the fine tensor: of dst for a transposed convolution. All but
    `convolution` and `convolution_backward_weights` take an output_padding, which decides the
    shape of the result in `conv_transpose` and `convolution_backward_data`; there, ``dst_shape``
    may give the full shape instead.
activation
    What `convolution` and `conv_transpose` apply to the sum, bias and `residual` included, before
    the one rounding: None, ``"relu"``, ``"relu6"``, ``"leaky_relu"``, ``"elu"``, ``"tanh"``,
    ``"sigmoid"``, ``"gelu_erf"``, ``"gelu_tanh"`` or ``"silu"``, also named ``"swish"``. A float
    ``alpha`` of at least 0 is the slope of leaky_relu below 0, and the scale of elu (1 by default).
precision
    As in `jax.lax`; None is `jax.default_matmul_precision` at the time of the call, for
    the derivatives too.
preferred_element_type
    A wider type for the result. Types are float32, bfloat16, float16 and float64, the same for all
    arguments but `residual`; sums of 16-bit products are kept in float32 and rounded once.
out_sharding
    The result's sharding on a mesh with explicit axes. By default each axis keeps its
    sharding, and contracted axes are summed.

Malformed arguments raise TypeError or ValueError, which name the argument and its rule.

`jaxconv.lax` has the signatures of `jax.lax`, and `jaxconv.torch` has the signatures of
`torch.nn.functional`. `jaxconv.onnx.apply` takes a node of ONNX, of floats or of 8-bit integers.
`jaxconv.onednn.apply` takes the names of oneDNN Graph, and `jaxconv.onednn` runs whole graphs.
`jaxconv.install` changes how the convolutions of `jax.lax` are compiled, whoever calls them.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from jaxconv._base import environment
from jaxconv._ops.conv_transpose import (
    conv_transpose,
    conv_transpose_backward_data,
    conv_transpose_backward_weights,
)
from jaxconv._ops.convolution import (
    convolution,
    convolution_backward_data,
    convolution_backward_weights,
)
from jaxconv._rules.resolve import Resolved
from jaxconv._tools import log as _log

if TYPE_CHECKING:
    from jaxconv import lax, onednn, onnx, torch
    from jaxconv._lax.install import enabled, install, installed, uninstall
    from jaxconv._lowering import Measured, UntestedJaxlibWarning, forced
    from jaxconv._tools.explain import Explanation, explain
    from jaxconv._tools.inspect import contractions_saveable, resolve
    from jaxconv._tools.measure import measure
    from jaxconv._tools.profile import Report, profile
    from jaxconv._tools.profile import load_ipython_extension as load_ipython_extension
    from jaxconv._tools.profile import unload_ipython_extension as unload_ipython_extension

__version__ = "0.1.0"

__all__ = [
    "Explanation",
    "Measured",
    "Report",
    "Resolved",
    "UntestedJaxlibWarning",
    "contractions_saveable",
    "conv_transpose",
    "conv_transpose_backward_data",
    "conv_transpose_backward_weights",
    "convolution",
    "convolution_backward_data",
    "convolution_backward_weights",
    "enabled",
    "explain",
    "forced",
    "install",
    "installed",
    "lax",
    "measure",
    "onednn",
    "onnx",
    "profile",
    "resolve",
    "torch",
    "uninstall",
]

#: The names that are imported when first used, so that importing the package is quick.
_LATER = {
    "_lax.install": ("enabled", "install", "installed", "uninstall"),
    "_lowering": ("Measured", "UntestedJaxlibWarning", "forced"),
    "_tools.explain": ("Explanation", "explain"),
    "_tools.inspect": ("contractions_saveable", "resolve"),
    "_tools.measure": ("measure",),
    "_tools.profile": (
        "Report", "load_ipython_extension", "profile", "unload_ipython_extension"
    ),
}  # fmt: skip
_MODULES = {name: module for module, names in _LATER.items() for name in names}
_MODULES |= {name: name for name in ("lax", "onednn", "onnx", "torch")}


if not TYPE_CHECKING:  # a type checker would take it that every name is there

    def __getattr__(name: str) -> Any:
        if name not in _MODULES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = import_module(f"{__name__}.{_MODULES[name]}")
        globals()[name] = value = module if name == _MODULES[name] else getattr(module, name)
        return value


def __dir__() -> list[str]:
    return [*__all__, *(name for name in globals() if name.startswith("_"))]


_log.set_up()
if (_mode := environment.read("JAXCONV_INSTALL", ("1", "profile", "0"), "0")) != "0":
    import_module("jaxconv._lax.install").install_as_told(_mode)
