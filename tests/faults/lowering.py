"""Faults of how a contraction is computed: `_lowering/`."""

from tests.faults.fault import Fault

LOWERING: tuple[Fault, ...] = ()
