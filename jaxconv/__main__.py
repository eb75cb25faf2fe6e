"""`python -m jaxconv`: is the package right on this machine, and how fast?"""

import argparse
import os
import platform
import sys
import textwrap
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, entry_points, version
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

import jaxconv
from jaxconv import _lowering
from jaxconv._checks import cases, selfcheck, selftest, terminal
from jaxconv._checks.cases import DTYPES, one_line
from jaxconv._checks.layer import Layer
from jaxconv._checks.qualify import qualify_call
from jaxconv._tools import clock

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

WIDTH = 80
MAX_COMPLAINTS = 3  # of one operation


def main(argv: Sequence[str]) -> int:
    """Run the command with these flags; return the exit code."""
    if list(argv[1:2]) == ["run"]:
        return run(argv[2:])
    parser = argparse.ArgumentParser(usage=USAGE, add_help=False, allow_abbrev=False)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--qualify", action="store_true")
    parser.add_argument("--help", "-h", action="store_true")
    parser.add_argument("--selftest", type=int, nargs="?", const=2000)
    parser.add_argument("--seed", type=int, default=0)
    flags, unknown = parser.parse_known_args(argv[1:])
    if unknown or (flags.selftest is not None and flags.selftest < 1):
        said = " ".join(unknown) or f"--selftest {flags.selftest}"
        print(f"unknown: {said}\n\n{USAGE}", end="", file=sys.stderr)
        return 2
    if flags.help:
        print(USAGE, end="")
        return 0

    print_versions()
    if flags.qualify:
        return qualify()
    try:
        print_devices()
    except BrokenPipeError:
        raise
    except Exception as error:  # backends fail in ways of their own
        print(textwrap.fill(f"FAIL: no usable backend. {one_line(error)}", WIDTH))
        return 2
    if flags.selftest is not None:
        print(f"\n{flags.selftest} random cases of seed {flags.seed}, each with its gradients:\n")
        return int(selftest.test(flags.selftest, flags.seed) > 0)
    wrong = check()
    if not flags.quick:
        wrong += race()
    print()
    if wrong:
        print(f"FAIL: {wrong} of the lines above went wrong on this backend.")
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
    versions = {package: _version(package) for package in ("jax", "jaxlib", "numpy", "ml_dtypes")}
    listed = ", ".join(f"{package} {found}" for package, found in versions.items())
    print(f"jaxconv {jaxconv.__version__}: {listed}")


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"


def print_devices() -> None:
    """Start the default backend, and print its devices."""
    kinds = Counter(device.device_kind for device in jax.devices())
    devices = ", ".join(f"{count} x {kind}" for kind, count in kinds.items())
    python = f"python {platform.python_version()}"
    backend = jax.default_backend()
    print(f"{python} on {platform.machine()}, backend {backend}: {devices}")
    if backend == "cpu":
        reason = _lowering.unavailable()
        print(f"oneDNN: {'in use' if reason is None else 'not in use, ' + reason}")
    print(f"install: {'on' if jaxconv.enabled() else 'off; JAXCONV_INSTALL=1 turns it on'}")


def qualify() -> int:
    """Test oneDNN's call, and print the verdict; return 1 if it is against the call."""
    print(
        "\nIs oneDNN right and safe here? In processes of their own: random cases, exact,\n"
        "while oneDNN prints which of its implementations run; then eight threads.\n",
        flush=True,
    )
    verdict = qualify_call()
    good = "good: jaxconv calls oneDNN here" if verdict.good else "bad: jaxconv runs without oneDNN"
    print(textwrap.fill(f"{good}. {verdict.text[0].upper()}{verdict.text[1:]}.", WIDTH))
    return int(not verdict.good)


# Is it right?


def check() -> int:
    """Print a line for each operation; return how many are wrong."""
    number = len(selfcheck.CASES)
    print(
        f"\nIs it right? Each operation against a NumPy float64 loop over its defining sum,\n"
        f"{number} cases: strided, dilated, grouped, depthwise, 1-D to 3-D, with output_padding.\n"
        f"Integers must be exact, random f32 within 4 eps sqrt(terms) of the largest.\n",
        flush=True,
    )
    labels = "".join(f"{label:>6}" for label in DTYPES)
    print(f"{'operation':31}{labels}{'error':>10}{'bound':>10}")
    wrong = 0
    for operation in cases.OPERATIONS:
        finding = selfcheck.check(operation)
        counts = "".join(f"{f'{count}/{number}':>6}" for count in finding.exact.values())
        random = f"{finding.error:10.1e}{finding.bound:10.1e}" if finding.compared else " " * 20
        print(f"{operation:31}{counts}{random}{'ok' if finding.ok else 'FAIL':>7}", flush=True)
        for complaint in finding.complaints[:MAX_COMPLAINTS]:
            print(_indent(complaint))
        if len(finding.complaints) > MAX_COMPLAINTS:
            print(_indent(f"and {len(finding.complaints) - MAX_COMPLAINTS} more"))
        wrong += not finding.ok
    return wrong


