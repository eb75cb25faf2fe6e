"""Two real processes, joined by jax.distributed on the loopback, train as one does.

    python -m tests.transforms.test_distributed COUNT INDEX ADDRESS

is one of COUNT processes; with a COUNT of 1 it is the run to compare with, on as many devices. It
prints the loss of each step and the weights at the end, as JSON.
"""

import json
import os
import socket
import subprocess
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

import jaxconv

DEVICES, STEPS = 4, 5


def network(p, x):
    x = jnp.tanh(jaxconv.convolution(x, p["first"], auto_pad="same_upper"))
    x = jnp.tanh(jaxconv.convolution(x, p["second"], strides=(2, 1), groups=2, pads_begin=(1, 0)))
    return jaxconv.conv_transpose(
        x, p["up"], strides=(2, 1), pads_begin=(1, 0), output_padding=(1, 0)
    )


def main(count, index, address):
    jax.config.update("jax_num_cpu_devices", DEVICES // count)
    if count > 1:
        jax.distributed.initialize(address, count, index)
    assert jax.device_count() == DEVICES
    mesh = jax.make_mesh((DEVICES,), ("data",), axis_types=(AxisType.Auto,))
    batch, everywhere = NamedSharding(mesh, P("data")), NamedSharding(mesh, P())

    rng = np.random.default_rng(5)
    x = rng.standard_normal((8, 7, 6, 2)).astype(np.float32)
    shapes = {"first": (3, 3, 2, 4), "second": (3, 2, 2, 6), "up": (3, 2, 2, 6)}
    p = {name: rng.standard_normal(s).astype(np.float32) / 4 for name, s in shapes.items()}
    x = jax.make_array_from_callback(x.shape, batch, lambda at: x[at])
    p = {
        name: jax.make_array_from_callback(w.shape, everywhere, lambda at, w=w: w[at])
        for name, w in p.items()
    }

    @jax.jit
    def step(p, x):
        value, gradient = jax.value_and_grad(lambda p: ((network(p, x) - x) ** 2).mean())(p)
        return jax.tree.map(lambda w, g: w - 0.3 * g, p, gradient), value

    losses = []
    for _ in range(STEPS):
        p, value = step(p, x)
        losses.append(float(value))
    weights = {name: np.asarray(w, np.float64).ravel().tolist() for name, w in p.items()}
    print(json.dumps({"losses": losses, **weights}))


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def train(count):
    """The losses and weights that each of `count` processes found."""
    environment = os.environ | {
        "XLA_FLAGS": "",  # each process has its own number of devices
        "JAX_PLATFORMS": "cpu",
        "PYTHONPATH": os.pathsep.join(sys.path),
    }
    address = f"127.0.0.1:{free_port()}"
    program = [sys.executable, "-W", "error", "-m", __name__, str(count)]
    pipes = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    processes = [
        subprocess.Popen([*program, str(index), address], env=environment, text=True, **pipes)
        for index in range(count)
    ]
    try:
        outputs = [process.communicate(timeout=300) for process in processes]
    finally:
        for process in processes:
            process.kill()
    for process, (_, errors) in zip(processes, outputs, strict=True):
        assert process.returncode == 0, errors
    # What else is on stdout is the transport's.
    return [json.loads(out.splitlines()[-1]) for out, _ in outputs]


@pytest.mark.slow
def test_two_processes_train_as_one():
    [alone] = train(1)
    one, other = train(2)
    assert one == other
    assert len(one["losses"]) == STEPS
    assert one["losses"][-1] < 0.9 * one["losses"][0]
    assert one.keys() == alone.keys() == {"losses", "first", "second", "up"}
    for name, values in alone.items():
        np.testing.assert_allclose(one[name], values, rtol=1e-5, atol=1e-6)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
