"""A training step in PyTorch, channels first in either memory format."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
import torch.nn.functional as F

from benchmarks import networks


def step(name: str, ops: "Ops", operands: list[torch.Tensor]) -> Callable:
    """A call that gives the loss, and the parameters after one SGD step."""
    n = networks.data_count(name)
    trainable = networks.trainable(name)
    changing = [p for p, t in zip(operands[n:], trainable, strict=True) if t]
    for p in changing:
        p.requires_grad_(True)

    def call() -> list[torch.Tensor]:
        loss = networks.loss(name, ops, operands)
        gradients = torch.autograd.grad(loss, changing)
        with torch.no_grad():
            stepped = torch._foreach_add(changing, gradients, alpha=-networks.LEARNING_RATE)
        return [loss.detach(), *stepped]

    return call


@dataclass(frozen=True)
class Ops:
    """What networks.py asks of an engine."""

    convolve: Callable  # (layer, src, weights) -> dst

    def conv(self, x, w, family, stride, pad, groups):
        src = (x.shape[0], *x.shape[2:], x.shape[1])
        kernel = (*w.shape[2:], w.shape[1], w.shape[0])
        return self.convolve(networks.as_layer(family, src, kernel, stride, pad, groups), x, w)

    def norm(self, x, scale, shift):
        return F.batch_norm(x, None, None, scale, shift, training=True)

    def relu(self, x):
        return F.relu(x)

    def relu6(self, x):
        return F.relu6(x)

    def leaky(self, x):
        return F.leaky_relu(x, 0.2)

    def tanh(self, x):
        return torch.tanh(x)

    def add(self, x, y):
        return x + y

    def concat(self, x, y):
        return torch.cat((x, y), dim=1)

    def max_pool(self, x):
        return F.max_pool2d(x, 2)

    def flatten(self, x):
        return x.permute(0, 2, 3, 1).flatten(1)

    def mean(self, x):
        return x.mean(tuple(range(2, x.ndim)))

    def linear(self, x, w):
        return x @ w

    def cross_entropy(self, logits, labels):
        return -(F.log_softmax(_wide(logits), dim=1) * _wide(labels)).sum(1).mean()

    def logistic_loss(self, logits, target):
        return F.softplus((1.0 - 2.0 * target) * _wide(logits)).mean()


def _wide(x: torch.Tensor) -> torch.Tensor:
    """At least f32, for what would lose too much in 16 bits."""
    return x.float() if x.element_size() < 4 else x
