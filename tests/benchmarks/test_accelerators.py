"""What a benchmark on an accelerator asks of its workers: seen without one."""

from benchmarks import flags, run
from benchmarks.pool import Pool


def environment(*given):
    asked = flags.parse(flags.measuring("any", "any"), ["any", *given])
    asked.engines = []
    return run.open_pool(asked).environment


def test_workers_leave_each_other_room():
    """JAX would take most of the device's memory, in every process."""
    assert environment()["XLA_PYTHON_CLIENT_PREALLOCATE"] == "false"


def test_exact_f32_is_asked_of_every_engine():
    asked = environment("--f32=exact")
    assert asked["JAX_DEFAULT_MATMUL_PRECISION"] == "highest"
    assert asked["NVIDIA_TF32_OVERRIDE"] == "0"
    assert not {*run.EXACT_F32} & {*environment()}


def test_exact_f32_is_held_to_the_tolerance_of_a_cpu():
    versions = {"any": {"platform": "cuda"}}
    for given, platform in (("--f32=exact", "cpu"), ("--f32=default", "cuda")):
        pool = Pool(environment=environment(given), versions=versions)
        assert run.platforms(pool, ["any/"]) == {"any/": platform}
