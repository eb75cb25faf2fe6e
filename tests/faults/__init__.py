"""Small faults of the package, each of which the default tests must catch.

    python -m tests.faults                 # all of them: an hour or two
    python -m tests.faults split lax       # those whose file or words contain one of these
    python -m tests.faults --new           # those without a row in tests/FAULTS.md

Each is applied alone, in a copy of the tree, where the default tests run until one fails: first
those of its room, then all others. What was found is written to tests/FAULTS.md.
"""

from tests.faults.fault import Fault
from tests.faults.graphs import GRAPHS
from tests.faults.lowering import LOWERING
from tests.faults.onnx import ONNX
from tests.faults.rules import RULES
from tests.faults.sizes import SIZES

FAULTS: tuple[Fault, ...] = (*SIZES, *RULES, *GRAPHS, *ONNX, *LOWERING)
