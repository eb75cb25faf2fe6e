"""A PyTorch state dict in JAX as it is: OIX and IOX are PyTorch's own layouts.

pip install torch '.[examples]' && python examples/pytorch_weights.py
"""

import jax
import numpy as np
import torch

import jaxconv

NCX = {"data_format": "NCX"}


def pytorch_model(width):
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, width, 3, stride=2, padding=1, bias=False),
        torch.nn.ReLU(),
        torch.nn.Conv2d(width, 2 * width, 5, padding=2, groups=width),
        torch.nn.ReLU(),
        torch.nn.ConvTranspose2d(
            2 * width, 8, 3, stride=2, padding=1, output_padding=1, groups=4, dilation=1
        ),
    )


@jax.jit
def forward(state, x):
    """The same model. No weight is transposed, reversed or reshaped."""
    width = state["0.weight"].shape[0]
    same = {"pads_begin": 1, "pads_end": 1, "strides": 2}
    x = jaxconv.convolution(x, state["0.weight"], **same, weights_format="OIX", **NCX)
    x = jaxconv.convolution(
        jax.nn.relu(x), state["2.weight"], state["2.bias"],
        pads_begin=2, pads_end=2, groups=width, weights_format="OIX", **NCX,
    )  # fmt: skip
    return jaxconv.conv_transpose(
        jax.nn.relu(x), state["4.weight"], state["4.bias"],
        **same, output_padding=1, groups=4, weights_format="IOX", **NCX,
    )  # fmt: skip


def main(width=16, size=32):
    torch.manual_seed(0)
    model = pytorch_model(width)
    state = {name: tensor.numpy() for name, tensor in model.state_dict().items()}
    x = np.float32(np.random.default_rng(0).standard_normal((4, 3, size, size)))
    with torch.no_grad():
        expected = model(torch.from_numpy(x)).numpy()
    difference = float(np.abs(forward(state, x) - expected).max())
    print(f"outputs {expected.shape}, largest difference {difference:.1e}")
    return expected, difference


if __name__ == "__main__":
    main()
