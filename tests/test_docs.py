"""What the documentation shows runs, and it names every parameter."""

import doctest
import importlib
import inspect
import pkgutil
import re
from pathlib import Path

import pytest

import jaxconv
from jaxconv._op import OPS

README = Path(jaxconv.__file__).parents[1] / "README.md"
MODULES = [
    "jaxconv",
    *(
        module.name
        for module in pkgutil.walk_packages(jaxconv.__path__, "jaxconv.")
        if not module.name.endswith("__main__")
    ),
]


def public_functions():
    """Every function a user may call, by its full name."""
    for module in map(importlib.import_module, MODULES):
        if any(part.startswith("_") for part in module.__name__.split(".")):
            continue
        own = [n for n, v in vars(module).items() if getattr(v, "__module__", 0) == module.__name__]
        for name in getattr(module, "__all__", own):
            value = getattr(module, name, None)
            if not name.startswith("_") and inspect.isfunction(value):
                yield f"{module.__name__}.{name}", value


PUBLIC = dict(public_functions())


def run(test, **options):
    """Run the examples of a docstring; how many there are."""
    report = []
    results = doctest.DocTestRunner(**options).run(test, out=report.append, clear_globs=False)
    assert not results.failed, "".join(report)
    return results.attempted


@pytest.mark.parametrize("module", MODULES)
def test_the_examples_of_a_module(module):
    for test in doctest.DocTestFinder().find(importlib.import_module(module)):
        run(test)


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_function_has_an_example(name):
    [test] = doctest.DocTestFinder(recurse=False).find(PUBLIC[name], name, globs={})
    module = importlib.import_module(name.rpartition(".")[0])
    assert test.examples or (module.__doc__ and ">>> " in module.__doc__)


def parameters(function):
    """Their names; one with a leading underscore, or only that, is not for the caller."""
    return [name for name in inspect.signature(function).parameters if not name.startswith("_")]


@pytest.mark.parametrize("name", PUBLIC)
def test_a_public_docstring_names_every_parameter(name):
    doc = inspect.getdoc(PUBLIC[name])
    assert set(parameters(PUBLIC[name])) <= set(re.findall(r"\w+", doc))
    first, blank, *_ = [*doc.splitlines(), ""]
    assert first.endswith(".")
    assert not blank


@pytest.mark.parametrize("name", PUBLIC)
def test_the_arguments_section_lists_each_once(name):
    """`Args:` entries are indented by two, their text by more, and one may list several names."""
    _, found, section = inspect.getdoc(PUBLIC[name]).partition("\nArgs:\n")
    if found:
        heads = re.findall(r"^  (\w[\w,\s]*?):", re.split(r"\n\S", section)[0], re.MULTILINE)
        listed = [name for head in heads for name in re.split(r",\s*", head)]
        assert sorted(listed) == sorted(parameters(PUBLIC[name]))


def test_the_six_operations_have_an_arguments_section():
    for name in OPS:
        assert "\nArgs:\n" in inspect.getdoc(getattr(jaxconv, name))


def code_blocks(text):
    """The fenced Python blocks of a Markdown text, with the lines they start at."""
    for block in re.finditer(r"^```python\n(.*?)^```$", text, re.MULTILINE | re.DOTALL):
        yield text[: block.start(1)].count("\n"), block[1]


@pytest.mark.skipif(not README.exists(), reason="there is no README.md yet")
def test_the_readme():
    """Its blocks in order, in one namespace."""
    namespace = {"__name__": "readme"}
    blocks = list(code_blocks(README.read_text()))
    assert blocks
    for line, block in blocks:
        if block.startswith(">>> "):
            parser = doctest.DocTestParser()
            run(parser.get_doctest(block, namespace, "README.md", str(README), line))
        else:
            exec(compile("\n" * line + block, str(README), "exec"), namespace)
