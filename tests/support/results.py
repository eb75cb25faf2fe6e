"""Files of benchmarks' results, as small as they may be."""

from benchmarks import files


def entry(*rounds, **more):
    """An engine's entry with these rounds, in milliseconds."""
    middle = sorted(rounds)[len(rounds) // 2]
    return {
        "status": "ok", "rounds_ms": list(rounds), "median_ms": middle, "min_ms": min(rounds),
        "spread": (max(rounds) - min(rounds)) / middle, **more,
    }  # fmt: skip


def timed(*ms, labels=("jaxconv", "lax", "torch")):
    """Entries of engines, each with rounds that all take as long."""
    return {label: entry(x, x, x) for label, x in zip(labels, ms, strict=False)}


def row(name, op="forward", kind="dense 2-D", **engines):
    """A row of the results."""
    return {
        "layer": name, "class": kind, "op": op, "dtype": "f32", "layout": "NXC",
        "problem": "" if op in ("step", "inference") else f'conv mb1ic8ih8oc8kh3ph1n"{name}"',
        "engines": engines,
    }  # fmt: skip


def results(*rows):
    """A results file."""
    return {
        "date": "2026-01-02T03:04:05+00:00",
        "seconds": 61.0,
        "command": ["--preset", "<cpu-small>"],
        "machine": {"cpu": "Some & Sons", "cores": 2, "isa": ["avx2"], "memory_bytes": 2**33},
        "git": {"commit": "0123456789abcdef", "changed": True},
        "engines": {"jaxconv": {"jax": "1.2.3"}, "lax": {"jax": "1.2.3"}, "torch": None},
        "rows": list(rows),
    }


def estimate(cycles, **more):
    """What a compiler says of a program."""
    return (
        {"status": "ok", "compile_s": 0.5}
        | dict.fromkeys(files.NUMBERS, 0)
        | {"cycles": cycles}
        | more
    )


def estimates(*rows):
    """A file of a compiler's estimates."""
    head = {"schema": files.COMPILED, "platform": "tpu", "target": "v5e"}
    versions = {"python": "3.13", "jax": "0.12", "libtpu": "0.1"}
    return head | {"engines": {"jaxconv": versions, "lax": {}}, "rows": list(rows)}
