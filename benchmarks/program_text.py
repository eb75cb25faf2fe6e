"""What a compiled program consists of, by its text: cycles, library calls, loops, copies.

XLA:TPU writes its own estimate of cycles at each operation. A loop counts as often as it runs. Of
a conditional's branches, `cycles` has the cheapest and `most_cycles` the dearest. All of this is
the compiler's estimate: nothing has run. Some operations that move data have none: a `reverse`, a
strided `slice`, a `pad` between pixels. A program that moves much data so has no cycles either.
"""

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass

#: Operations that leave data where it is, and those that move it and compute nothing.
FREE = {"bitcast", "constant", "get-tuple-element", "iota", "parameter", "reshape", "tuple"}
MOVES = {"broadcast", "concatenate", "convert", "copy", "dynamic-slice", "dynamic-update-slice"}
MOVES |= {"gather", "pad", "reverse", "slice", "transpose"}

BYTES = {"pred": 1, "bf16": 2, "f16": 2, "f32": 4, "f64": 8, "s32": 4, "u32": 4, "s64": 8}
BYTES |= {"s8": 1, "u8": 1, "s16": 2, "u16": 2, "u64": 8}

#: Fewest bytes that make a missing estimate matter.
MANY_BYTES = 1 << 16

#: What library calls are called, by the kind of call.
CALLS = {"convolutions": "__cudnn$conv", "dots": "__cublas$"}


@dataclass(frozen=True)
class Operation:
    """One line of a computation."""

    text: str
    opcode: str
    cycles: int
    bytes: int

    def called(self, key: str) -> list[str]:
        """The computations under a key: `calls`, `body`, `branch_computations` ..."""
        found = re.search(rf"\b{key}=(\{{[^}}]*\}}|%[\w.\-]+)", self.text)
        return re.findall(r"%([\w.\-]+)", found[1]) if found else []


Computations = dict[str, list[Operation]]


def facts(text: str) -> dict[str, int]:
    """The numbers of a program's text, by name."""
    entry, computations = parse(text)
    used = list(walk_operations(computations, entry))
    copies = [op for op in used if _only_moves(op, computations)]
    always = [op for op in walk_operations(computations, entry, branches=False) if op in copies]
    told = all(op.cycles for op in always if op.bytes >= MANY_BYTES)
    # Where a convolution is a loop, and no unit of the chip.
    on_gpu = "estimated_cycles" not in text
    return {
        "cycles": _cycles(computations, entry, min) if told else 0,
        "most_cycles": _cycles(computations, entry, max) if told else 0,
        **{name: text.count(f'custom_call_target="{mark}') for name, mark in CALLS.items()},
        "naive": sum(op.opcode == "convolution" for op in used) if on_gpu else 0,
        "loops": sum(op.opcode == "while" for op in used),
        "copies": len(copies),
        "copy_bytes": sum(op.bytes for op in copies),
    }


def parse(text: str) -> tuple[str, Computations]:
    """The name of the entry computation, and all computations by name."""
    computations: Computations = {}
    entry, own = "", []
    for line in text.splitlines():
        if head := re.match(r"(ENTRY )?%([\w.\-]+) \(.*\{$", line):
            own = computations[head[2]] = []
            entry = head[2] if head[1] else entry
        elif line.startswith("  ") and (found := _LINE.match(line)):
            cycles = re.search(r'"estimated_cycles":"(\d+)"', line)
            own.append(Operation(line, found[2], int(cycles[1]) if cycles else 0, _bytes(found[1])))
    if not entry:
        raise ValueError("unreadable: a program without an entry computation")
    return entry, computations


_LINE = re.compile(r"  (?:ROOT )?%[\w.\-]+ = (\(.*?\)|\S+) ([\w\-]+)\(")


def _bytes(shape: str) -> int:
    """Bytes of a shape, or of all shapes of a tuple."""
    found = re.findall(r"([a-z]+\d*)\[([\d,]*)\]", shape)
    return sum(BYTES.get(t, 0) * math.prod(int(n) for n in s.split(",") if n) for t, s in found)


def walk_operations(
    computations: Computations, name: str, branches: bool = True
) -> Iterator[Operation]:
    """Yield all operations that a computation runs, except those within fusions."""
    for op in computations[name]:
        yield op
        for inner in _inner(op) if branches or op.opcode != "conditional" else ():
            yield from walk_operations(computations, inner, branches)


def _inner(op: Operation) -> list[str]:
    keys = {"while": ["body"], "call": ["to_apply"], "conditional": _BRANCHES}
    return [name for key in keys.get(op.opcode, []) for name in op.called(key)]


_BRANCHES = ["branch_computations", "true_computation", "false_computation"]


def _cycles(computations: Computations, name: str, of_branches) -> int:
    total = 0
    for op in computations[name]:
        inner = [_cycles(computations, called, of_branches) for called in _inner(op)]
        if op.opcode == "conditional" and inner:
            total += of_branches(inner)
        elif op.opcode == "while":
            total += sum(inner) * _trips(op, computations) if any(inner) else 0
        else:
            total += op.cycles + sum(inner)
    return total


def _trips(loop: Operation, computations: Computations) -> int:
    """How often a loop runs, as its text says, or the number that it counts to from 0."""
    if said := re.search(r'"known_trip_count":\{"n":"(\d+)"', loop.text):
        return int(said[1])
    ends = [op.text for name in loop.called("condition") for op in computations[name]]
    counts = [found[1] for text in ends if (found := re.search(r" constant\((\d+)\)", text))]
    if len(counts) != 1 or "direction=LT" not in ends[-1]:
        raise ValueError("unreadable: a loop that does not say how often it runs")
    return int(counts[0])


def _only_moves(op: Operation, computations: Computations) -> bool:
    """Whether an operation, or a fusion of several, reads data and writes it elsewhere."""
    codes = {op.opcode}
    if op.opcode == "fusion":
        codes = {inner.opcode for name in op.called("calls") for inner in computations[name]}
    return codes <= MOVES | FREE and not codes <= FREE
