"""`python -m benchmarks.compiled`: what XLA's GPU and TPU compilers make of layers, without either.

Every figure is the compiler's: nothing runs, so no value is checked and no time is measured. On
TPU the estimate of cycles tells compute well and memory pessimistically. `compilers.INSTALL` has
the environment that runs this.
"""

import random
import re
from collections.abc import Sequence
from types import SimpleNamespace

from absl.flags import DEFINE_enum, DEFINE_integer, DEFINE_string

from benchmarks import compilers, files, flags, layers
from benchmarks.pool import EngineError, Pool
from benchmarks.run import follow, line
from benchmarks.summary import summary

ENGINES = ("jaxconv", "lax")


def parse(argv: Sequence[str]) -> SimpleNamespace:
    """The flags of the rows and those of the compilers, the target filled in."""
    what = "What XLA's compilers make of layers, without a device."
    new = flags.measuring("benchmarks.compiled", what)
    layers.define_rows(new)
    DEFINE_enum("platform", "tpu", list(compilers.TARGETS), "whose compiler", **new.own)
    targets = "; ".join(f"{p}: {', '.join(t)}" for p, t in compilers.TARGETS.items())
    DEFINE_string("target", "", f"{targets}; default the first", **new.own)
    DEFINE_integer("sample", 0, "so many of the rows, drawn at random", lower_bound=0, **new.own)
    new.default({"engines": ",".join(ENGINES), "cap": 300.0, "dtypes": "bf16"})
    asked = flags.parse(new, argv)
    known = compilers.TARGETS[asked.platform]
    asked.target = asked.target or next(iter(known))
    if asked.target not in known:
        new.fail(f"--target: {asked.target}; known for {asked.platform}: {', '.join(known)}")
    if other := [label for label in asked.engines if re.split("[:@]", label)[0] not in ENGINES]:
        new.fail(f"--engines: {', '.join(other)} compiles nothing; known: {', '.join(ENGINES)}")
    return asked


def main(argv: Sequence[str]) -> None:
    """Compile what the flags ask for, write the results, and end with the summary."""
    asked = parse(argv)
    jobs, about = layers.jobs(asked), {"platform": asked.platform, "target": asked.target}
    if 0 < asked.sample < len(jobs):
        drawn = random.Random(0).sample(range(len(jobs)), asked.sample)
        jobs = [jobs[n] for n in sorted(drawn)]
    try:
        packages = compilers.versions(asked.platform)
    except ImportError as error:
        raise SystemExit(str(error)) from None
    with Pool(asked.python, asked.path, compilers.ENVIRONMENT, asked.env) as pool:

        def ask(label: str, job: dict) -> dict:
            try:
                found = pool.ask(label, {"do": "compiled", "job": job | about}, asked.cap)["facts"]
            except EngineError as error:
                return {"status": error.status, "reason": error.reason}
            return {"status": "ok"} | found

        def measure(job: dict) -> list[dict]:
            return [layers.describe(job) | {"engines": {e: ask(e, job) for e in asked.engines}}]

        def head() -> dict:
            versions = {e: pool.versions.get(e, {}) | packages for e in asked.engines}
            return {"schema": files.COMPILED, **about, "engines": versions}

        print(summary(follow(asked.out, jobs, measure, line, head)), end="")


if __name__ == "__main__":
    flags.run(main)
