"""`python -m benchmarks.inference`: inference of networks, each convolution with all that follows.

Batch norm is folded into weights and bias. `lax` adds the bias and the residual and activates
after its convolution, `lax+install` is the same program where jaxconv is installed, `jaxconv`
gives all three to `jaxconv.convolution`, `torch` is PyTorch as it is, and `torch+compile` its
compiler with frozen weights.
"""

from collections.abc import Sequence

import numpy as np
from absl.flags import DEFINE_integer

from benchmarks import flags, run
from benchmarks.summary import summary
from benchmarks.verdicts import of_norm

ENGINES = "lax,lax+install,jaxconv,torch,torch+compile"
#: Of the norm of the logits. In 16 bits each of 20 to 80 layers rounds its result: in bfloat16
#: plain lax differs by 0.08 for EfficientNet-B0.
TOLERANCE = {"f32": 1e-3, "f64": 1e-3, "bf16": 1e-1, "f16": 1e-2}


def judge(job: dict, operands: list[np.ndarray], results: dict, platforms: dict) -> dict[str, dict]:
    """Each engine's logits against those of lax in float32; notes for `measure`."""
    exact = run.reference(job | {"dtype": "f32"}, operands)
    if exact is None:
        return {key: {"ok": True, "unverified": True} for key in results}
    tolerance, what = TOLERANCE[job["dtype"]], "lax in float32"
    return {key: of_norm(own, exact[0], tolerance, what) for key, [own] in results.items()}


def main(argv: Sequence[str]) -> None:
    """Measure what the flags ask for, print a line per row and a summary, write the results."""
    what = "inference of networks with folded batch norm"
    command = flags.measuring("benchmarks.inference", what)
    command.default({"burst": 0.3, "cap": 200.0, "turns": 6.0, "engines": ENGINES, "repeats": 3})
    command.default({"dtypes": "f32,bf16"})
    flags.define_several(command, "batches", "1,16", "images at once; joined by commas", int)
    pixels = "pixels along an axis, a multiple of 8; default 224, and 128 of U-Net"
    DEFINE_integer("size", None, pixels, lower_bound=8, **command.own)
    asked = flags.parse(command, argv)
    images = [{"batch": batch, "size": asked.size} for batch in asked.batches]
    print(summary(run.collect_networks(asked, "inference", images, judge)), end="")


if __name__ == "__main__":
    flags.run(main)