def _indent(text: str) -> str:
    return textwrap.fill(text, WIDTH, initial_indent="  ", subsequent_indent="    ")


# How fast is it?


@dataclass(frozen=True)
class Racer:
    """A layer by jaxconv and by lax, as functions of (src, weights); NXC and f32."""

    name: str
    src: tuple[int, ...]
    weights: tuple[int, ...]
    ours: Callable[..., Any]
    plain: Callable[..., Any]


def racers() -> list[Racer]:
    """Small layers of the kinds whose speed differs most."""
    window = (3, 3), (1, 1), (1, 1), (1, 1), (1, 1)  # kernel, strides, dilations and pads
    numbers = ("NHWC", "HWIO", "NHWC")
    convolutions = {
        "dense 3x3": Layer((28, 28), *window, (128, 128), batch=4),
        "32 groups of 4, 3x3": Layer((14, 14), *window, (128, 128), 32, batch=4),
        "depthwise 3x3": Layer((56, 56), *window, (96, 96), 96, batch=4),
    }
    made = []
    for name, layer in convolutions.items():
        pads = tuple(zip(layer.pads_begin, layer.pads_end, strict=True))
        plain = partial(
            lax.conv_general_dilated, window_strides=layer.strides, padding=pads,
            dimension_numbers=numbers, feature_group_count=layer.groups,
        )  # fmt: skip
        ours = partial(jaxconv.convolution, **layer.attributes)
        made.append(Racer(name, layer.shapes["fine"], layer.shapes["kernel"], ours, plain))
    layer = Layer((28, 28), (4, 4), (2, 2), (1, 1), (1, 1), (1, 1), (64, 128), batch=4)
    plain = partial(
        lax.conv_transpose, strides=layer.strides, padding="SAME", dimension_numbers=numbers,
        transpose_kernel=True,
    )  # fmt: skip
    ours = partial(jaxconv.conv_transpose, **layer.attributes)
    name, src, weights = "transposed 4x4, stride 2", layer.shapes["coarse"], layer.shapes["kernel"]
    return [*made, Racer(name, src, weights, ours, plain)]


def race() -> int:
    """Print a line for each layer; return how many raise, or disagree with plain lax."""
    print(
        "\nHow fast? Milliseconds: the best of several interleaved runs, compiled before;\n"
        "src and weights in f32, channels last. x is plain jax.lax over jaxconv.\n"
    )
    print(f"{'':28}{'forward':>24}  {'both gradients':>24}")
    print(f"{'layer':28}{'jaxconv':>8}{'jax.lax':>9}{'x':>7}  {'jaxconv':>8}{'jax.lax':>9}{'x':>7}")
    wrong = 0
    for racer in racers():
        try:
            with jaxconv.installed(False):  # whatever JAXCONV_INSTALL says
                forward, gradients = _time_racer(racer)
        except Exception as error:  # shown as a line, not as a traceback
            print(f"{racer.name:28}FAIL\n{_indent(one_line(error))}", flush=True)
            wrong += 1
            continue
        print(f"{racer.name:28}{_show_times(forward)}  {_show_times(gradients)}", flush=True)
    return wrong


def _show_times(seconds: tuple[float, float]) -> str:
    ours, plain = seconds
    return f"{1e3 * ours:8.2f}{1e3 * plain:9.2f}{plain / ours:7.1f}"


def _time_racer(racer: Racer) -> tuple[tuple[float, float], tuple[float, float]]:
    """Time ours and plain, forward and both gradients, in seconds."""
    rng = np.random.default_rng(0)

    def draw(shape: tuple[int, ...]) -> jax.Array:
        return jnp.asarray(rng.standard_normal(shape, np.float32))

    src, weights = draw(racer.src), draw(racer.weights)
    diff_dst = draw(jax.eval_shape(racer.ours, src, weights).shape)
    both = racer.ours, racer.plain
    forward = _time_in_turn(both, src, weights)
    return forward, _time_in_turn(map(_differentiate, both), src, weights, diff_dst)


def _differentiate(function: Callable[..., Any]) -> Callable[..., Any]:
    return lambda src, weights, diff_dst: jax.vjp(function, src, weights)[1](diff_dst)


def _time_in_turn(both: Iterable[Callable[..., Any]], *arguments: jax.Array) -> tuple[float, float]:
    """Compile both, compare their results, then run them in turn for a while."""
    ours, plain = map(jax.jit, both)
    jax.tree.map(_check_agreement, ours(*arguments), plain(*arguments))
    return clock.time_both(ours, plain, *arguments)


def _check_agreement(ours: jax.Array, plain: jax.Array) -> None:
    expected = np.asarray(plain)
    error = np.max(np.abs(np.asarray(ours) - expected)) / np.max(np.abs(expected))
    if not error <= MAX_DIFFERENCE:
        raise ArithmeticError(f"off jax.lax by {error:.1e} of the largest element")


if __name__ == "__main__":
    terminal.run(main)
