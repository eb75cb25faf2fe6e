"""`python -m benchmarks.inference`: inference of networks, each convolution with all that follows.

Batch norm is folded into weights and bias. `lax` adds the bias and the residual and activates
after its convolution, `lax+install` is the same program where jaxconv is installed, `jaxconv`
gives all three to `jaxconv.convolution`, `torch` is PyTorch as it is, and `torch+compile` its
compiler with frozen weights.
"""

from collections.abc import Sequence

import numpy as np
from absl import flags as absl_flags

from benchmarks import flags, machine, networks, run
from benchmarks.summary import over_pytorch
from benchmarks.verdicts import of_norm

ENGINES = "lax,lax+install,jaxconv,torch,torch+compile"
#: Of the norm of the logits. In 16 bits each of 20 to 80 layers rounds its result: in bfloat16
#: plain lax differs by 0.08 for EfficientNet-B0.
TOLERANCE = {"f32": 1e-3, "f64": 1e-3, "bf16": 1e-1, "f16": 1e-2}


def judge(
    job: dict,
    operands: list[np.ndarray],
    exact: list[np.ndarray] | None,
    results: dict[str, list[np.ndarray]],
    platforms: dict[str, str],
) -> dict[str, dict]:
    """Each engine's logits against those of the reference; notes for `measure`."""
    if exact is None:
        return {key: {"ok": True, "unverified": True} for key in results}
    tolerance, what = TOLERANCE[job["dtype"]], "lax in float32"
    return {key: of_norm(own, exact[0], tolerance, what) for key, [own] in results.items()}


def summary(rows: list[dict], engines: list[str]) -> str:
    """Each engine's time over that of the faster PyTorch, by type and by network."""
    groups: dict[str, list[dict]] = {}
    for row in rows:
        for group in (row["dtype"], row["layer"].partition(",")[0]):
            groups.setdefault(group, []).append(row)
    lines = ["time over the faster PyTorch's, geometric mean"]
    for group, own in groups.items():
        means = ((engine, over_pytorch(own, engine)) for engine in engines)
        shown = ", ".join(f"{engine} {mean:.2f}" for engine, mean in means if mean)
        lines.append(f"  {group}: {shown or 'PyTorch has no time'}")
    return "\n".join(lines)


def command() -> flags.Command:
    """The command's flags."""
    new = flags.measuring("benchmarks.inference", "inference of networks with folded batch norm")
    new.default({"burst": 0.3, "cap": 200.0, "turns": 6.0, "engines": ENGINES, "repeats": 3})
    new.default({"dtypes": "f32,bf16"})
    flags.define_integers(new, "batches", "1,16", "images at once; joined by commas")
    pixels = "pixels along an axis, a multiple of 8; default 224, and 128 of U-Net"
    absl_flags.DEFINE_integer("size", None, pixels, lower_bound=8, **new.own)
    return new


def main(argv: Sequence[str]) -> None:
    """Measure what the flags ask for, print a line per row and a summary, write the results."""
    asked = flags.parse(command(), argv)
    jobs = [
        {"kind": "inference", "network": name, "batch": batch, "dtype": dtype}
        | {"size": asked.size or size, "threads": machine.cores()}
        for name, (_, size) in networks.INFERRED.items()
        if run.wanted(asked, name)
        for batch in asked.batches
        for dtype in asked.dtypes
    ]
    rows = run.collect_networks(asked, jobs, "f32", judge)
    print(summary(rows, asked.engines))


if __name__ == "__main__":
    flags.run(main)
