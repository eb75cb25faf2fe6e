"""Loops and memory of random layers' programs, on a machine of as many cores as a test wants.

LD_PRELOAD=cores.so PRETENDED_CORES=64 python -m tests.support.cores SEED NUMBER...
"""

import json
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

import jax
import pytest

import jaxconv
from benchmarks.arrays import shapes_in
from benchmarks.engines.jaxconv import contraction
from benchmarks.layer import OPS
from benchmarks.random_layers import layers
from tests.support.programs import loops

#: Layouts, type and form of one layer after another.
WAYS = (
    ("NXC", "float32", None), ("NCX", "float32", None), ("NXC", "float32", "portable"),
    ("NXC", "bfloat16", None), ("NXC", "bfloat16", "portable"),
)  # fmt: skip

#: XLA:CPU asks by this function how many threads to have, and splits loops for as many.
SOURCE = """
#define _GNU_SOURCE
#include <sched.h>
#include <stdlib.h>
#include <string.h>
int sched_getaffinity(pid_t pid, size_t size, cpu_set_t *set) {
  int cores = atoi(getenv("PRETENDED_CORES"));
  memset(set, 0, size);
  for (int i = 0; i < cores && i < (int)(8 * size); i++) CPU_SET_S(i, size, set);
  return 0;
}
"""


def programs_on(cores: int, folder: Path, seed: int, numbers: Sequence[int]) -> list[dict]:
    """List the programs of some layers of a seed, compiled on so many cores.

    Skip the test that asks without Linux or a C compiler.
    """
    if platform.system() != "Linux" or not (compiler := shutil.which("cc")):
        pytest.skip("needs Linux and a C compiler")
    library = folder / "cores.so"
    command = [compiler, "-shared", "-fPIC", "-x", "c", "-", "-o", str(library)]
    subprocess.run(command, input=SOURCE, text=True, check=True)
    pretended = {"LD_PRELOAD": str(library), "PRETENDED_CORES": str(cores)}
    out = subprocess.run(
        [sys.executable, "-m", "tests.support.cores", str(seed), *map(str, numbers)],
        env={**os.environ, **pretended}, cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE, text=True, check=True,
    )  # fmt: skip
    return [json.loads(line) for line in out.stdout.splitlines()]


def main(seed: int, *numbers: int) -> None:
    """Print a line of JSON for each program: its loops, and its bytes."""
    drawn = layers(max(numbers) + 1, seed)
    for number in numbers:
        layer, (layout, dtype, form) = drawn[number], WAYS[number % len(WAYS)]
        for op in OPS:
            types = [jax.ShapeDtypeStruct(x, dtype) for x in shapes_in(layer, op, layout)[:2]]
            with jaxconv.forced(form):
                compiled = jax.jit(contraction(layer, op, layout)).lower(*types).compile()
            sizes = compiled.memory_analysis()
            tensors = sizes.argument_size_in_bytes + sizes.output_size_in_bytes
            known = {"layer": layer.name, "op": op, "way": (layout, dtype, form)}
            known |= {"temporary": sizes.temp_size_in_bytes, "tensors": tensors}
            known["loops"] = [asdict(loop) for loop in loops(compiled.as_text())]
            print(json.dumps(known))


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
