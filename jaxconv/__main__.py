"""`python -m jaxconv`: is the package right on this machine, and how fast?"""

import argparse
import os
import platform
import sys
import textwrap
from collections import Counter
from collections.abc import Sequence
from importlib.metadata import entry_points

import jax
import jax.numpy as jnp
import jaxlib
import ml_dtypes
import numpy as np

import jaxconv
from jaxconv import _lowering
from jaxconv._base.messages import one_line
from jaxconv._checks import qualify, selfcheck

RUN = "python -m jaxconv run [--profile] SCRIPT [ARGUMENT ...]"

USAGE = f"""\
python -m jaxconv [--quick | --selftest [N] | --qualify] [--seed S]
{RUN}

Checks the six operations against their defining sum on JAX's default device,
then times a few layers against plain jax.lax, forward and gradients.

  --quick         check only, time nothing
  --selftest [N]  instead, N random cases (2000) of the operations and their
                  gradients: what to run on a backend that we do not have
  --qualify       instead, test in two minutes whether the oneDNN of this jaxlib
                  is right and safe on this processor, and remember the verdict
  --seed S        of the random cases; 0 by default
  --help          show this text

run is JAXCONV_INSTALL=1 python SCRIPT [ARGUMENT ...]; whatever else may
follow python may stand there, such as -m MODULE. --profile makes it
JAXCONV_INSTALL=profile: when the program ends, it lists on stderr how its
convolutions were computed.

JAX_PLATFORMS=cpu (or cuda, tpu, ...) in the environment chooses the backend.

Exit code: 0 all right, 1 wrong numbers, an operation that raises, or a verdict
against oneDNN, 2 no usable backend or an unknown flag.
"""

#: Between jaxconv and lax, relative to the largest element: by default GPUs multiply f32 in TF32,
#: and TPUs in bf16, which keeps 8 bits.
MAX_DIFFERENCE = 0.02

#: The entry point that JAX imports when it starts.
PLUGIN = "jaxconv_plugin"


def main(argv: Sequence[str]) -> int:
    """Run the command with these flags; return the exit code."""
    if list(argv[1:2]) == ["run"]:
        return run(argv[2:])
    parser = argparse.ArgumentParser(
        "python -m jaxconv", usage=USAGE, add_help=False, allow_abbrev=False
    )
    parser.add_argument("--help", "-h", action="store_true")
    parser.add_argument("--seed", type=int, default=0)
    one = parser.add_mutually_exclusive_group()
    one.add_argument("--quick", action="store_true")
    one.add_argument("--qualify", action="store_true")
    one.add_argument("--selftest", type=int, nargs="?", const=2000)
    flags, unknown = parser.parse_known_args(argv[1:])
    if unknown or (flags.selftest is not None and flags.selftest < 1):
        wrong = f"unknown: {' '.join(unknown)}" if unknown else "--selftest must be at least 1"
        print(f"{wrong}\n\n{USAGE}", end="", file=sys.stderr)
        return 2
    if flags.help:
        print(USAGE, end="")
        return 0

    print_versions()
    if flags.qualify:
        return qualify.qualify()
    try:
        print_devices()
    except BrokenPipeError:
        raise
    except Exception as error:  # backends fail in ways of their own
        asked = f"JAX_PLATFORMS={os.environ.get('JAX_PLATFORMS')!r}"  # JAX may not name it
        told = f"FAIL: no usable backend, with {asked}. {one_line(error)}"
        print(textwrap.fill(told, selfcheck.WIDTH))
        return 2
    if flags.selftest is not None:
        print(f"\n{flags.selftest} random cases of seed {flags.seed}, each with its gradients:\n")
        failed = selfcheck.selftest(flags.selftest, flags.seed)
    else:
        failed = selfcheck.check() + (0 if flags.quick else race())
    print()
    if failed:
        print(f"FAIL: {failed} of the lines above went wrong on this backend.")
        return 1
    print("ok: all six operations are right on this backend.")
    return 0


def run(words: Sequence[str]) -> int:
    """Become `python WORDS` with JAXCONV_INSTALL set; return 2 if that cannot be.

    Scripts set variables that JAX reads when imported, and here it is imported: so Python starts
    anew.
    """
    told, words = ("profile", words[1:]) if words[:1] == ["--profile"] else ("1", words)
    if not words:
        print(f"run: there must be a script, or -m and a module: {RUN}", file=sys.stderr)
        return 2
    if PLUGIN not in (point.value for point in entry_points(group="jax_plugins")):
        print(f"run: JAX would not find {PLUGIN}: install jaxconv by pip", file=sys.stderr)
        return 2
    os.environ["JAXCONV_INSTALL"] = told
    os.execv(sys.executable, [sys.executable, *words])


def print_versions() -> None:
    """Print the versions that a bug report needs."""
    versions = (f"{m.__name__} {m.__version__}" for m in (jax, jaxlib, np, ml_dtypes))
    print(f"jaxconv {jaxconv.__version__}: {', '.join(versions)}")


def print_devices() -> None:
    """Start the default backend, and print its devices."""
    kinds = Counter(device.device_kind for device in jax.devices())
    devices = ", ".join(f"{count} x {kind}" for kind, count in kinds.items())
    python = f"python {platform.python_version()}"
    backend = jax.default_backend()
    print(f"{python} on {platform.machine()}, backend {backend}: {devices}")
    if backend == "cpu":
        reason = _lowering.why_unavailable()
        print(f"oneDNN: {'in use' if reason is None else 'not in use, ' + reason}")
    print(f"install: {'on' if jaxconv.enabled() else 'off; JAXCONV_INSTALL=1 turns it on'}")


# How fast is it?

#: Small layers of the kinds whose speed differs most: dense, grouped, depthwise and transposed.
LAYERS: list[tuple[str, tuple[int, ...], tuple[int, ...], dict[str, int]]] = [
    ("convolution", (4, 28, 28, 128), (3, 3, 128, 128), {}),
    ("convolution", (4, 14, 14, 128), (3, 3, 4, 128), {"groups": 32}),
    ("convolution", (4, 56, 56, 96), (3, 3, 1, 96), {"groups": 96}),
    ("conv_transpose", (4, 14, 14, 128), (4, 4, 64, 128), {"strides": 2}),
]


def race() -> int:
    """Print a line for each contraction of the layers; return how many raise, or disagree."""
    print(
        "\nHow fast? A few layers and their gradients, in f32 and channels last, beside the\n"
        "same by plain jax.lax. off is how far the values are apart.\n",
        flush=True,
    )

    def loss(tensors: list[tuple[jax.Array, jax.Array]]) -> jax.Array:
        sums = (
            getattr(jaxconv, name)(*pair, pads_begin=1, pads_end=1, **attributes).sum()
            for (name, _, _, attributes), pair in zip(LAYERS, tensors, strict=True)
        )
        return sum(sums, jnp.zeros(()))

    types = [[jax.ShapeDtypeStruct(x, jnp.float32) for x in layer[1:3]] for layer in LAYERS]
    try:
        found = jaxconv.explain(jax.value_and_grad(loss), types).compare()
    except Exception as error:  # shown as a line, not as a traceback
        print(f"FAIL\n{selfcheck.indent(one_line(error))}")
        return 1
    print(found)
    return len(found.failed) + sum(not kind.difference <= MAX_DIFFERENCE for kind in found.listed)


if __name__ == "__main__":
    try:
        code = main(sys.argv)
        sys.stdout.flush()
    except BrokenPipeError:  # the reader of the output has closed the pipe
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the last flush
        code = 1
    sys.exit(code)
