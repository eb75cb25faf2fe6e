"""Two PyTorch models in JAX with their own weights: ResNet-18, and the generator of DCGAN.

pip install torch '.[examples]' && python examples/pytorch_models.py

The JAX functions read the arrays of PyTorch's state dict by PyTorch's names.
"""

import time
from itertools import pairwise

import jax
import jax.numpy as jnp
import numpy as np
import torch
from torch import nn

from jaxconv import torch as F


class Block(nn.Module):
    def __init__(self, into, out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(into, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(out)
        self.downsample = nn.Sequential()
        if stride != 1 or into != out:
            down = nn.Conv2d(into, out, 1, stride, bias=False)
            self.downsample = nn.Sequential(down, nn.BatchNorm2d(out))

    def forward(self, x):
        out = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(out)) + self.downsample(x))


class ResNet18(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        widths = [width << n for n in (0, 0, 1, 2, 3)]
        for n, (into, out) in enumerate(pairwise(widths), 1):
            blocks = Block(into, out, 1 if n == 1 else 2), Block(out, out, 1)
            setattr(self, f"layer{n}", nn.Sequential(*blocks))
        self.fc = nn.Linear(widths[-1], 10)

    def forward(self, x):
        x = torch.max_pool2d(torch.relu(self.bn1(self.conv1(x))), 3, 2, 1)
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(x.mean((2, 3)))


def dcgan(latent, width):
    """The generator of PyTorch's tutorial."""
    widths = [latent, *(width << n for n in (3, 2, 1, 0))]
    layers = []
    for n, (into, out) in enumerate(pairwise(widths)):
        up = nn.ConvTranspose2d(into, out, 4, 2 if n else 1, 1 if n else 0, bias=False)
        layers += [up, nn.BatchNorm2d(out), nn.ReLU()]
    last = nn.ConvTranspose2d(width, 3, 4, 2, 1, bias=False)
    return nn.Sequential(*layers, last, nn.Tanh())


def batch_norm(state, name, x):
    mean, var, scale, shift = (
        state[f"{name}.{part}"][:, None, None]
        for part in ("running_mean", "running_var", "weight", "bias")
    )
    return (x - mean) * jax.lax.rsqrt(var + 1e-5) * scale + shift


@jax.jit
def run_resnet18(state, x):
    """The same model in JAX. No weight is transposed or reshaped."""
    x = F.conv2d(x, state["conv1.weight"], stride=2, padding=3)
    x = jax.nn.relu(batch_norm(state, "bn1", x))
    window = {"window_dimensions": (1, 1, 3, 3), "window_strides": (1, 1, 2, 2)}
    padding = ((0, 0), (0, 0), (1, 1), (1, 1))
    x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, **window, padding=padding)
    for layer in (1, 2, 3, 4):
        for n in (0, 1):
            block, stride = f"layer{layer}.{n}", 2 if layer > 1 and n == 0 else 1
            out = F.conv2d(x, state[f"{block}.conv1.weight"], stride=stride, padding=1)
            out = jax.nn.relu(batch_norm(state, f"{block}.bn1", out))
            out = F.conv2d(out, state[f"{block}.conv2.weight"], padding=1)
            out = batch_norm(state, f"{block}.bn2", out)
            if f"{block}.downsample.0.weight" in state:
                x = F.conv2d(x, state[f"{block}.downsample.0.weight"], stride=stride)
                x = batch_norm(state, f"{block}.downsample.1", x)
            x = jax.nn.relu(out + x)
    return x.mean((2, 3)) @ state["fc.weight"].T + state["fc.bias"]


@jax.jit
def run_dcgan(state, x):
    x = F.conv_transpose2d(x, state["0.weight"])
    for n in (3, 6, 9, 12):
        x = jax.nn.relu(batch_norm(state, str(n - 2), x))
        x = F.conv_transpose2d(x, state[f"{n}.weight"], stride=2, padding=1)
    return jnp.tanh(x)


def compare(name, model, run, x):
    """Train nothing, but give the running statistics numbers; then compare the outputs."""
    with torch.no_grad():
        model.train()(torch.from_numpy(x))
        expected = model.eval()(torch.from_numpy(x)).numpy()
    state = F.load(model.state_dict())
    found = run(state, x)
    start = time.perf_counter()
    jax.block_until_ready(run(state, x))
    ms = 1e3 * (time.perf_counter() - start)
    difference = float(np.abs(found - expected).max() / np.abs(expected).max())
    print(f"{name}: outputs {found.shape} in {ms:.1f} ms, a difference of {difference:.1e}")
    return difference


def main(width=32, size=96, batch=4):
    torch.manual_seed(0)
    rng = np.random.default_rng(0)
    images = np.float32(rng.standard_normal((batch, 3, size, size)))
    latent = np.float32(rng.standard_normal((batch, 3 * width, 1, 1)))
    return [
        compare("ResNet-18", ResNet18(width), run_resnet18, images),
        compare("DCGAN", dcgan(3 * width, width), run_dcgan, latent),
    ]


if __name__ == "__main__":
    main()
