"""What a benchmark on an accelerator asks of its workers: seen without one."""

import os
import sys

import pytest
from absl import flags
from absl.testing import flagsaver

from benchmarks import run
from benchmarks.pool import Pool


@pytest.fixture(autouse=True)
def parsed():
    with flagsaver.flagsaver():
        flags.FLAGS(["benchmarks", "--engines=", "--f32=default"])
        yield


def environment(**values):
    with flagsaver.flagsaver(**values):
        return run.open_pool().environment


def test_workers_leave_each_other_room():
    """JAX would take most of the device's memory, in every process."""
    assert environment()["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"


def test_exact_f32_is_asked_of_every_engine():
    asked = environment(f32="exact")
    assert asked["JAX_DEFAULT_MATMUL_PRECISION"] == "highest"
    assert asked["NVIDIA_TF32_OVERRIDE"] == "0"
    assert not {*run.EXACT_F32} & {*environment()}
    assert run.exact_f32() is False


def test_a_worker_gets_what_is_asked(tmp_path):
    """One that only says what it was started with."""
    script = tmp_path / "worker"
    script.write_text(
        f"#!{sys.executable}\n"
        "import json, os, sys\n"
        "for line in sys.stdin:\n"
        "    versions = {'platform': os.environ['NVIDIA_TF32_OVERRIDE']}\n"
        "    print(json.dumps({'versions': versions}), flush=True)\n"
    )
    script.chmod(0o755)
    assert "NVIDIA_TF32_OVERRIDE" not in os.environ
    with Pool({"any": str(script)}, environment=run.EXACT_F32) as pool:
        pool.start("any")
        assert pool.versions["any"]["platform"] == "0"
