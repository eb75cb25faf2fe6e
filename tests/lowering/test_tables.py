"""What a new line or form must have beside it."""

import importlib
import re
from pathlib import Path

from jaxconv import _lowering
from jaxconv._lowering import forms
from jaxconv._lowering.forms import reference
from jaxconv._lowering.problem import Form
from tests.support.problems import LINES, WITNESSES

TUNING = (Path(__file__).parents[2] / "benchmarks" / "results" / "TUNING.md").read_text()


def test_each_line_has_a_witness_and_a_record():
    assert {*LINES} == {*WITNESSES}, "WITNESSES of tests/support/problems.py"
    recorded = {*re.findall(r"`([^`]+)`", TUNING)}
    assert not [x for x in LINES if not {x, x.split(": ")[1]} & recorded], "in TUNING.md"
    slots = {name.split(": ")[0] for name in LINES}
    assert {x for x in recorded if x.split(": ")[0] in slots and ": " in x} <= {*LINES}


def test_each_form_has_a_line_and_each_file_a_word():
    """But for the form of sums of nothing, which no line gives."""
    given = {line.form for table in _lowering.TABLES["cpu"].values() for line in table}
    names = [path.stem for path in Path(forms.__file__).parent.glob("[!_]*.py")]
    modules = [importlib.import_module(f"{forms.__name__}.{name}") for name in names]
    made = {x for module in modules for x in vars(module).values() if isinstance(x, Form)}
    assert made - given == {reference.ZEROS}
    assert not [name for name in names if not re.search(rf"\b{name}\.py\b", forms.__doc__)]
