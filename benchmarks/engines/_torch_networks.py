"""Training steps and inferences in PyTorch, channels first.

A step is in either memory format, an inference channels last; eager, or compiled and frozen.
"""

from collections.abc import Callable

import torch
import torch.nn.functional as F

from benchmarks import networks


def step(name: str, operands: list[torch.Tensor]) -> Callable:
    """A call that gives the loss, and the parameters after one SGD step."""
    network = networks.NETWORKS[name]
    data, changing, frozen = network.split(operands)
    for p in changing:
        p.requires_grad_(True)

    def call() -> list[torch.Tensor]:
        loss = network.evaluate(Ops(), data, [*changing, *frozen])
        gradients = torch.autograd.grad(loss, changing)
        with torch.no_grad():
            stepped = torch._foreach_add(changing, gradients, alpha=-networks.LEARNING_RATE)
        return [loss.detach(), *stepped]

    return call


def forward(name: str, operands: list[torch.Tensor], compiling: bool) -> Callable:
    """A call that gives the logits, in a list of one; compiled, it has run once."""
    images, *parameters = operands
    network = Network(name, parameters).eval()
    if compiling:
        from torch._inductor import config

        config.freezing = True  # weights are constants, which oneDNN packs once
        torch.compiler.reset()  # a network is compiled for each batch, and any number of them
        network = torch.compile(network, fullgraph=True, dynamic=False)

    @torch.inference_mode()
    def call() -> list[torch.Tensor]:
        return [network(images)]

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
        return networks.NETWORKS[self.name].evaluate(Ops(), [images], list(self.own))


class Ops:
    """What networks ask of an engine; what a `finished` convolution makes is overwritten."""

    def conv(self, x, w, family, stride, pads, groups, b=None):
        name = f"conv{'_transpose' if family == 'deconv' else ''}{x.ndim - 2}d"
        return getattr(F, name)(x, w, b, stride, pads, groups=groups)

    def finished(self, x, w, b, family, stride, pads, groups, activation, residual):
        y = self.conv(x, w, family, stride, pads, groups, b)
        y = y if residual is None else y.add_(residual)
        return IN_PLACE[activation](y)

    def norm(self, x, scale, shift):
        return F.batch_norm(x, None, None, scale, shift, training=True)

    def activate(self, x, name):
        return getattr(F, name)(x)

    def concat(self, x, y):
        return torch.cat((x, y), dim=1)

    def max_pool(self, x, k=2, s=2, pad=0):
        return F.max_pool2d(x, k, s, pad)

    def flatten(self, x):
        return x.permute(0, 2, 3, 1).flatten(1)

    def mean(self, x, keep=False):
        return x.mean(tuple(range(2, x.ndim)), keepdim=keep)

    def linear(self, x, w, b):
        return torch.addmm(b, x, w)

    def cross_entropy(self, logits, labels):
        return -(F.log_softmax(_wide(logits), dim=1) * _wide(labels)).sum(1).mean()

    def logistic_loss(self, logits, target):
        return F.softplus((1.0 - 2.0 * target) * _wide(logits)).mean()


IN_PLACE: dict[str | None, Callable[[torch.Tensor], torch.Tensor]] = {
    None: lambda y: y,
    "relu": F.relu_,
    "relu6": lambda y: F.relu6(y, inplace=True),
    "silu": lambda y: F.silu(y, inplace=True),
    "sigmoid": torch.sigmoid_,
}


def _wide(x: torch.Tensor) -> torch.Tensor:
    """At least f32, for what would lose too much in 16 bits."""
    return x.float() if x.element_size() < 4 else x
