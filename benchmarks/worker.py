"""One engine in a process of its own: requests on stdin, replies on stdout, a JSON line each.

Requests: {"do": "hello"}; {"do": "prepare", "job": {...}, "folder": of operands and results};
{"do": "burst", "variant": v, "seconds": s}; {"do": "compiled", "job": {...}}. A reply to a request
that raised is {"error": "...", "status": missing, unsupported or failed}.
Between requests the process sleeps on stdin.
"""

import gc
import json
import os
import statistics
import sys
import time

import numpy as np

from benchmarks import arrays, engines
from benchmarks.layer import Layer

MAX_CALLS = 2000
SYNC_SECONDS = 2e-3  # on accelerators, calls are queued for about this long between waits


class Worker:
    """What is prepared now, and what the parent may ask of it."""

    def __init__(self, label: str):
        self.label = label
        self.engine: engines.Engine | None = None
        self.ready: dict[str, engines.Timed] = {}
        self.estimate: dict[str, float] = {}
        self.platform = "cpu"

    def hello(self, request: dict) -> dict:
        self.engine = engines.load(self.label)
        versions = self.engine.versions()
        self.platform = versions["platform"]
        return {"versions": versions | {"python": sys.version.split()[0]}}

    def compiled(self, request: dict) -> dict:
        from benchmarks import compilers

        engine = self.engine
        return {"facts": compilers.compiled(engine.contraction, request["job"], engine.form)}

    def prepare(self, request: dict) -> dict:
        self.ready = {}
        gc.collect()
        folder = request["folder"]
        self.ready = self.engine.prepare(request["job"], arrays.read(f"{folder}/operands.npz"))
        variants = {}
        for name, timed in self.ready.items():
            start = time.perf_counter()
            result = timed.call()
            timed.wait(result)
            self.estimate[name] = time.perf_counter() - start
            path = f"{folder}/{self.label} {name}.npz"
            np.savez(path, *timed.fetch(result))
            del result
            variants[name] = {"facts": timed.facts, "results": path}
        return {"variants": variants}

    def burst(self, request: dict) -> dict:
        """Call for about so many seconds, at least once; the first short call is not counted."""
        name = request["variant"]
        timed, seconds = self.ready[name], request["seconds"]
        if self.estimate[name] < seconds:  # caches and clocks were another engine's till now
            timed.wait(timed.call())
        queued = 1
        if self.platform != "cpu":
            queued = max(1, min(100, int(SYNC_SECONDS / self.estimate[name])))
        times: list[float] = []
        end = time.perf_counter() + seconds
        while not times or (time.perf_counter() < end and len(times) < MAX_CALLS):
            start = time.perf_counter()
            for _ in range(queued):
                result = timed.call()
            timed.wait(result)
            times.append((time.perf_counter() - start) / queued)
        self.estimate[name] = statistics.median(times)
        return {"min": min(times), "median": self.estimate[name]}


def main() -> None:
    """Serve until stdin ends: an engine, whose packages are imported from a folder first, if any.

    An engine's interpreter needs no more than NumPy and the engine.
    """
    label, *folder = sys.argv[1:]
    sys.path[:0] = folder
    # Whatever a library prints goes to stderr: stdout is the protocol.
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    worker = Worker(label)
    for line in sys.stdin:
        request = json.loads(line)
        if "layer" in (job := request.get("job", {})):
            job["layer"] = Layer.from_json(job["layer"])
        try:
            reply = getattr(worker, request["do"])(request)
        except Exception as error:
            worker.ready = {}
            statuses = {ImportError: "missing", engines.Unsupported: "unsupported"}
            status = next((s for t, s in statuses.items() if isinstance(error, t)), "failed")
            reply = {"error": f"{type(error).__name__}: {error}", "status": status}
        replies.write(json.dumps(reply) + "\n")


if __name__ == "__main__":
    main()
