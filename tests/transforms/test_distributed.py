"""Two real processes, joined by jax.distributed on the loopback, train as one does."""

import json
import os
import socket
import subprocess
import sys

import numpy as np
import pytest

PROGRAM = "tests.support.two_processes"


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
    processes = [
        subprocess.Popen(
            [sys.executable, "-W", "error", "-m", PROGRAM, str(count), str(index), address],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
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
    (alone,) = train(1)
    one, other = train(2)
    assert one == other
    assert len(one["losses"]) == 5
    assert one["losses"][-1] < 0.9 * one["losses"][0]
    assert one.keys() == alone.keys() == {"losses", "first", "second", "up"}
    for name, values in alone.items():
        np.testing.assert_allclose(one[name], values, rtol=1e-5, atol=1e-6)
