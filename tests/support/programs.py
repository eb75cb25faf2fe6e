"""What a traced function or a compiled program consists of."""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

import jax
from jax.sharding import NamedSharding

from benchmarks import program_text


def primitives(jaxpr) -> list[str]:
    """The names of all equations, in order, inner jaxprs' included."""
    return [eqn.primitive.name for eqn in equations(jaxpr)]


def contractions(jaxpr) -> list[str]:
    """The slots that the contractions of a jaxpr fill, in order."""
    prefix = "contract_to_"
    return [name.removeprefix(prefix) for name in primitives(jaxpr) if name.startswith(prefix)]


def equations(jaxpr):
    """All equations but those that only hold an inner jaxpr, in order."""
    for eqn in getattr(jaxpr, "jaxpr", jaxpr).eqns:
        inner = [
            value
            for param in eqn.params.values()
            for value in (param if isinstance(param, tuple | list) else (param,))
            if hasattr(getattr(value, "jaxpr", value), "eqns")
        ]
        if inner:
            for value in inner:
                yield from equations(value)
        else:
            yield eqn


def run_sharded(mesh, specs, function, *arguments):
    """The results, and the text of the program, on arguments that are split so."""
    placed = [
        jax.device_put(x, NamedSharding(mesh, spec))
        for x, spec in zip(arguments, specs, strict=True)
    ]
    compiled = jax.jit(function).lower(*placed).compile()
    return compiled(*placed), compiled.as_text()


def collectives(text: str) -> dict[str, int]:
    """How often each collective stands in the text of a compiled program."""
    names = ("all-gather", "all-reduce", "all-to-all", "collective-permute", "reduce-scatter")
    counts = {name: text.count(f" {name}(") + text.count(f" {name}-start(") for name in names}
    return {name: count for name, count in counts.items() if count}


@dataclass(frozen=True)
class Loop:
    """A loop that XLA:CPU writes for an operation, or for several that it fuses."""

    bytes: int  # that its operations write; of reductions, that they read
    computed: int  # the same of those operations that do not only move data
    tasks: int  # over which XLA splits the loop
    opcodes: tuple[str, ...]
    text: str


#: What XLA:CPU leaves to libraries with threads of their own, and what holds other operations.
NO_LOOPS = {"call", "conditional", "convolution", "custom-call", "dot", "while"}


def loops(text: str) -> Iterator[Loop]:
    """Yield the loops of a program that XLA compiled for CPU."""
    entry, computations = program_text.parse(text)
    bytes_of = {_names(op)[0]: op.bytes for ops in computations.values() for op in ops}

    def count(op: program_text.Operation) -> int:
        if op.opcode in program_text.FREE | {"broadcast", "dynamic-update-slice"}:
            return 0  # an update only writes what another operation counts
        if op.opcode in ("reduce", "reduce-window"):
            return max(op.bytes, sum(map(bytes_of.__getitem__, _names(op)[1:])))
        return op.bytes

    for op in program_text.walk_operations(computations, entry):
        if op.opcode in program_text.FREE | NO_LOOPS or "kind=kCustom" in op.text:
            continue
        fused = [inner for name in op.called("calls") for inner in computations[name]] or [op]
        partitions = re.search(r'"outer_dimension_partitions":\[([^]]*)\]', op.text)
        tasks = math.prod(map(int, re.findall(r"\d+", partitions[1]))) if partitions else 1
        computing = [o for o in fused if o.opcode not in program_text.MOVES]
        counts = (sum(map(count, some)) for some in (fused, computing))
        yield Loop(*counts, tasks, tuple(o.opcode for o in fused), op.text)


def _names(op: program_text.Operation) -> list[str]:
    """The name of an operation, and those of its operands."""
    head, operands = op.text.split(f" {op.opcode}(", 1)
    return re.findall(r"%([\w.\-]+)", head.split("=")[0] + operands.split(")")[0])
