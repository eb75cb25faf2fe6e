"""Raw JAX: a net of two layers with its backward pass written out, the batch over all devices.

The explicit backward operations are local to a device, so that their sums over devices are
written out, too: one for each weights gradient.

    XLA_FLAGS=--xla_force_host_platform_device_count=2 python examples/shard_map.py
"""

from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
from common import digits, run
from jax import lax
from jax.sharding import AxisType
from jax.sharding import PartitionSpec as P

import jaxconv

FIRST = {"strides": 2, "auto_pad": "same_upper"}


def main(steps=200, batch=64, width=32, enlarged=4):
    images, labels = digits(4 * batch, enlarged)
    batches = [(images[n::4], np.eye(10, dtype=np.float32)[labels[n::4]]) for n in range(4)]
    depthwise = FIRST | {"groups": width}
    draw = np.random.default_rng(0).standard_normal
    params = [
        np.float32(scale * draw(shape))
        for scale, shape in (
            (0.5, (3, 3, 1, width)),
            (0.3, (3, 3, 1, width)),
            (0.3, (width, 10)),
        )
    ]
    mesh = jax.make_mesh((jax.device_count(),), ("batch",), axis_types=(AxisType.Auto,))

    @jax.jit
    @partial(
        jax.shard_map,
        mesh=mesh,
        in_specs=(P(), P("batch"), P("batch")),
        out_specs=(P(), P()),
        check_vma=False,
    )
    def step(params, x, y):
        first, second, last = params
        a = jaxconv.convolution(x, first, **FIRST)
        h = jax.nn.relu(a)
        b = jaxconv.convolution(h, second, **depthwise)
        mean = jax.nn.relu(b).mean((1, 2))
        logits = mean @ last
        loss = -(jax.nn.log_softmax(logits) * y).sum(1).mean()

        d_logits = (jax.nn.softmax(logits) - y) / len(y)
        d_mean = d_logits @ last.T
        d_b = jnp.where(b > 0, d_mean[:, None, None] / (b.shape[1] * b.shape[2]), 0)
        d_second = jaxconv.convolution_backward_weights(h, d_b, second.shape, **depthwise)
        d_h = jaxconv.convolution_backward_data(d_b, second, h.shape, **depthwise)
        d_a = jnp.where(a > 0, d_h, 0)
        d_first = jaxconv.convolution_backward_weights(x, d_a, first.shape, **FIRST)

        slopes = lax.pmean([d_first, d_second, mean.T @ d_logits], "batch")
        params = [p - 2.0 * slope for p, slope in zip(params, slopes, strict=True)]
        return params, lax.pmean(loss, "batch")

    losses, ms = run(step, params, batches, steps)
    print(f"jaxconv: loss {losses[0]:.3f} to {losses[-1]:.3f}, {ms:.1f} ms a step")
    return [losses]


if __name__ == "__main__":
    main()
