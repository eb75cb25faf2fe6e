"""A network's inference in PyTorch, channels last in memory; eager, or compiled and frozen."""

from collections.abc import Callable

import torch
import torch.nn.functional as F

from benchmarks import inference_networks
from benchmarks.engines import _torch_step


def forward(name: str, operands: list[torch.Tensor], compiling: bool) -> Callable:
    """A call that gives the logits; compiled, it has run once."""
    images, *parameters = operands
    network = Network(name, parameters).eval()
    if compiling:
        from torch._inductor import config

        config.freezing = True  # weights are constants, which oneDNN packs once
        torch.compiler.reset()  # a network is compiled for each batch, and any number of them
        network = torch.compile(network, fullgraph=True, dynamic=False)

    @torch.inference_mode()
    def call() -> torch.Tensor:
        return network(images)

    if compiling:
        call()
    return call


class Network(torch.nn.Module):
    """A network whose parameters are the module's own, as freezing asks."""

    def __init__(self, name: str, parameters: list[torch.Tensor]):
        super().__init__()
        self.name = name
        frozen = (torch.nn.Parameter(x, requires_grad=False) for x in parameters)
        self.own = torch.nn.ParameterList(frozen)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return inference_networks.logits(self.name, Ops(), [images, *self.own])


class Ops(_torch_step.Ops):
    """What inference_networks.py asks of an engine; a convolution's dst is overwritten."""

    def __init__(self):
        super().__init__(convolve=None)

    def layer(self, x, w, b, family, stride, pad, groups, activation, residual):
        convolve = F.conv2d if family == "conv" else F.conv_transpose2d
        y = convolve(x, w, b, stride, pad, groups=groups)
        y = y if residual is None else y.add_(residual)
        return ACTIVATIONS[activation](y)

    def dense(self, x, w, b):
        return torch.addmm(b, x, w)

    def max_pool(self, x, k, s, pad):
        return F.max_pool2d(x, k, s, pad)

    def mean_pixel(self, x):
        return x.mean((2, 3), keepdim=True)

    def multiply(self, x, y):
        return x * y


ACTIVATIONS: dict[str | None, Callable[[torch.Tensor], torch.Tensor]] = {
    None: lambda y: y,
    "relu": F.relu_,
    "relu6": lambda y: F.relu6(y, inplace=True),
    "silu": lambda y: F.silu(y, inplace=True),
    "sigmoid": torch.sigmoid_,
}
